"""Bad candidates planted in a search: each costs one row, and the search goes on to a right
winner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import planted
import pytest
from small_models import Listener, settings_of, trials_of
from test_tune_kill import one_row_each

from tests.time_enough import with_time_enough
from tunegrad.db import open_store
from tunegrad.events import CandidateMeasured
from tunegrad.reports import TuneReport
from tunegrad.trial import Status, Trial
from tunegrad.tuning.session import run_session
from tunegrad.tuning.workload import workload_of_spec

pytestmark = pytest.mark.timing

EXPECTED = {
    "good": Status.OK,
    "endless": Status.TIMED_OUT,
    "crash": Status.CRASHED,
    "outside": Status.WRONG,
    "unwritten": Status.WRONG,
    "unparsable": Status.COMPILE_ERROR,
    "bug": Status.COMPILE_ERROR,
    "huge": Status.OUT_OF_RESOURCES,
}


@dataclass(frozen=True)
class Survived:
    report: TuneReport
    listener: Listener
    trials: list[Trial]


@pytest.fixture(scope="module")
def survived(
    tmp_path_factory: pytest.TempPathFactory, places: dict[str, str]
) -> Iterator[Survived]:
    def attempt(times: float) -> Survived:
        directory, listener = tmp_path_factory.mktemp("hostile"), Listener()
        settings = settings_of(directory, 600.0, directory / "h.db", "random")
        settings = replace(settings, max_trials=int(32 * times))
        workload = workload_of_spec(settings.model)
        report = run_session(settings, workload, [listener], planted.HOOKS)
        with open_store(settings.store) as store:
            return Survived(report, listener, trials_of(store, workload))

    with pytest.MonkeyPatch.context() as patch:
        for name, value in places.items():
            patch.setenv(name, value)
        yield with_time_enough(attempt, met_enough)


def kinds_met(survived: Survived) -> set[str]:
    return {planted.kind_of(t.actions) for t in survived.trials if t.origin != "default"}


def met_enough(survived: Survived) -> bool:
    """All but one at least: some thirty schedules are drawn, which ones depends on the machine."""
    return len(kinds_met(survived) & EXPECTED.keys() - {"good"}) >= len(planted.KINDS) - 1


def test_the_kinds_were_planted_and_met(survived: Survived) -> None:
    assert met_enough(survived), kinds_met(survived)


def test_each_kind_is_recorded_as_what_it_is(survived: Survived) -> None:
    found = {
        (planted.kind_of(t.actions), t.measurement.status)
        for t in survived.trials
        if t.origin != "default"
    }
    late = {("good", Status.TIMED_OUT)}  # where others use the machine meanwhile
    assert found <= {*EXPECTED.items()} | late


def test_each_costs_one_row(survived: Survived) -> None:
    measured = survived.listener.of(CandidateMeasured)
    assert len(measured) == len(survived.trials)
    one_row_each(survived.trials)


def test_winners_are_right(survived: Survived) -> None:
    by_text = {(t.kernel_key, t.actions): t for t in survived.trials}
    for row in survived.report.rows:
        assert by_text[row.key, row.actions].measurement.status is Status.OK
        assert row.origin == "default" or planted.kind_of(row.actions) == "good"


def test_report_counts_the_statuses(survived: Survived) -> None:
    assert survived.report.candidates == Counter(t.measurement.status for t in survived.trials)
