"""Several batches in flight: told in the order in which they were begun, so that only timings and
seed decide.
"""

import math
from random import Random

import pytest
from search_surface import (
    Clock,
    Killed,
    Surface,
    SurfaceMeasurer,
    SurfaceSpace,
    kernel,
    separable,
    trial_log,
)

from tunegrad.db import open_store
from tunegrad.errors import InternalError
from tunegrad.events import BudgetSpent, CandidateMeasured, KernelFinished, KernelStarted
from tunegrad.search import (
    BeamSearcher,
    BudgetPolicy,
    KernelSearch,
    ModelSearch,
    Results,
    SearchTask,
)
from tunegrad.trial import Status

SPACE, SURFACE = separable(Random(1), decisions=6, options=6)
OTHER = Surface(SURFACE.factors, 2e-3, fails={("d3", 2): Status.WRONG}, merged=frozenset({"d2"}))
SURFACES = {"a": SURFACE, "b": OTHER, "c": Surface({}, 5e-4)}


class Eager:
    """Measures at the call, like many machines.

    ``open`` counts the calls that were not read to their end.
    """

    def __init__(self, surfaces):
        self.inner = SurfaceMeasurer(surfaces)
        self.open, self.most, self.waiting, self.together = 0, 0, [], 0

    def measure(self, kernel, schedules, best_s, known):
        found = list(self.inner.measure(kernel, schedules, best_s, known))
        self.waiting.append(kernel.name)
        self.together = max(self.together, len(set(self.waiting)))
        self.open += len(schedules)
        self.most = max(self.most, self.open)
        return _Reader(self, kernel.name, found)


class _Reader(Results):
    def __init__(self, eager, name, found):
        self.eager, self.name, self.found, self.count = eager, name, iter(found), len(found)

    def __next__(self):
        try:
            return next(self.found)
        except StopIteration:
            self.close()
            raise

    def close(self):
        if self.count:
            self.eager.open -= self.count
            self.eager.waiting.remove(self.name)
            self.count = 0


class Case:
    """Kernels on surfaces until so many trials were told; every trial takes a second of the
    clock.
    """

    def __init__(
        self,
        measurer,
        trials=150,
        in_flight=48,
        batch=8,
        space=SPACE,
        store=None,
        kill_after=None,
        **log,
    ):
        self.clock, self.events, self.measurer = Clock(), [], measurer
        self.store = store or open_store(":memory:", "write")
        self.kill_after = math.inf if kill_after is None else kill_after
        searches = []
        for i, name in enumerate(SURFACES):
            k = kernel(name, 64 + i)
            task = SearchTask(k, name, k.key, k.text, 1, 1000, 512)
            searcher = BeamSearcher(space, Random(i))
            searches.append(
                KernelSearch(
                    task, space, searcher, measurer, trial_log(self.store, **log), self._observe
                )
            )
        policy = BudgetPolicy(batch=batch, in_flight=in_flight)
        self.model = ModelSearch(searches, trials, self.clock, self._observe, policy)

    def _observe(self, event):
        self.events.append(event)
        if isinstance(event, CandidateMeasured):
            self.clock.now_s += 1.0
            if self.clock.now_s >= self.kill_after:
                raise Killed

    def run(self):
        self.model.run()
        return self


def rows(case):
    keys = [s.task.key for s in case.model.searches]
    return {
        key: [(t.actions, t.origin, t.program_hash, t.measurement) for t in case.store.trials(key)]
        for key in keys
    }


def told(case):
    return [(e.kernel, e.actions) for e in case.events if isinstance(e, CandidateMeasured)]


@pytest.mark.parametrize("in_flight", [1, 9, 48, 200])
def test_in_flight_eager_and_lazy_measurers_lead_to_the_same_rows(in_flight):
    eager, lazy = (
        Case(Eager(SURFACES), in_flight=in_flight),
        Case(SurfaceMeasurer(SURFACES), in_flight=in_flight),
    )
    assert told(eager.run()) == told(lazy.run())
    assert rows(eager) == rows(lazy)
    assert len(told(eager)) >= 150


def test_in_flight_one_is_one_batch_after_the_other():
    measurer = Eager(SURFACES)
    Case(measurer, in_flight=1).run()
    assert measurer.most == 8
    assert measurer.together == 1


def test_in_flight_proposals_stay_under_way_for_several_kernels():
    measurer = Eager(SURFACES)
    case = Case(measurer, in_flight=48).run()
    assert 48 <= measurer.most < 48 + 8
    assert measurer.together == 3
    assert measurer.open == 0
    starts = [e.name for e in case.events if isinstance(e, KernelStarted)]
    assert len(starts) == sum(isinstance(e, KernelFinished) for e in case.events)


def test_in_flight_everything_begun_is_told_when_the_budget_ends():
    case = Case(Eager(SURFACES), trials=50, in_flight=48).run()
    assert len(told(case)) == sum(len(found) for found in rows(case).values())
    assert [e.spent_s for e in case.events if isinstance(e, BudgetSpent)][-1] == len(told(case))


def test_in_flight_interrupted_gives_up_what_is_under_way():
    measurer = Eager(SURFACES)
    case = Case(measurer, in_flight=48, kill_after=60)
    with pytest.raises(Killed):
        case.run()
    assert measurer.open == 0
    assert isinstance(case.events[-1], KernelFinished)
    assert sum(len(found) for found in rows(case).values()) == 60


def test_in_flight_killed_and_resumed_ends_where_an_undisturbed_run_does():
    whole = Case(Eager(SURFACES), trials=100).run()
    for kill_after in range(1, 100, 14):
        cut = Case(Eager(SURFACES), trials=100, kill_after=kill_after, session="s1")
        with pytest.raises(Killed):
            cut.run()
        again = Case(
            Eager(SURFACES), 100 - kill_after, store=cut.store, session="s2", resumed={"s1"}
        ).run()
        # Where the budgets end is a matter of the clock; what they have in common is not.
        both = told(cut) + told(again)
        assert both[:90] == told(whole)[:90]


def test_in_flight_ends_when_nothing_is_left_to_try():
    case = Case(
        Eager(SURFACES), trials=10_000, in_flight=64, space=SurfaceSpace({"d0": 6, "d1": 6})
    ).run()
    assert case.model.done
    assert {len(found) for found in rows(case).values()} == {36}


@pytest.mark.parametrize(("extra", "which"), [(-1, "fewer"), (1, "more")])
def test_in_flight_a_measurer_that_loses_count_is_a_bug(extra, which):
    class Miscounting(Eager):
        def measure(self, kernel, schedules, best_s, known):
            found = list(super().measure(kernel, schedules, best_s, known))
            return iter(found[:extra] if extra < 0 else [*found, None])

    with pytest.raises(InternalError, match=f"gave {which} results"):
        Case(Miscounting(SURFACES)).run()
