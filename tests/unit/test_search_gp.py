"""What search by Gaussian process does beyond the contract; what is said where its packages are
missing.
"""

from __future__ import annotations

import logging
import os
import random
from random import Random

import numpy as np
import optuna
import pytest
from search_surface import Surface, SurfaceSpace, choices_of, failing, needs_gp, played, separable

import tunegrad as tg
from tunegrad.cli.app import run
from tunegrad.errors import ConfigError
from tunegrad.opts import Schedule
from tunegrad.search import (
    GpSearcher,
    Proposal,
    RandomSearcher,
    check_searcher,
    make_searcher,
    registry,
    usable_searchers,
)
from tunegrad.trial import Measurement, Status


@pytest.fixture
def bare(monkeypatch):
    """A machine without torch."""
    monkeypatch.setattr(registry, "gp_missing", lambda: ("torch",))


NEEDS = r"searcher 'gp' needs torch, which can not be imported: pip install 'tunegrad\[gp\]'"


def test_gp_without_its_packages_is_not_usable(bare):
    assert "gp" not in usable_searchers()
    assert {"portfolio", "bayesian"} <= set(usable_searchers())
    check_searcher("bayesian")
    with pytest.raises(ConfigError, match=NEEDS):
        make_searcher("gp", SurfaceSpace({"a": 2}), Random(0))


def test_gp_without_its_packages_is_refused_before_a_store_is_opened(bare, tmp_path):
    store = tmp_path / "rows.db"
    with pytest.raises(ConfigError, match=NEEDS):
        tg.tune_callable(
            lambda x: x + 1.0, np.ones(8, np.float32), searcher="gp", store=store, budget_s=1.0
        )
    assert not store.exists()


def test_bench_leaves_out_gp_without_its_packages_and_says_so(bare, monkeypatch, capsys):
    monkeypatch.setattr("tunegrad.tuning.search_bench.gp_missing", lambda: ("torch",))
    monkeypatch.setattr("tunegrad.tuning.search_bench.usable_searchers", lambda: ("random", "beam"))
    space = os.path.join(os.path.dirname(__file__), "..", "data", "spaces", "softmax.jsonl.gz")  # noqa: PTH118, PTH120
    assert run(["search-bench", "--spaces", space, "--seeds", "1", "--trials", "4"]) == 0
    assert "gp is left out: it needs torch, pip install 'tunegrad[gp]'" in capsys.readouterr().err
    assert run(["search-bench", "--spaces", space, "--searchers", "gp"]) == 1
    assert "searcher 'gp' needs torch" in capsys.readouterr().err


@needs_gp
def test_gp_learns_which_options_fail():
    space, surface = failing()
    asked = played(GpSearcher(space, Random(1)), surface, 64)
    failed = [surface.measure(s).status is not Status.OK for s in asked]
    assert sum(failed[-32:]) <= 10  # 21 at random


@needs_gp
def test_gp_learns_more_than_random_search():
    space, surface = separable(Random(2))
    times = {
        kind: np.mean(
            [surface.seconds(s) for s in played(kind(space, Random(1)), surface, 64)[-24:]]
        )
        for kind in (GpSearcher, RandomSearcher)
    }
    assert times[GpSearcher] < 0.9 * times[RandomSearcher]


@needs_gp
def test_gp_takes_up_questions_that_only_some_answers_open():
    space = SurfaceSpace({"gate": 2, "extra": 16, "last": 16})
    surface = Surface({("gate", 1): 0.9} | {("extra", c): 1.0 - 0.05 * c for c in range(16)})
    searcher = GpSearcher(space, Random(1))
    asked = played(searcher, surface, 64)
    assert set(searcher._defaults) == {"gate", "extra", "last"}
    assert max(choices_of(s).get("extra", 0) for s in asked[:48]) == 15


@needs_gp
def test_gp_looks_at_a_bounded_number_of_trials():
    space, surface = separable(Random(2))
    searcher = GpSearcher(space, Random(1), most=20)
    told = played(RandomSearcher(space, Random(3)), surface, 100)
    for schedule in told:
        searcher.tell(Proposal(schedule, "store"), surface.measure(schedule))
    fastest = min(map(surface.seconds, told))
    searcher.ask(1)
    values = [t.value for t in searcher._study.get_trials(deepcopy=False)]
    assert 10 <= len(values) <= 20 + 4
    assert min(values) == np.log(fastest)
    searcher.ask(60)  # nothing is told: guesses take the place of results, but do not pile up
    assert len(searcher._study.get_trials(deepcopy=False)) <= 2 * 20 + 4


@needs_gp
def test_gp_leaves_threads_random_states_and_logging_alone(capfd):
    import torch
    from threadpoolctl import threadpool_info

    def state():
        pools = sorted((pool["filepath"], pool["num_threads"]) for pool in threadpool_info())
        numpys = np.random.get_state()[1].tolist()  # noqa: NPY002  # the global state is what is looked at
        drawn = random.getstate(), numpys, torch.random.get_rng_state().tolist()
        return (
            pools,
            torch.get_num_threads(),
            drawn,
            optuna.logging.get_verbosity(),
            list(logging.getLogger().handlers),
        )

    space, surface = separable(Random(2))
    played(GpSearcher(space, Random(1)), surface, 16)  # everything is imported then
    before = state()
    played(GpSearcher(space, Random(1)), surface, 16)
    assert state() == before
    assert capfd.readouterr() == ("", "")


@needs_gp
def test_gp_takes_failures_told_before_anything_ran():
    searcher = GpSearcher(SurfaceSpace({"a": 5, "b": 5, "c": 5}), Random(0))
    for p in searcher.ask(20):
        searcher.tell(p, Measurement(Status.TIMED_OUT))
    assert len(searcher.ask(4)) == 4


@needs_gp
def test_gp_takes_up_a_stored_schedule_without_a_trace():
    space, surface = separable(Random(4), decisions=5)
    best = min(played(RandomSearcher(space, Random(1)), surface, 200), key=surface.seconds)
    searcher = GpSearcher(space, Random(0))
    default = space.defaults()[0]
    searcher.tell(Proposal(default, "default"), surface.measure(default))
    searcher.tell(Proposal(Schedule.parse(best.text), "store"), surface.measure(best))
    searcher.ask(1)
    assert choices_of(searcher.ledger.fastest(1)[0].schedule) == choices_of(best)


def test_other_searchers_are_checked_without_importing_what_this_one_needs(monkeypatch):
    monkeypatch.setattr(registry, "gp_missing", lambda: pytest.fail("it was asked"))
    for name in registry.searcher_names():
        if name != "gp":
            registry.check_searcher(name)
