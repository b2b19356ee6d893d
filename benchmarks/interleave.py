"""Fair timing of several contestants on one machine: interleaved turns, with quiet between them.

    round 1:  A  B  C      each turn:  rest until this process is idle,
    round 2:  B  C  A                  warm calls (caches hot, threads awake), not counted,
    round 3:  C  A  B  ...             timed calls; their median is the turn's figure

The start goes round, and then the direction changes: none always follows the same one, or itself
more often than others do. A figure is the median of a contestant's turns. Of the variants of one
peer only the fastest counts: those that trail it clearly after a few rounds are left out of the
rest, and keep the figure they have. So is a contestant that takes many times as long as the
fastest.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.contestants import Contestant
from tunegrad.tuning.models import turn_order

__all__ = ["FULL", "QUICK", "Pace", "Timing", "interleave", "rest_until_quiet"]


@dataclass(frozen=True, slots=True)
class Pace:
    """Limits of a comparison.

    At least ``min_rounds``, and ``min_s`` of timed calls in all; then until the interval of every
    median is within ``tolerance`` of it, or ``max_rounds``, or ``max_s``. A turn lasts about
    ``turn_s``. After ``trial_rounds``, a variant whose fastest turn is slower by the share
    ``trail`` than the median of its peer's best one is left out, and so is a contestant that takes
    ``hopeless`` times as long as the fastest of all. Calls of ``warm_s`` tenfold need no warm ones.
    """

    min_rounds: int = 15
    max_rounds: int = 60
    min_s: float = 1.0
    max_s: float = 12.0
    turn_s: float = 0.02
    warm_s: float = 0.004
    tolerance: float = 0.01
    trial_rounds: int = 4
    trail: float = 0.08
    hopeless: float = 4.0


FULL = Pace()
QUICK = Pace(
    min_rounds=9, max_rounds=12, min_s=0.0, max_s=3.0, turn_s=0.012, warm_s=0.003, tolerance=0.02
)
"""For many rows in few minutes: medians of at least 9 turns, intervals of about 2 %."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The result of one contestant. ``seconds`` is infinite when it failed, and ``error`` says why.

    ``interval`` is about half the 95 % interval of the median, as a share of it. ``restless`` means
    that threads of this contestant were still busy when the rest after its turn was cut short.
    """

    peer: str
    variant: str
    seconds: float
    interval: float
    rounds: int
    error: str = ""
    restless: bool = False
    layout: str = ""


@dataclass(slots=True)
class _Lane:
    """The mutable record of one contestant during a run."""

    contestant: Contestant
    warm_calls: int = 1
    calls: int = 1
    medians: list[float] = field(default_factory=list)
    timed_s: float = 0.0
    error: str = ""
    restless: bool = False
    trailing: bool = False

    def calibrate(self, pace: Pace) -> None:
        """First touch, then one estimate that sets how many calls make a turn."""
        estimate_s = self.contestant.time(2)[-1]
        if estimate_s < 10 * pace.warm_s:
            estimate_s = max(min(self.contestant.time(3)), 1e-7)
        self.calls = max(1, min(1000, round(pace.turn_s / estimate_s)))
        self.warm_calls = (
            min(1000, math.ceil(pace.warm_s / estimate_s)) if estimate_s < 10 * pace.warm_s else 0
        )

    def turn(self) -> None:
        if self.warm_calls:
            self.contestant.time(self.warm_calls)
        samples = self.contestant.time(self.calls)
        self.medians.append(statistics.median(samples))
        self.timed_s += sum(samples)

    @property
    def interval(self) -> float:
        """Half the 95 % interval of the median, from its ranks (normal approximation), as a share
        of it.
        """
        ordered = sorted(self.medians)
        reach = 0.98 * math.sqrt(len(ordered))
        middle = (len(ordered) - 1) / 2
        low = ordered[max(0, math.floor(middle - reach))]
        high = ordered[min(len(ordered) - 1, math.ceil(middle + reach))]
        return (high - low) / 2 / self.median

    @property
    def median(self) -> float:
        return statistics.median(self.medians)

    @property
    def timing(self) -> Timing:
        c, rounds = self.contestant, len(self.medians)
        if self.error or not self.medians:
            return Timing(
                c.peer, c.variant, math.inf, math.inf, rounds, self.error, self.restless, c.layout
            )
        return Timing(
            c.peer, c.variant, self.median, self.interval, rounds, "", self.restless, c.layout
        )


def interleave(
    contestants: Sequence[Contestant],
    pace: Pace | None = None,
    rest: Callable[[], bool] | None = None,
) -> tuple[Timing, ...]:
    """Time the contestants round robin; results in their order.

    ``rest`` is called before every turn and says whether the process became quiet. A contestant
    that raises is out, with the reason in its timing; the others go on.
    """
    pace, rest = pace or Pace(), rest or rest_until_quiet
    lanes = [_Lane(c) for c in contestants]
    for lane in lanes:
        _attempt(lane, lambda lane=lane: lane.calibrate(pace))  # type: ignore[misc]
        rest()
    rounds = 0
    while (running := _running(lanes)) and not _settled(running, rounds, pace):
        for lane in [running[i] for i in turn_order(len(running), rounds)]:
            _attempt(lane, lane.turn)
            lane.restless |= not rest()
        rounds += 1
        if rounds >= pace.trial_rounds:
            _leave_behind(_running(lanes), pace)
    return tuple(lane.timing for lane in lanes)


def _running(lanes: Sequence[_Lane]) -> list[_Lane]:
    return [lane for lane in lanes if not lane.error and not lane.trailing]


def _leave_behind(lanes: Sequence[_Lane], pace: Pace) -> None:
    """Mark the variants that can no longer stand for their peer, and contestants that are out of
    the race: a few turns are enough.
    """
    fastest_s = min((lane.median for lane in lanes), default=0.0)
    for lane in lanes:
        leader_s = min(
            other.median for other in lanes if other.contestant.peer == lane.contestant.peer
        )
        limit_s = min((1 + pace.trail) * leader_s, pace.hopeless * fastest_s)
        lane.trailing = min(lane.medians) > limit_s


def _attempt(lane: _Lane, step: Callable[[], None]) -> None:
    try:
        step()
    except Exception as error:  # noqa: BLE001  a contestant is foreign code: whatever it raises ends its part, not the run
        lane.error = f"{type(error).__name__}: {error}"


def _settled(lanes: Sequence[_Lane], rounds: int, pace: Pace) -> bool:
    timed_s = sum(lane.timed_s for lane in lanes)
    if rounds < pace.min_rounds or (timed_s < pace.min_s and rounds < pace.max_rounds):
        return False
    if rounds >= pace.max_rounds or timed_s >= pace.max_s:
        return True
    return all(lane.interval <= pace.tolerance for lane in lanes)


def rest_until_quiet(
    step_s: float = 0.012,
    limit_s: float = 0.3,
    sleep: Callable[[float], None] = time.sleep,
    cpu_s: Callable[[], float] = time.process_time,
    restore: frozenset[int] | None = None,
) -> bool:
    """Sleep until every thread of this process sleeps too; False if some still ran after
    ``limit_s``.

    Thread pools spin for a while after their last job, each for a time of its own. On few cores a
    spinning thread takes its core from the next contestant. Waiting for silence costs no contestant
    anything, and needs no setting that would slow one of them down. ``restore`` is the set of cores
    to give back to this thread, which a peer may have pinned.

    A step is longer than a tick of the kernel (10 ms at 100 Hz): the clock of a process counts what
    its *other* running threads have used at ticks only, and stands still between them.
    """
    if restore:
        os.sched_setaffinity(0, restore)
    waited_s = 0.0
    while waited_s < limit_s:
        before = cpu_s()
        sleep(step_s)
        waited_s += step_s
        if cpu_s() - before < 0.1 * step_s:
            return True
    return False
