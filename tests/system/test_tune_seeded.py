"""A kernel that is new is seeded from a similar one of an earlier session, on real kernels."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from small_models import THREADS, Listener, here

import tunegrad as tg
from tunegrad.db import open_store
from tunegrad.events import CandidateMeasured
from tunegrad.reports import TuneReport
from tunegrad.trial import Status
from tunegrad.tuning.session import SEARCH_POLICY


def tuned(
    store: Path, n: int, listener: Listener | None = None, warm_start: bool = True
) -> TuneReport:
    a, b = np.ones((n, 32), np.float32), np.ones((32, 48), np.float32)
    observers = [] if listener is None else [listener]
    return tg.tune_callable(
        lambda a, b: (a @ b).relu(), a, b, budget_s=600.0, store=store, threads=THREADS,
        max_trials=24,
        observers=observers, warm_start=warm_start,
    )  # fmt: skip


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of one session."""
    store = tmp_path_factory.mktemp("first") / "t.db"
    report = tuned(store, 24)
    assert report.seed_share is None
    assert report.rows[0].seed_ms is None
    return store


@pytest.fixture
def store(first: Path, tmp_path: Path) -> Path:
    """The same, for a test to write to."""
    return Path(shutil.copy(first, tmp_path))


def test_new_kernel_is_seeded_from_the_nearest_one_and_says_what_that_gave(store: Path) -> None:
    listener = Listener()
    report = tuned(store, 40, listener)
    measured = [e for e in listener.of(CandidateMeasured) if e.kernel == report.rows[0].kernel]
    seeds = [e for e in measured if e.origin == "seed"]
    assert 1 <= len(seeds) <= 4
    assert [e.origin for e in measured[: 1 + len(seeds)]] == ["default"] + ["seed"] * len(seeds)
    assert all(e.status is Status.OK for e in seeds)
    with open_store(store) as opened:
        rows = opened.trials(report.rows[0].key, here(), SEARCH_POLICY)
    assert [t.actions for t in rows if t.origin == "seed"] == [e.actions for e in seeds]
    assert report.seed_share is not None
    assert 0.0 <= report.seed_share <= 1.0
    assert report.rows[0].seed_ms is not None
    again = Listener()
    repeated = tuned(store, 40, again)
    assert not again.of(CandidateMeasured)
    assert repeated.rows[0].seed_ms == report.rows[0].seed_ms


def test_cold_start_takes_no_seeds(store: Path) -> None:
    listener = Listener()
    report = tuned(store, 40, listener, warm_start=False)
    assert "seed" not in {e.origin for e in listener.of(CandidateMeasured)}
    assert report.seed_share is None
