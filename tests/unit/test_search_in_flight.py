"""Several batches in flight: told in the order in which they were begun, so that only timings and
seed decide.
"""

import math

import pytest
from search_surface import SURFACE, Killed, ModelCase, Surface, SurfaceMeasurer, SurfaceSpace

from tunegrad.errors import InternalError
from tunegrad.events import BudgetSpent, CandidateMeasured, KernelFinished, KernelStarted
from tunegrad.search import BudgetPolicy, Results
from tunegrad.trial import Status

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


class Case(ModelCase):
    """Kernels on surfaces until so many trials were told; every trial takes a second of the
    clock.
    """

    def __init__(self, measurer, trials=150, in_flight=48, kill_after=math.inf, **more):
        self.until = kill_after
        policy = BudgetPolicy(batch=8, in_flight=in_flight)
        super().__init__(SURFACES, trials, measurer=measurer, policy=policy, **more)

    def observe(self, event):
        super().observe(event)
        if isinstance(event, CandidateMeasured):
            self.clock.now_s += 1.0
            if self.clock.now_s >= self.until:
                raise Killed


@pytest.mark.parametrize("in_flight", [1, 9, 48, 200])
def test_in_flight_eager_and_lazy_measurers_lead_to_the_same_rows(in_flight):
    eager, lazy = (
        Case(Eager(SURFACES), in_flight=in_flight),
        Case(SurfaceMeasurer(SURFACES), in_flight=in_flight),
    )
    assert eager.run().told == lazy.run().told
    assert eager.rows == lazy.rows
    assert len(eager.told) >= 150


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
    assert len(case.told) == sum(len(found) for found in case.rows.values())
    assert [e.spent_s for e in case.events if isinstance(e, BudgetSpent)][-1] == len(case.told)


def test_in_flight_interrupted_gives_up_what_is_under_way():
    measurer = Eager(SURFACES)
    case = Case(measurer, in_flight=48, kill_after=60)
    with pytest.raises(Killed):
        case.run()
    assert measurer.open == 0
    assert isinstance(case.events[-1], KernelFinished)
    assert sum(len(found) for found in case.rows.values()) == 60


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
        both = cut.told + again.told
        assert both[:90] == whole.told[:90]


def test_in_flight_ends_when_nothing_is_left_to_try():
    case = Case(
        Eager(SURFACES), trials=10_000, in_flight=64, space=SurfaceSpace({"d0": 6, "d1": 6})
    ).run()
    assert case.model.done
    assert {len(found) for found in case.rows.values()} == {36}


@pytest.mark.parametrize(("extra", "which"), [(-1, "fewer"), (1, "more")])
def test_in_flight_a_measurer_that_loses_count_is_a_bug(extra, which):
    class Miscounting(Eager):
        def measure(self, kernel, schedules, best_s, known):
            found = list(super().measure(kernel, schedules, best_s, known))
            return iter(found[:extra] if extra < 0 else [*found, None])

    with pytest.raises(InternalError, match=f"gave {which} results"):
        Case(Miscounting(SURFACES)).run()
