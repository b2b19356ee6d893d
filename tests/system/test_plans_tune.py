"""Tuning decides which edges are buffers: the fastest measured plan, its rows, nothing twice,
loading it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pytest
import stored_decisions
from compared import raced_as, track_of
from small_models import THREADS, here

import tunegrad as tg
from tunegrad.config import ModelSpec, TuneSettings
from tunegrad.db import Store, open_store
from tunegrad.devices.host.facts import host_target
from tunegrad.errors import CandidateCrashed, CandidateFailure
from tunegrad.events import Event, WinnerPromoted
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import Alternative, Alternatives, LaunchPlan
from tunegrad.opts import SPACE_VERSION
from tunegrad.planning import RULES, plan_launches, stored_toggles
from tunegrad.trial import Fingerprint, Status
from tunegrad.tuning.questions import cut as plans
from tunegrad.tuning.questions import plan as deciding
from tunegrad.tuning.questions.cut import choose_cuts
from tunegrad.tuning.questions.question import PlanContext
from tunegrad.tuning.session import run_session
from tunegrad.tuning.workload import workload_of_function

pytestmark = pytest.mark.timing

RNG = np.random.default_rng(4)
X = RNG.standard_normal((1024, 64), dtype=np.float32)
W = RNG.standard_normal((64, 512), dtype=np.float32)
Samples = tuple[list[float], list[float]]


def function(x: Tensor) -> Tensor:
    """A layer norm, a product, a softmax: three kernels by the rules."""
    y = x.layer_norm(Tensor.constant(W[:, 0]), Tensor.constant(W[:, 1]))
    return (y @ Tensor.constant(W)).softmax(-1)


WORK = workload_of_function(function, (X,))
FUSION = WORK.fusion
ALTERNATIVES = Alternatives(FUSION)
FOUND = {e: a for e in ALTERNATIVES.edges() if (a := ALTERNATIVES.alternative(e)) is not None}


def by_name(prefix: str) -> Alternative:
    """What an edge that stores a part of the softmax does, or the first that inlines."""
    found = [a for e, a in FOUND.items() if e.name.startswith(prefix)]
    return next(a for a in found if prefix == "inline" or a.before[-1].name.startswith("softmax"))


def faster(fast: Callable[[LaunchPlan], bool]) -> Callable[[LaunchPlan, LaunchPlan], Samples]:
    """A contest that the plans win for which ``fast`` holds."""

    def compare(plan: LaunchPlan, other: LaunchPlan) -> Samples:
        times = [1.0 if fast(p) else 2.0 for p in (plan, other)]
        return tuple([t + 1e-6 * i for i in range(12)] for t in times)  # type: ignore[return-value]

    return compare


def keys(plan: LaunchPlan) -> set[str]:
    return {x.kernel.key for x in plan.launches}


def has(alternative: Alternative) -> Callable[[LaunchPlan], bool]:
    wanted = {k.key for k in alternative.after}
    return lambda plan: wanted <= keys(plan)


def never(*_: object) -> Any:
    raise AssertionError("measured again")


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store(":memory:", "write") as opened, opened.session("tune", 0, {}, "0", "s1"):
        yield opened


def settled(
    store: Store, compare: Any, deadline_s: float = inf, tell: Any = lambda _: None
) -> frozenset[int]:
    context = PlanContext(
        host_target(THREADS), here(), store, "s1", "contract", track_of(compare), tell
    )
    return choose_cuts(FUSION, context, deadline_s)


def test_edges_are_looked_at_while_there_is_time(store: Store) -> None:
    target = host_target(THREADS)
    context = PlanContext(target, here(), store, "s1", "contract", track_of(never), lambda _: None)
    cuts = plans._Cuts(FUSION, context)
    assert cuts.open_regions()
    assert cuts.open_regions(monotonic() - 1.0) == []


def test_no_edge_is_looked_at_where_inputs_alone_take_longer(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of training has its state among them."""
    monkeypatch.setattr(plans, "_Cuts", never)
    context = PlanContext(
        host_target(THREADS), here(), store, "s1", "contract", track_of(never), lambda _: None, 1e9
    )
    assert choose_cuts(FUSION, context, monotonic() + 60.0) == frozenset()


@pytest.mark.parametrize("name", ["store_exp", "store_reduce", "store_recip"])
def test_the_fastest_measured_plan_is_picked(store: Store, name: str) -> None:
    best = by_name(name)
    chosen = settled(store, faster(has(best)))
    assert has(best)(FUSION.toggled(chosen).schedule())
    assert chosen == ALTERNATIVES.toggles([best.edge])


def test_the_rules_plan_stays_where_nothing_is_faster(store: Store) -> None:
    assert settled(store, faster(lambda p: keys(p) == keys(FUSION.schedule()))) == frozenset()


def test_what_is_expected_to_be_hopeless_is_not_tried(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "CONTENDING", 0.0)
    assert settled(store, never) == frozenset()


def test_a_plan_that_does_not_compile_loses(store: Store) -> None:
    def failing(*_: object) -> Samples:
        raise CandidateFailure("planted")

    assert settled(store, failing) == frozenset()


def test_a_plan_whose_model_fails_has_one_row_that_says_so(store: Store) -> None:
    best = by_name("store_exp")

    def crashing(*_: object) -> Samples:
        raise CandidateCrashed("planted")

    assert settled(store, crashing) == frozenset()
    rows = [d for d in store.decisions(best.edge.key, here(), "cut") if d.status is not Status.OK]
    assert [d.choice for d in rows].count(best.edge.name) == 1
    assert {(d.status, d.chosen) for d in rows} == {(Status.CRASHED, False)}
    assert {d.error for d in rows} == {"in the whole model: crashed: planted"}
    assert store.verify() == []


def test_a_decision_is_rows_with_evidence_and_an_event(store: Store) -> None:
    best, events = by_name("store_exp"), list[Event]()
    settled(store, faster(has(best)), tell=events.append)
    rows = store.decisions(best.edge.key, here())
    assert {RULES, best.edge.name} <= {d.choice for d in rows}
    assert all((d.kind, d.session, d.text) == ("cut", "s1", best.edge.region) for d in rows)
    first, last = [d for d in rows if d.chosen]
    assert [d.choice for d in (first, last)] == [RULES, best.edge.name]
    assert (first.evidence.test, last.evidence.p_value < 0.01) == ("standing", True)
    assert len(last.evidence.incumbent_samples_s) == len(last.evidence.challenger_samples_s) == 12
    assert store.trials(best.edge.key) == [], "a decision is no trial"
    (event,) = [e for e in events if type(e) is WinnerPromoted]
    assert (event.key, event.actions, event.origin) == (best.edge.key, best.edge.name, "cut")
    assert store.verify() == []


def test_what_is_settled_is_not_measured(store: Store) -> None:
    best = by_name("store_exp")
    first = settled(store, faster(has(best)))
    assert settled(store, never) == first


def claim(store: Store, alternative: Alternative) -> None:
    """What an imported file promoted."""
    edge = alternative.edge
    store.record_decision(
        stored_decisions.decided("cut", edge.region, edge.name, here(), claimed=True)
    )


def test_what_a_file_promoted_is_measured_here_and_loses_where_it_is_slower(store: Store) -> None:
    claimed = by_name("store_exp")
    claim(store, claimed)
    assert stored_toggles(FUSION, here(), store) == ALTERNATIVES.toggles([claimed.edge])
    asked: list[LaunchPlan] = []

    def compare(plan: LaunchPlan, other: LaunchPlan) -> Samples:
        asked.append(other)
        return faster(lambda p: keys(p) == keys(FUSION.schedule()))(plan, other)

    assert settled(store, compare) == frozenset()
    assert any(has(claimed)(plan) for plan in asked)
    assert stored_toggles(FUSION, here(), store) == frozenset()
    assert settled(store, never) == frozenset()


def test_what_a_file_promoted_stays_where_this_machine_proves_it(store: Store) -> None:
    claimed = by_name("store_exp")
    claim(store, claimed)
    chosen = settled(store, faster(has(claimed)))
    assert chosen == ALTERNATIVES.toggles([claimed.edge])
    assert not store.decision("cut", claimed.edge.key, here(), SPACE_VERSION).imported
    assert settled(store, never) == chosen


def test_what_a_file_promoted_stays_a_claim_where_there_is_no_time_to_measure(store: Store) -> None:
    claimed = by_name("store_exp")
    claim(store, claimed)
    chosen = settled(store, never, deadline_s=monotonic() - 1.0)
    assert chosen == ALTERNATIVES.toggles([claimed.edge])
    assert all(d.imported for d in store.decisions(claimed.edge.key, here()))


def test_regions_that_time_does_not_suffice_for_stay_open(store: Store) -> None:
    assert settled(store, never, deadline_s=monotonic() - 1.0) == frozenset()
    assert not store.decisions()
    best = by_name("store_exp")
    assert settled(store, faster(has(best)))


def test_a_store_of_another_machine_decides_nothing(store: Store) -> None:
    best = by_name("store_exp")
    settled(store, faster(has(best)))
    assert stored_toggles(FUSION, here(), store)
    other = Fingerprint(tuple((k, "another" if k == "arch" else v) for k, v in here().fields))
    assert stored_toggles(FUSION, other, store) == frozenset()


# ---- loading


def decided(path: Path, alternative: Alternative, choice: str | None = None) -> Path:
    """A store that holds one decision."""
    with open_store(path, "write") as store, store.session("tune", 0, {}, "0", "s1"):
        edge = alternative.edge
        name = edge.name if choice is None else choice
        store.record_decision(stored_decisions.decided("cut", edge.region, name, here()))
    return path


@pytest.mark.parametrize("name", ["store_exp", "store_recip", "inline"])
def test_a_stored_plan_changes_the_kernels_of_a_loaded_model_and_not_its_results(
    tmp_path: Path, name: str
) -> None:
    rules = tg.compile(function, X, store=False, threads=THREADS)
    model = tg.compile(
        function, X, store=decided(tmp_path / "p.db", by_name(name)), threads=THREADS
    )
    mine = {r.key: r.uses for r in model.report()}
    assert mine != {r.key: r.uses for r in rules.report()}
    assert {k.key for k in by_name(name).after} <= mine.keys()
    np.testing.assert_allclose(model(X), rules(X), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("choice", ["rules", "store_nothing", "", "a b", "tile(axis=a, size=4)"])
def test_a_stored_choice_that_names_no_edge_leaves_the_rules_plan(
    tmp_path: Path, choice: str
) -> None:
    path = decided(tmp_path / "g.db", by_name("store_exp"), choice)
    with open_store(path) as store:
        planned = plan_launches(
            FUSION.drafts.targets, host_target(THREADS), here(), store, "contract"
        )
    assert (planned.toggles, planned.plan) == (frozenset(), FUSION.schedule())


# ---- a session


@pytest.fixture
def settings(tmp_path: Path) -> TuneSettings:
    spec = ModelSpec("three", f"kernels:{WORK.key}", source="a function")
    return TuneSettings(spec, "cpu", THREADS, 600.0, "beam", tmp_path / "s.db", 3, max_trials=12)


def test_a_session_decides_edges_first_and_searches_the_kernels_of_its_plan(
    settings: TuneSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = by_name("store_reduce")
    raced_as(monkeypatch, faster(has(best)))
    report = run_session(settings, WORK, [])
    with open_store(settings.store) as store:
        rows = store.decisions(None, here(), "cut")
        toggles = stored_toggles(FUSION, here(), store)
    assert toggles == ALTERNATIVES.toggles([best.edge])
    assert {r.key for r in report.rows} == keys(FUSION.toggled(toggles).schedule())
    assert rows
    assert all(d.session == report.session for d in rows)
    loaded = tg.compile(function, X, store=settings.store, threads=THREADS)
    assert {r.key for r in loaded.report()} == {r.key for r in report.rows}
    again = run_session(settings, WORK, [])
    assert again.candidates == {}
    assert {r.key for r in again.rows} == {r.key for r in report.rows}


def test_a_small_budget_leaves_the_edges_alone(
    settings: TuneSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunegrad.tuning.questions.question.race", never)
    report = run_session(replace(settings, budget_s=0.3), WORK, [])
    assert {r.key for r in report.rows} == keys(FUSION.schedule())


def test_an_interrupt_while_edges_are_decided_keeps_the_rules_plan(
    settings: TuneSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os
    import signal

    def interrupted(*_: object, **__: object) -> frozenset[int]:
        os.kill(os.getpid(), signal.SIGINT)
        raise KeyboardInterrupt

    monkeypatch.setattr(deciding, "choose_cuts", interrupted)
    report = run_session(settings, WORK, [])
    assert report.interrupted
    assert {r.key for r in report.rows} == keys(FUSION.schedule())
