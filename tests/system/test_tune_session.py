"""A tuning session from end to end: rows, evidence, resuming, reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from statistics import median
from typing import get_args

import pytest
from small_models import THREADS, Listener, here, settings_of, trials_of, undescribed, workload_in

import tunegrad as tg
from tunegrad import tune as tune_model
from tunegrad.config import TuneSettings
from tunegrad.db import Evidence, Question, open_store
from tunegrad.errors import DeviceError
from tunegrad.events import (
    BudgetSpent,
    CandidateMeasured,
    MachineBusy,
    ModelEstimated,
    PhaseStarted,
    SessionFinished,
    SessionStarted,
    Warned,
    WinnerPromoted,
)
from tunegrad.opts import SPACE_VERSION
from tunegrad.reports import TuneReport
from tunegrad.trial import Fingerprint, Status, Trial
from tunegrad.tune import show

pytestmark = pytest.mark.timing

TRIALS = 30


@dataclass(frozen=True)
class Tuned:
    directory: Path
    settings: TuneSettings
    store: Path
    report: TuneReport
    listener: Listener
    trials: list[Trial]
    promotions: dict[str, list[tuple[Trial, Evidence]]]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, places: dict[str, str]) -> Iterator[Tuned]:
    directory = tmp_path_factory.mktemp("tuned")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in places.items():
            patch.setenv(name, value)
        store, listener = directory / "tuned.db", Listener()
        settings = replace(settings_of(directory, 600.0, store), max_trials=TRIALS)
        report = tune_model(settings, [listener])
    workload = workload_in(directory)
    with open_store(store) as opened:
        # The kernels of the plan that was measured to be the fastest: it may be cut otherwise.
        promotions = {row.key: opened.promotions(row.key, here()) for row in report.rows}
        yield Tuned(
            directory, settings, store, report, listener, trials_of(opened, workload), promotions
        )


def copied(tuned: Tuned, directory: Path) -> Path:
    """The store as the session left it, for a test to write to."""
    path = directory / "copy.db"
    path.write_bytes(tuned.store.read_bytes())
    return path


def test_every_candidate_says_how_large_its_code_is_and_winners_what_is_in_it(tuned):
    ran = [t for t in tuned.trials if t.measurement.status is Status.OK]
    assert all(dict(t.measurement.facts)["code_bytes"] > 0 for t in ran)
    with open_store(tuned.store) as store:
        winners = [store.winner(key, here(), SPACE_VERSION) for key in tuned.promotions]
        assert store.verify() == []
    assert all(dict(winner.measurement.facts)["instructions"] > 0 for winner in winners)


def test_every_candidate_is_a_row_of_this_session(tuned: Tuned) -> None:
    measured = tuned.listener.of(CandidateMeasured)
    assert len(measured) == len(tuned.trials) == sum(tuned.report.candidates.values()) == TRIALS
    assert {t.session for t in tuned.trials} == {tuned.report.session}
    assert Counter(e.status for e in measured) == Counter(
        t.measurement.status for t in tuned.trials
    )


def test_candidates_of_this_space_are_right(tuned: Tuned) -> None:
    bad = [t for t in tuned.trials if t.measurement.status in (Status.WRONG, Status.CRASHED)]
    assert not bad, bad[0].measurement.error


def test_phases_follow_one_another_and_the_model_s_estimate_falls(tuned: Tuned) -> None:
    phases = [e.name for e in tuned.listener.of(PhaseStarted)]
    begun = ["limits", "defaults", "plans", "defaults"]
    assert phases == [*begun, "search", "race", "whole model"]
    known = [e for e in tuned.listener.of(ModelEstimated) if e.default_s < inf]
    assert known[-1].best_s <= known[0].best_s <= known[0].default_s
    (row,) = (r for r in tuned.report.rows if r.key == known[-1].kernels[0].key)
    assert 1e3 * known[-1].kernels[0].best_s == pytest.approx(row.best_ms)


def test_events_begin_and_end_with_the_session(tuned: Tuned) -> None:
    events = [e for e in tuned.listener.events if not isinstance(e, MachineBusy)]
    (start, first), last = events[:2], events[-1]
    assert start == PhaseStarted("limits")
    assert isinstance(first, SessionStarted)
    assert (first.session, first.kernels, first.known_trials) == (tuned.report.session, 2, 0)
    assert isinstance(last, SessionFinished)
    assert last.report == tuned.report


def test_every_kernel_has_a_promoted_winner_which_the_report_names(tuned: Tuned) -> None:
    assert {row.key: row.actions for row in tuned.report.rows} == {
        key: promotions[-1][0].actions for key, promotions in tuned.promotions.items()
    }


def test_first_winner_is_the_default_and_each_next_one_is_proved_faster(tuned: Tuned) -> None:
    for promotions in tuned.promotions.values():
        (first, evidence), *later = promotions
        assert (first.origin, evidence.test, evidence.incumbent_samples_s) == (
            "default",
            "first",
            (),
        )
        for _, evidence in later:
            assert evidence.p_value < 0.05
            turns = zip(evidence.challenger_samples_s, evidence.incumbent_samples_s, strict=True)
            assert median(new / old for new, old in turns) < 1.0
    promoted = tuned.listener.of(WinnerPromoted)
    announced = sum(e.origin not in get_args(Question) for e in promoted)  # schedules, not plans
    won = sum(len(p) - 1 for p in tuned.promotions.values())
    assert announced == won


def test_report_gives_a_default_that_won_one_time(tuned: Tuned) -> None:
    for row in tuned.report.rows:
        assert row.default_ms is not None
        assert row.tuned_ms is not None
        assert row.origin != "default" or row.tuned_ms == row.default_ms


def test_whole_model_is_measured_before_and_after(tuned: Tuned) -> None:
    assert tuned.report.default_ms is not None
    assert tuned.report.tuned_ms is not None
    assert sum(row.share for row in tuned.report.rows) == pytest.approx(1.0)


def test_latency_of_the_whole_model_is_a_row_with_its_conditions(tuned: Tuned) -> None:
    with open_store(tuned.store) as store:
        (row,) = store.latencies(tuned.report.model, here())
        (session,) = store.sessions()
    assert (row.kind, row.session) == ("tuned", tuned.report.session)
    assert 1e3 * row.seconds == pytest.approx(tuned.report.tuned_ms)
    assert 1e3 * median(row.default_samples_s) == pytest.approx(tuned.report.default_ms)
    assert len(row.samples_s) == len(row.default_samples_s) >= 3
    assert row.versions == session.versions != ()
    assert [name for name, _ in row.state] == ["governor", "load_1m", "others_cpus"]
    assert dict(row.state).keys() <= dict(session.state).keys()


def test_every_second_is_accounted_for_and_little_is_other(tuned: Tuned) -> None:
    costs = tuned.report.costs
    assert sum(costs.values()) == pytest.approx(tuned.report.seconds)
    assert {
        "start-up",
        "asking",
        "lowering",
        "compiling",
        "verifying",
        "timing",
        "store",
        "whole model",
    } <= set(costs)
    assert costs["other"] < 0.25 * tuned.report.seconds
    assert costs["timing"] >= 0.9 * sum(t.measurement.timing_s for t in tuned.trials)


def test_moment_of_being_near_the_final_times_lies_in_the_session(tuned: Tuned) -> None:
    assert tuned.report.near_s is not None
    assert 0.0 < tuned.report.near_s < tuned.report.seconds


def test_session_row_is_closed_and_holds_the_settings(tuned: Tuned) -> None:
    with open_store(tuned.store) as store:
        (session,) = store.sessions()
    assert (session.id, session.command, session.seed) == (tuned.report.session, "tune", 3)
    assert session.ended_s is not None
    assert f'"budget_s": {tuned.settings.budget_s}' in session.settings


def test_budget_that_is_spent_measures_nothing_and_says_so(tuned: Tuned, tmp_path: Path) -> None:
    listener, store = Listener(), copied(tuned, tmp_path)
    report = tune_model(settings_of(tuned.directory, 0.01, store), [listener])
    assert report.candidates == {}
    assert not listener.of(CandidateMeasured)
    assert [w.message for w in listener.of(Warned)] == [
        "the budget of 0.01 s is spent; a larger one goes on from here"
    ]
    promoted = {e.key: e.actions for e in listener.of(WinnerPromoted)}  # left unsettled before
    old = {r.key: r.actions for r in tuned.report.rows}
    wanted = {key: promoted.get(key, actions) for key, actions in old.items()}
    assert {r.key: r.actions for r in report.rows} == wanted


def test_larger_bound_goes_on_and_repeats_nothing(tuned: Tuned, tmp_path: Path) -> None:
    listener, store = Listener(), copied(tuned, tmp_path)
    with open_store(store) as opened:
        spent_s = opened.stats().spent_s
    tune_model(replace(tuned.settings, store=store, max_trials=TRIALS + 8), [listener])
    assert {e.budget_s for e in listener.of(BudgetSpent)} == {tuned.settings.budget_s}
    assert all(e.spent_s >= spent_s for e in listener.of(BudgetSpent))
    before = {(t.kernel_key, t.actions) for t in tuned.trials}
    with open_store(store) as opened:
        rows = trials_of(opened, workload_in(tuned.directory))
    new = [t for t in rows if t.session != tuned.report.session]
    assert len(new) == len(listener.of(CandidateMeasured)) == 8
    assert not before & {(t.kernel_key, t.actions) for t in new}
    old = [t for t in rows if t.session == tuned.report.session]
    assert undescribed(old) == undescribed(tuned.trials)


def test_show_names_the_session_that_found_the_winner(tuned: Tuned) -> None:
    rows = show(tuned.settings)
    assert {(r.key, r.outcome, r.session, r.actions) for r in rows} == {
        (r.key, "hit", tuned.report.session, r.actions) for r in tuned.report.rows
    }


def test_store_of_another_machine_misses_and_names_the_field(tuned: Tuned, tmp_path: Path) -> None:
    elsewhere = Fingerprint(tuple((k, "pdp11" if k == "arch" else v) for k, v in here().fields))
    path = tmp_path / "theirs.db"
    with (
        open_store(path, "write") as store,
        store.session("tune", 0, {}, "0", tuned.report.session),
    ):
        for trial in tuned.trials:
            store.add(replace(trial, fingerprint=elsewhere))
    rows = show(replace(tuned.settings, store=path))
    arch = dict(here().fields)["arch"]
    assert {(r.outcome, r.differs, r.origin) for r in rows} == {
        ("miss", (f"arch: {arch} != pdp11",), "default")
    }


def test_loaded_model_runs_with_the_winners(tuned: Tuned) -> None:
    model = tg.load(
        str(tuned.directory / "small.toml"), store=tuned.store, threads=THREADS, on_miss="error"
    )
    assert {(r.key, r.outcome, r.actions) for r in model.report()} == {
        (r.key, "hit", r.actions) for r in tuned.report.rows
    }


def test_random_searcher_and_a_store_in_memory(tmp_path: Path) -> None:
    listener = Listener()
    settings = replace(settings_of(tmp_path, 600.0, ":memory:", "random"), max_trials=12)
    report = tune_model(settings, [listener])
    assert report.searcher == "random"
    assert {e.origin for e in listener.of(CandidateMeasured)} == {"default", "random"}


def test_unknown_device_is_refused_before_a_store_is_made(tmp_path: Path) -> None:
    settings = replace(settings_of(tmp_path, 1.0, tmp_path / "new.db"), device="abacus")
    with pytest.raises(DeviceError, match="device 'abacus' is unknown; valid: cpu, opencl"):
        tune_model(settings, [])
    assert not (tmp_path / "new.db").exists()


def test_function_is_tuned_and_then_compiled_with_its_winner(tmp_path: Path) -> None:
    import numpy as np

    a, b = np.ones((8, 24), np.float32), np.ones((24, 16), np.float32)
    store = tmp_path / "f.db"
    report = tg.tune_callable(
        lambda a, b: (a @ b).relu(),
        a,
        b,
        budget_s=600.0,
        max_trials=2,
        store=store,
        threads=THREADS,
    )
    compiled = tg.compile(
        lambda a, b: (a @ b).relu(), a, b, store=store, threads=THREADS, on_miss="error"
    )
    assert [r.actions for r in compiled.report()] == [r.actions for r in report.rows]
    np.testing.assert_array_equal(compiled(a, b), np.full((8, 16), 24, np.float32))
