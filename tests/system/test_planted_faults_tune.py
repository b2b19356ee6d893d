"""A session in which half of the candidates are faulty, and many of these faster than any right
one, promotes none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from small_models import settings_of, trials_of

from tests.faults import ANYWHERE, SOME, fault_of
from tunegrad.config import TuneSettings
from tunegrad.db import open_store
from tunegrad.devices.host.facts import fingerprint, host_target
from tunegrad.inference import load
from tunegrad.reports import TuneReport
from tunegrad.trial import Status, Trial
from tunegrad.tuning.session import SEARCH_POLICY, run_session
from tunegrad.tuning.workload import workload_of_spec

pytestmark = pytest.mark.timing

THREADS, TRIALS = 2, 80


@dataclass(frozen=True)
class Survived:
    settings: TuneSettings
    report: TuneReport
    trials: list[Trial]


@pytest.fixture(scope="module")
def survived(
    tmp_path_factory: pytest.TempPathFactory, places: dict[str, str]
) -> Iterator[Survived]:
    directory = tmp_path_factory.mktemp("faults")
    settings = settings_of(directory, 600.0, directory / "f.db", "random")
    settings = replace(settings, threads=THREADS, patience=0, max_trials=TRIALS)
    workload = workload_of_spec(settings.model)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in places.items():
            patch.setenv(name, value)
        report = run_session(settings, workload, [], SOME)
    with open_store(settings.store) as store:
        here = fingerprint(host_target(THREADS))
        keys = {row.key for row in report.rows} | {t.kernel_key for t in trials_of(store, workload)}
        yield Survived(
            settings, report, [t for key in keys for t in store.trials(key, here, SEARCH_POLICY)]
        )


def test_planted_faults_were_met_in_great_number(survived: Survived) -> None:
    met = Counter(fault_of(t.actions) for t in survived.trials if t.origin != "default")
    assert len(met.keys() - {""}) >= len(ANYWHERE) - 2
    assert sum(met.values()) - met[""] > TRIALS / 4


def test_planted_faults_are_never_right(survived: Survived) -> None:
    planted = [t for t in survived.trials if t.origin != "default" and fault_of(t.actions)]
    right = [t for t in planted if t.measurement.status is Status.OK]
    assert not [(fault_of(t.actions), t.actions, t.kernel_key) for t in right]


def test_planted_faults_leave_the_others_right(survived: Survived) -> None:
    honest = Counter(t.measurement.status for t in survived.trials if not fault_of(t.actions))
    assert honest[Status.OK] > TRIALS / 8
    assert honest[Status.WRONG] == honest[Status.CRASHED] == 0


def test_planted_faults_win_nothing(survived: Survived) -> None:
    for row in survived.report.rows:
        assert row.origin == "default" or not fault_of(row.actions), row.actions


def test_planted_faults_leave_the_tuned_model_right(survived: Survived, tmp_path: Path) -> None:
    model, settings = survived.settings.model, survived.settings
    model = str(Path(model.source))
    tuned = load(model, device="cpu", threads=THREADS, store=settings.store)
    default = load(model, device="cpu", threads=THREADS, store=":memory:")
    (shape,) = {a.shape for a in tuned._drawn(0).values()}
    x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    np.testing.assert_allclose(tuned(x), default(x), rtol=1e-4, atol=1e-5)
