"""Kernels of one session lend each other what they found: who, when, in which form; and again alike
when resumed.
"""

from __future__ import annotations

from collections.abc import Collection
from random import Random

import numpy as np
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

from tunegrad.db import Store, open_store
from tunegrad.devices.host.facts import host_target
from tunegrad.ir.kernel import Kernel
from tunegrad.opts import Schedule, Space, TraceChooser
from tunegrad.search import (
    BeamSearcher,
    BudgetPolicy,
    KernelSearch,
    Lending,
    ModelSearch,
    RandomChooser,
    SearchTask,
    StopRule,
    taken_over,
)
from tunegrad.tuning.workload import workload_of_function

SPACE, SURFACE = separable(Random(3), decisions=6, options=6)
FAST = SPACE.sample(TraceChooser({f"d{i}": 2 for i in range(6)}))
FASTER = SPACE.sample(TraceChooser({f"d{i}": 3 for i in range(6)}))


class Case:
    """Kernels of given extents on one surface; ``lends`` or not."""

    def __init__(
        self,
        extents: tuple[int, ...] = (64, 128),
        lends: bool = True,
        store: Store | None = None,
        session: str = "s1",
        resumed: Collection[str] = (),
        kill_after: int = 1 << 30,
        rule: StopRule = StopRule(0, 160),  # noqa: B008  it is frozen
        in_flight: int = 1,
        surfaces: tuple[Surface, ...] = (),
    ) -> None:
        names = [f"k{extent}" for extent in extents]
        each = surfaces or (SURFACE,) * len(names)
        self.measurer = SurfaceMeasurer(
            dict(zip(names, each, strict=True)), Clock(), 1 / 16, kill_after
        )
        self.store = store if store is not None else open_store(":memory:", "write")
        log = trial_log(self.store, session, resumed)
        self.searches = []
        for i, (name, extent) in enumerate(zip(names, extents, strict=True)):
            k = kernel(name, extent)
            task = SearchTask(k, name, k.key, k.text, 1, 1000, 512)
            self.searches.append(
                KernelSearch(task, SPACE, BeamSearcher(SPACE, Random(i)), self.measurer, log)
            )
        self.lending = Lending(self.searches)
        self.model = ModelSearch(
            self.searches, 60.0, self.measurer.clock, lambda _: None,
            BudgetPolicy(in_flight=in_flight),
            rule, self.lending if lends else None,
        )  # fmt: skip

    def run(self) -> Case:
        self.model.run()
        return self

    def lent(self, i: int) -> list[str]:
        return [t.actions for t in self.searches[i].trials if t.origin == "lent"]


class Found:
    """A search that is handed its best schedule."""

    def __init__(
        self, extent: int, space: SurfaceSpace = SPACE, told: Collection[str] = ()
    ) -> None:
        k = kernel(f"k{extent}", extent)
        self.task = SearchTask(k, k.name, k.key, k.text, 1, 1, 1)
        self.space, self.told, self.defaults = space, set(told), space.defaults()
        self.best: Schedule | None = None
        self.best_s = float("inf")

    def finds(self, schedule: Schedule, seconds: float) -> None:
        self.best, self.best_s = schedule, seconds


def lending(*found: Found) -> Lending:
    return Lending(found)  # type: ignore[arg-type]


def test_alike_kernels_are_lent_what_was_found_once_and_again_when_it_is_notably_faster() -> None:
    a, b = Found(64), Found(128)
    books = lending(a, b)
    assert books.due(1) == ()
    a.finds(FAST, 1.0)
    assert books.due(1) == (FAST,)
    assert books.due(1) == ()
    a.finds(FASTER, 0.995)
    assert books.due(1) == ()
    a.finds(FASTER, 0.98)
    assert books.due(1) == (FASTER,)
    assert books.due(0) == ()


def test_defaults_and_what_the_borrower_knows_are_not_lent() -> None:
    a, b = Found(64), Found(128, told=[FAST.text])
    books = lending(a, b)
    a.finds(SPACE.defaults()[0], 1.0)
    assert books.due(1) == ()
    a.finds(FAST, 0.5)
    assert books.due(1) == ()


def test_kernels_that_are_far_apart_or_of_another_structure_lend_nothing() -> None:
    a, b = Found(64), Found(1 << 13)
    a.finds(FAST, 1.0)
    assert lending(a, b).due(1) == ()


def test_a_batch_takes_three_at_most_of_the_nearest_and_the_others_stay_due() -> None:
    kernels = [Found(extent) for extent in (64, 128, 256, 512, 1024)]
    schedules = [SPACE.sample(TraceChooser({"d0": i, "d1": 5})) for i in range(1, 6)]
    for found, schedule in zip(kernels, schedules, strict=True):
        found.finds(schedule, 1.0)
    books = lending(*kernels)
    assert books.due(2, 1) == (schedules[1],)
    assert books.due(2) == (schedules[3], schedules[0])
    assert books.due(0) == tuple(schedules[1:4])


def test_schedules_that_are_legal_nowhere_are_not_lent() -> None:
    strict = SurfaceSpace({f"d{i}": 6 for i in range(6)}, illegal=((("d0", 2), ("d1", 2)),))
    a, b = Found(64), Found(128, strict)
    a.finds(FAST, 1.0)
    books = Lending((a, b), lambda space, s: None if space is strict else s)  # type: ignore[arg-type]
    assert books.due(1) == ()


@pytest.mark.parametrize("in_flight", [1, 16])
def test_lent_schedules_come_with_the_batches_and_are_measured_once(in_flight: int) -> None:
    case = Case(in_flight=in_flight).run()
    assert case.lent(0) or case.lent(1)
    for name in ("k64", "k128"):
        texts = [text for n, text in case.measurer.calls if n == name]
        assert len(texts) == len(set(texts)) > 20
    assert Case(lends=False).run().lent(1) == []


def test_kernels_that_lend_are_sooner_where_they_would_end() -> None:
    """On equal surfaces what one finds is good for all; the sum of the best times after few trials
    says so.
    """
    sums = {True: 0.0, False: 0.0}
    for seed in range(6):
        surfaces = (separable(Random(seed), decisions=6, options=6)[1],) * 4
        for lends in sums:
            case = Case((64, 128, 256, 512), lends, surfaces=surfaces).run()
            sums[lends] += sum(s.best_s for s in case.searches)
    assert sums[True] < 0.98 * sums[False]


def test_lending_search_killed_at_any_point_resumes_to_the_undisturbed_end() -> None:
    rule = StopRule(patience=40)
    whole = Case(rule=rule).run()
    order = whole.measurer.calls
    for k in (1, 3, 20, 50, 100, len(order) - 1):
        cut = Case(rule=rule, kill_after=k)
        with pytest.raises(Killed):
            cut.run()
        again = Case(rule=rule, store=cut.store, session="s2", resumed={"s1"}).run()
        assert again.measurer.calls == order[k:]


def product(m: int, n: int, k: int, relu: bool = False) -> Kernel:
    a, b = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
    (use,) = workload_of_function(lambda a, b: (a @ b).relu() if relu else a @ b, (a, b)).kernels
    return use.kernel


def test_schedule_of_another_epilogue_stands_as_it_is_and_keeps_its_decisions() -> None:
    plain, relu = (Space(product(96, 64, 64, relu), host_target(1)) for relu in (False, True))
    rng = Random(1)
    kept = 0
    for _ in range(20):
        wanted = plain.sample(RandomChooser(rng))
        found = taken_over(relu, wanted)
        assert found is not None
        relu.lower(found)
        kept += found.text == wanted.text and bool(found.trace)
    assert kept >= 10


def test_schedule_without_decisions_is_taken_as_it_stands_or_not_at_all() -> None:
    here = Space(product(96, 64, 64), host_target(1))
    fits = Schedule.parse("tile(axis=a, size=8) vectorize(axis=b)")
    assert taken_over(here, Schedule.parse("tile(axis=a, size=8)")) == Schedule.parse(
        "tile(axis=a, size=8)"
    )
    assert taken_over(here, Schedule.parse("tile(axis=nobody, size=8)")) is None
    assert taken_over(here, fits) in (None, fits)


def test_schedule_that_is_not_legal_here_gives_its_decisions() -> None:
    large, small = (Space(product(m, 64, 64), host_target(1)) for m in (96, 97))
    rng = Random(2)
    for _ in range(30):
        wanted = large.sample(RandomChooser(rng))
        found = taken_over(small, wanted)
        if found is not None:
            small.lower(found)
