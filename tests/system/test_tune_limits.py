"""Sessions that end early, and sessions of several models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_models import THREADS, Listener, here

from tunegrad import tune as tune_model
from tunegrad.config import TuneSettings, resolve_settings
from tunegrad.db import open_store
from tunegrad.events import CandidateMeasured, SessionFinished, Warned
from tunegrad.tune import tune_models
from tunegrad.tuning.session import SEARCH_POLICY
from tunegrad.tuning.workload import shared_kernels, workload_of_spec

_TEXT = """
[model]
name = "{name}"
builder = "tunegrad.models.mlp:mlp"
[model.args]
sizes = {sizes}
"""
SIZES = {"first": [64, 48, 32], "second": [64, 48, 40, 16]}


def settings_of(
    directory: Path, models: list[str], budget_s: float, **limits: float
) -> TuneSettings:
    files = []
    for name in models:
        files.append(str(directory / f"{name}.toml"))
        Path(files[-1]).write_text(_TEXT.format(name=name, sizes=SIZES[name]), encoding="utf-8")
    store = directory / "t.db"
    given: Any = {"threads": THREADS, "budget_s": budget_s, "store": store, "seed": 3, **limits}
    return resolve_settings(files, **given)


@pytest.fixture(autouse=True)
def _plans_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Races of plans could decide for other kernels, with candidates of their own."""
    monkeypatch.setattr("tunegrad.tuning.questions.cut.CONTENDING", 0.0)


def test_bound_on_candidates_is_kept_and_remembered(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, ["first"], 600.0, max_trials=12)
    report = tune_model(settings)
    assert report.stopped == "trials"
    assert report.saved_s > 300.0
    with open_store(settings.store) as store:
        assert store.count({report.session}, SEARCH_POLICY) == 12
        spent_s = store.stats().spent_s
        assert 0.0 < spent_s < report.seconds
    listener = Listener()
    again = tune_model(settings, [listener])
    assert not listener.of(CandidateMeasured)
    assert again.stopped == ""
    assert any("stopped early before" in w.message for w in listener.of(Warned))
    more = tune_model(replace(settings, max_trials=16))
    assert sum(more.candidates.values()) == 4


def test_bound_smaller_than_the_kernels_measures_that_many_defaults(tmp_path: Path) -> None:
    listener = Listener()
    report = tune_model(settings_of(tmp_path, ["first"], 600.0, max_trials=1), [listener])
    assert [e.origin for e in listener.of(CandidateMeasured)] == ["default"]
    assert report.stopped == "trials"
    assert report.tuned_ms is not None


def test_target_that_the_defaults_reach_stops_at_once(tmp_path: Path) -> None:
    listener = Listener()
    report = tune_model(settings_of(tmp_path, ["first"], 600.0, target_ms=1e6), [listener])
    assert report.stopped == "target"
    assert {e.origin for e in listener.of(CandidateMeasured)} == {"default"}
    assert report.target_ms == 1e6
    assert report.saved_s > 300.0


def test_models_are_tuned_together_and_a_shared_kernel_once(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, ["first", "second"], 600.0, max_trials=48)
    listener = Listener()
    reports = tune_models(settings, [listener])
    works = [workload_of_spec(spec, settings.seed) for spec in settings.models]
    (shared,) = {u.key for u in works[0].kernels} & {u.key for u in works[1].kernels}
    assert [r.model for r in reports] == ["first", "second"]
    assert [{row.key for row in r.rows} for r in reports] == [
        {u.key for u in w.kernels} for w in works
    ]
    assert {u.key: u.uses for u in shared_kernels(works)}[shared] == 2
    assert [row.uses for r in reports for row in r.rows if row.key == shared] == [1, 1]
    rows = [row for r in reports for row in r.rows if row.key == shared]
    assert rows[0].candidates == rows[1].candidates
    with open_store(settings.store) as store:
        kept = len(store.trials(shared, here(), SEARCH_POLICY))
        assert len({r.session for r in reports}) == len(store.sessions()) == 1
    # Its default may have been measured before, to settle the plan.
    assert kept - sum(rows[0].candidates.values()) in (0, 1)
    assert all(
        r.tuned_ms is not None and sum(row.share for row in r.rows) == pytest.approx(1.0)
        for r in reports
    )
    (finished,) = listener.of(SessionFinished)
    assert (finished.report, *finished.others) == reports
