"""Whole models on machines of a fleet: as on this one, and what a machine that is lost costs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, cast

import planted_in_model
import pytest
from fleet_models import TARGET, THERE, Fleet, fleet
from small_models import workload_in

from tunegrad.db import Store, open_store
from tunegrad.errors import CandidateCrashed, CandidateFailure, WrongResult
from tunegrad.ir.fusion import Alternatives
from tunegrad.opts import SPACE_VERSION, Space
from tunegrad.search.searchers.one_by_one import RandomChooser
from tunegrad.trial import Measurement, Policy, Status, Trial
from tunegrad.tuning.fleet import bench, host
from tunegrad.tuning.models import Models, WholeModel
from tunegrad.tuning.questions.schedule import Schedules, track_of
from tunegrad.tuning.race import Choice, race
from tunegrad.tuning.workload import KernelUse, Workload, with_toggles

SUPPLY = ["put", "profiled", "put", "profiled"]
"""After a first call: the plan and the graph, once more, their constants, once more."""


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store(":memory:", "write") as opened, opened.session("tune", 0, {}, "0", "s1"):
        yield opened


@pytest.fixture
def work(tmp_path: Path) -> Workload:
    return workload_in(tmp_path)


def models_of(store: Store, there: Fleet) -> Models:
    return Models(store, TARGET, THERE, there.bench)


def model_of(store: Store, there: Fleet, work: Workload) -> WholeModel:
    found = models_of(store, there).of(work)
    there.asked()
    return found


def schedules(use: KernelUse, evil: bool, count: int) -> list[str]:
    """Legal schedules there, no defaults, that the hooks plant something in, or do not."""
    space, chooser, found = Space(use.kernel, TARGET), RandomChooser(Random(0)), dict[str, None]()
    defaults = {s.text for s in space.defaults()}
    while len(found) < count:
        text = space.sample(chooser).text
        if text not in defaults and planted_in_model.is_evil(text) == evil:
            found[text] = None
    return list(found)


def sound(turns: object, work: Workload, rounds: int) -> bool:
    return (
        isinstance(turns, tuple)
        and [len(turn) for turn in turns] == [len(work.plan.launches)] * rounds
        and min(s for turn in turns for s in turn) > 0.0
    )


def test_parts_are_sent_once_to_the_machine_of_the_models(store: Store, work: Workload) -> None:
    with fleet(2) as there:
        model = model_of(store, there, work)
        for rounds in (3, 4):
            (turns,) = there.bench.profiled([model], rounds)
            assert sound(turns, work, rounds)
        assert there.asked() == [("m0", what) for what in ["profiled", *SUPPLY, "profiled"]]
        assert there.said == []


def test_a_fleet_answers_what_a_bench_here_does(store: Store, work: Workload) -> None:
    with fleet() as there:
        there.bench.expect([(work.graph, work.inputs)])
        supplied = ["expect", "put", "expect", "put", "expect"]
        assert there.asked() == [("m0", what) for what in supplied]
        model = model_of(store, there, work)
        assert there.bench.judged(model)
        there.bench.check([model, model])
        assert [len(side) for side in there.bench.profiled([model, model], 3)] == [3, 3]
        assert [len(side) >= 3 for side in there.bench.paired(model, model, 0.01)] == [True, True]
        assert len(there.bench.latencies(model, 5)) == 5


def test_a_bench_that_is_renewed_has_a_fresh_worker_there(store: Store, work: Workload) -> None:
    with fleet() as there:
        model = model_of(store, there, work)
        worker = there.stations.machines["m0"].engine._bench._worker
        for started in (1, 2):
            assert len(there.bench.latencies(model, 2)) == 2
            assert worker.started == started
            there.bench.renew()


def test_what_was_compiled_once_is_not_asked_again(store: Store, work: Workload) -> None:
    with fleet() as there:
        pairs = [(u.kernel, schedules(u, False, 1)[0]) for u in work.kernels]
        illegal = work.kernels[0].kernel, "tile(axis=nowhere, size=3)"
        first = there.bench.compile([*pairs, illegal])
        assert [bool(c.error) for c in first] == [False, False, True]
        assert there.asked() == [("m0", "compile")]
        assert there.bench.compile(pairs) == first[:2]
        assert there.asked() == []


@pytest.mark.parametrize(("kind", "failure"), [("crash", CandidateCrashed), ("wrong", WrongResult)])
def test_a_model_that_fails_there_fails_as_it_would_here_and_its_machine_is_not_blamed(
    store: Store, work: Workload, kind: str, failure: type[CandidateFailure]
) -> None:
    use = work.kernels[1]
    with fleet(hooks=planted_in_model.hooks(kind)) as there:
        models = models_of(store, there)
        good, bad = models.of(work), models.of(work, {use.key: schedules(use, True, 1)[0]})
        with pytest.raises(failure):
            there.bench.profiled([good, bad], 3)
        assert sound(there.bench.profiled([good], 3)[0], work, 3)
        assert there.said == []


# ---- machines that are lost


@pytest.mark.parametrize(("back_after_s", "next_one"), [(0.0, "m0"), (math.inf, "m1")])
def test_a_machine_that_dies_while_models_run_costs_one_more_try(
    store: Store, work: Workload, back_after_s: float, next_one: str
) -> None:
    with fleet(2, back_after_s=back_after_s) as there:
        model = model_of(store, there, work)
        there.stations.deadly = ["profiled"]
        (turns,) = there.bench.profiled([model], 3)
        assert sound(turns, work, 3)
        assert there.asked() == [
            ("m0", "profiled"),
            *((next_one, what) for what in ["profiled", *SUPPLY]),
        ]
        assert there.said == ["machine m0 was lost: its machine died"]


def test_a_machine_that_hangs_over_a_model_is_started_anew(store: Store, work: Workload) -> None:
    with fleet() as there:
        model = model_of(store, there, work)
        there.stations.hung = ["profiled"]
        assert sound(there.bench.profiled([model], 3)[0], work, 3)
        assert there.said == ["machine m0 was lost: no answer within 1800 s"]


def test_a_call_that_costs_two_machines_fails_as_a_crash(store: Store, work: Workload) -> None:
    with fleet(2, back_after_s=math.inf) as there:
        model = model_of(store, there, work)
        there.stations.deadly = ["profiled", "profiled"]
        with pytest.raises(CandidateCrashed, match=r"lost over it: m0: .*; m1: its machine died"):
            there.bench.profiled([model], 3)


def test_the_call_after_one_that_was_lost_twice_is_as_ever(store: Store, work: Workload) -> None:
    with fleet() as there:
        model = model_of(store, there, work)
        there.stations.deadly = ["profiled", "profiled"]
        with pytest.raises(CandidateCrashed, match=r"lost over it: m0: .*; m0: its machine died"):
            there.bench.profiled([model], 3)
        assert sound(there.bench.profiled([model], 3)[0], work, 3)


def test_an_interrupt_ends_what_the_machine_does(store: Store, work: Workload) -> None:
    with fleet() as there:
        model = model_of(store, there, work)
        there.bench.check([model])
        there.asked()
        engine = there.stations.machines["m0"].engine
        there.stations.interrupted = True
        with pytest.raises(KeyboardInterrupt):
            there.bench.profiled([model], 3)
        assert there.stations.machines["m0"].engine is not engine
        assert sound(there.bench.profiled([model], 3)[0], work, 3)
        assert there.asked() == [("m0", what) for what in ["profiled", "profiled", *SUPPLY]]
        assert there.said == []


def test_a_machine_that_may_keep_little_is_sent_it_again(
    store: Store, work: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "_MOST_PARTS", 1)
    alternatives = Alternatives(work.fusion)
    cut = next(e for e in alternatives.edges() if alternatives.alternative(e) is not None)
    with fleet() as there:
        models = models_of(store, there)
        one, two = (models.of(w) for w in (work, with_toggles(work, alternatives.toggles([cut]))))
        there.asked()
        for model in (one, two, one):
            there.bench.check([model])
        once = ["check", "put", "check", "put", "check"]
        other = ["check", "put", *once]  # the graph was there, and went with the plan before
        assert there.asked() == [("m0", what) for what in [*once, *other, *other]]
        assert [len(side) for side in there.bench.profiled([one, two], 3)] == [3, 3]


def test_constants_travel_in_shares_also_where_they_are_more_than_may_be_kept(
    store: Store, work: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "MOST_BYTES", 0)
    monkeypatch.setattr(bench, "_PUT_BYTES", 0)
    count = sum(b.role == "const" for b in work.plan.buffers)
    with fleet() as there:
        model = model_of(store, there, work)
        there.bench.check([model])
        puts = ["put"] * count
        assert there.asked() == [("m0", w) for w in ["check", "put", "check", *puts, "check"]]
    assert count > 1


# ---- races


def trial(models: Models, use: KernelUse, actions: str) -> Trial:
    (compiled,) = models.bench.compile([(use.kernel, actions)])
    assert not compiled.error
    ok = Measurement(Status.OK, (1e-5,) * 3)
    return Trial(
        use.key, use.kernel.text, THERE, actions, compiled.program, SPACE_VERSION, Policy(), ok,
        "s1", "beam", 1.0,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["outside", "crash"])
def test_an_evil_challenger_in_a_fleet_is_withdrawn_and_the_others_go_on(
    store: Store, work: Workload, kind: str
) -> None:
    voided: list[tuple[Trial, CandidateFailure]] = []
    first, second = work.kernels
    with fleet(hooks=planted_in_model.hooks(kind)) as there:
        models = models_of(store, there)
        good = {u.key: [trial(models, u, a) for a in schedules(u, False, 3)] for u in work.kernels}
        evil = trial(models, second, schedules(second, True, 1)[0])
        winner, one, two = good[second.key]
        choices = [
            Choice(first.key, good[first.key][0], tuple(good[first.key][1:])),
            Choice(second.key, winner, (one, evil, two)),
        ]
        nothing = cast(Any, None)
        settling = Schedules(
            nothing, models, store, THERE, lambda t, why: voided.append((t, why)), nothing
        )
        found = race(choices, track_of(models, work, settling.void))
        assert there.said == []
    assert [t for t, _ in voided] == [evil]
    assert isinstance(voided[0][1], WrongResult if kind == "outside" else CandidateCrashed)
    assert evil not in [met.alternative for met in found.values()]
