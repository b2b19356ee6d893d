"""A space and a device made of numbers: schedules are choices, times follow from a table, some
choices fail.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Self

from tunegrad.db import Store as TuneStore
from tunegrad.db import open_store
from tunegrad.errors import IllegalAction
from tunegrad.events import CandidateMeasured, Event
from tunegrad.ir.dtypes import F32
from tunegrad.ir.expr import Load
from tunegrad.ir.kernel import Axis, Kernel, Param, Store
from tunegrad.opts import Action, Chooser, DefaultChooser, Schedule, SpaceDecision
from tunegrad.opts.actions import Tile, Unroll
from tunegrad.search import (
    BeamSearcher,
    BudgetPolicy,
    KernelSearch,
    Measured,
    Measurer,
    ModelSearch,
    Searcher,
    SearchTask,
    StopRule,
    TrialLog,
    TrialStore,
    searcher_names,
)
from tunegrad.trial import Fingerprint, Measurement, Policy, Status

SEARCHERS = searcher_names()


@dataclass(frozen=True)
class SurfaceSpace:
    """``sizes`` maps a decision to how many options it has.

    SpaceDecision ``extra`` is asked only where ``gate`` is 1.

    ``illegal`` pairs of (decision, choice) never go together. Choice 0 is the default of every
    decision.
    """

    sizes: Mapping[str, int]
    illegal: tuple[tuple[tuple[str, int], tuple[str, int]], ...] = ()
    raw: tuple[str, ...] = ()
    version: int = 1

    def sample(self, chooser: Chooser) -> Schedule:
        taken: dict[str, int] = {}
        trace = []
        for name, n in self.sizes.items():
            if name == "extra" and taken.get("gate") != 1:
                continue
            taken[name] = chooser.choose(name, range(n), 0)
            trace.append(SpaceDecision(name, taken[name], n, 0))
        for a, b in self.illegal:
            if taken.get(a[0]) == a[1] and taken.get(b[0]) == b[1]:
                raise IllegalAction(f"{a} and {b} do not go together")
        return Schedule(
            tuple(Tile(name, choice + 1) for name, choice in taken.items()), tuple(trace)
        )

    def defaults(self) -> tuple[Schedule, ...]:
        return (self.sample(DefaultChooser()),)

    def actions(self, schedule: Schedule) -> Iterator[Action]:
        used = {a.axis for a in schedule.actions if isinstance(a, Unroll)}
        for name in self.raw:
            if name not in used:
                yield Unroll(name)


def choices_of(schedule: Schedule) -> dict[str, int]:
    """What was chosen, read back from the actions; a raw action counts as choice 1."""
    found = {a.axis: a.size - 1 for a in schedule.actions if isinstance(a, Tile)}
    return found | {a.axis: 1 for a in schedule.actions if isinstance(a, Unroll)}


@dataclass(frozen=True)
class Surface:
    """Times: ``base_s`` times the product of a factor for each (decision, choice), 1 where none is
    given.

    ``fails`` gives the status of schedules with that choice. ``merged`` names decisions that change
    no program.
    """

    factors: Mapping[tuple[str, int], float]
    base_s: float = 1e-3
    fails: Mapping[tuple[str, int], Status] = field(default_factory=dict)
    merged: frozenset[str] = frozenset()

    def seconds(self, schedule: Schedule) -> float:
        return self.base_s * math.prod(
            self.factors.get(c, 1.0) for c in choices_of(schedule).items()
        )

    def program(self, schedule: Schedule) -> str:
        kept = sorted((n, c) for n, c in choices_of(schedule).items() if n not in self.merged)
        return hashlib.sha256(repr(kept).encode()).hexdigest()[:16]

    def measure(self, schedule: Schedule, cost_s: float = 0.05) -> Measurement:
        for choice in choices_of(schedule).items():
            if choice in self.fails:
                return Measurement(
                    self.fails[choice], error=f"{choice} was planted to fail", compile_s=cost_s
                )
        return Measurement(
            Status.OK, (self.seconds(schedule),) * 3, compile_s=cost_s / 2, timing_s=cost_s / 2
        )


def failing() -> tuple[SurfaceSpace, Surface]:
    """Six decisions of six options; four options of one decision crash, else all are equally
    fast.
    """
    space = SurfaceSpace({f"d{i}": 6 for i in range(6)})
    return space, Surface({}, fails={("d2", c): Status.CRASHED for c in range(2, 6)})


def played(searcher: Searcher, surface: Surface, trials: int, batch: int = 8) -> list[Schedule]:
    """The schedules that it asked for, told as they came."""
    found: list[Schedule] = []
    while len(found) < trials and (asked := searcher.ask(batch)):
        for p in asked:
            searcher.tell(p, surface.measure(p.schedule))
            found.append(p.schedule)
    return found


class Clock:
    """Time that passes only when told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Killed(BaseException):
    """The process ends here."""


class SurfaceMeasurer:
    """Measures on surfaces, one for each kernel name; the clock advances by what each measurement
    cost.

    That is ``cost_s``, and ``timeout_s`` for one that timed out.

    After ``kill_after`` measurements the next one raises Killed. ``calls`` lists (kernel, text) of
    each that ran.
    """

    def __init__(
        self,
        surfaces: Mapping[str, Surface],
        clock: Clock | None = None,
        cost_s: float = 0.05,
        kill_after: int = 1 << 30,
        timeout_s: float = 10.0,
    ) -> None:
        self.timeout_s = timeout_s
        self.surfaces, self.clock, self.cost_s, self.kill_after = (
            surfaces,
            clock or Clock(),
            cost_s,
            kill_after,
        )
        self.calls: list[tuple[str, str]] = []

    def measure(
        self, kernel: object, schedules: Sequence[Schedule], best_s: float, known: Collection[str]
    ) -> Iterator[Measured | None]:
        surface = self.surfaces[kernel.name]  # type: ignore[attr-defined]
        seen = set(known)
        for schedule in schedules:
            program = surface.program(schedule)
            if program in seen:
                yield None
                continue
            if len(self.calls) >= self.kill_after:
                raise Killed
            seen.add(program)
            self.calls.append((kernel.name, schedule.text))  # type: ignore[attr-defined]
            found = surface.measure(schedule, self.cost_s)
            if found.status is Status.TIMED_OUT:
                found = replace(found, compile_s=0.0, timing_s=self.timeout_s)
            self.clock.now_s += self.timeout_s if found.status is Status.TIMED_OUT else self.cost_s
            yield Measured(program, found)


def separable(rng: Random, decisions: int = 8, options: int = 7) -> tuple[SurfaceSpace, Surface]:
    """Each decision has one best option, away from the default; the farther from it, the slower.

    Factors multiply.
    """
    space = SurfaceSpace({f"d{i}": options for i in range(decisions)})
    factors = {}
    for i in range(decisions):
        best, slope = rng.randrange(1, options), rng.uniform(0.02, 0.25)
        factors |= {(f"d{i}", c): 1.0 + slope * abs(c - best) for c in range(options)}
    return space, Surface(factors)


def kernel(name: str, extent: int = 64) -> Kernel:
    """A kernel that copies ``extent`` floats.

    Nothing here runs it; it has a key, a text and a size.
    """
    axis = Axis("i", extent)
    params = (Param.dense("x", F32, (extent,), "in"), Param.dense("y", F32, (extent,), "out"))
    store = Store("y", (axis.index,), Load("x", (axis.index,), F32))
    return Kernel(params, (axis,), (store,), name=name)


MACHINE = Fingerprint((("arch", "paper"), ("device", "cpu")))


def trial_log(
    store: TrialStore,
    session: str = "s1",
    resumed: Collection[str] = (),
    fingerprint: Fingerprint = MACHINE,
    policy: Policy | None = None,
) -> TrialLog:
    return TrialLog(
        store, fingerprint, policy or Policy(), session, lambda: 0.0, frozenset(resumed)
    )


SPACE, SURFACE = separable(Random(1), decisions=6, options=6)
COST_S = 1 / 16  # sums of it are exact
LIMITS = Policy(timeout_s=0.5)


class ModelCase:
    """Kernels on surfaces under one budget of a clock. ``uses``, ``floors`` and ``seeds`` are by
    kernel name; ``log`` are arguments of ``trial_log``.
    """

    def __init__(
        self,
        surfaces: Mapping[str, Surface],
        budget_s: float = 1e4,
        *,
        measurer: Measurer | None = None,
        cls: Callable[..., Searcher] = BeamSearcher,
        space: Any = SPACE,
        uses: Mapping[str, int] | None = None,
        floors: Mapping[str, float] | None = None,
        seeds: Mapping[str, Callable[[], tuple[Schedule, ...]]] | None = None,
        policy: BudgetPolicy | None = None,
        rule: StopRule | None = None,
        kill_after: int = 1 << 30,
        store: TuneStore | None = None,
        **log: Any,
    ) -> None:
        self.clock = Clock()
        self.events: list[Event] = []
        self.measurer: Any = measurer or SurfaceMeasurer(
            surfaces, self.clock, COST_S, kill_after, LIMITS.timeout_s
        )
        self.store = open_store(":memory:", "write") if store is None else store
        kept = trial_log(self.store, **{"policy": LIMITS, **log})
        searches = []
        for i, name in enumerate(surfaces):
            k = kernel(name, 64 + i)
            count, floor_s = (uses or {}).get(name, 1), (floors or {}).get(name, 0.0)
            task = SearchTask(k, name, k.key, k.text, count, 1000, 512, floor_s)
            searches.append(
                KernelSearch(
                    task, space, cls(space, Random(i)), self.measurer, kept, self.observe,
                    seeds=(seeds or {}).get(name, tuple),
                )
            )  # fmt: skip
        self.model = ModelSearch(searches, budget_s, self.clock, self.observe, policy, rule)

    def observe(self, event: Event) -> None:
        self.events.append(event)

    def run(self) -> Self:
        self.model.run()
        return self

    @property
    def told(self) -> list[tuple[str, str]]:
        """Kernel and actions of each candidate that was told, in order."""
        return [(e.kernel, e.actions) for e in self.events if isinstance(e, CandidateMeasured)]

    @property
    def rows(self) -> dict[str, list[tuple[str, str, str, Measurement]]]:
        """Actions, origin, program and measurement of each row, by the kernel's key."""
        kept = {s.task.key: self.store.trials(s.task.key) for s in self.model.searches}
        return {
            key: [(t.actions, t.origin, t.program_hash, t.measurement) for t in trials]
            for key, trials in kept.items()
        }
