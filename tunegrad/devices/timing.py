"""Timing by samples: adaptive repeats and order-statistic intervals.

    beside B:  C B  B C  C B  every sample of a candidate C stands next to one of B of the same turn
    alone:       C  C      C

Samplers are functions from inner repeats to seconds, so all of this is tested with no clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from tunegrad.trial import Policy

Sampler = Callable[[int], float]
"""Seconds of one launch, the mean of so many back to back."""

_SHORT_S, _SAMPLE_S = 20e-6, 40e-6
"""Seconds: a launch below the first is repeated until a sample takes the second, in which reading
the clock and waking the team, below a microsecond together, are a few hundredths.
"""

_MAX_INNER = 4096
"""Launches of a sample: a kernel of nothing does not take a session's time."""

_PAUSE_S, _ALONE = 0.05, 3
"""Seconds that a thread may wait for its core in a sample. The median of so many shorter ones
leaves out one that did: what a kernel's first program takes scales all that is timed beside it.
"""

_CLEARLY = 2.0
"""Of what loses: so slow in its first turn, and in a run before it, a candidate has no second."""

_LEAST_S = 1e-9
"""A tick of the clock: nothing is shorter."""


@dataclass(slots=True)
class Pairs:
    """Samples of a candidate, and of what is beside it turn by turn, none where it is alone.

    Mutable: they grow.
    """

    samples_s: tuple[float, ...] = ()
    reference_s: tuple[float, ...] = ()
    standing_s: float = 0.0

    @property
    def value_s(self) -> float:
        """Seconds of the candidate by the fastest turns, scaled by what is beside it."""
        slowness = (
            max(min(self.reference_s), _LEAST_S) / self.standing_s if self.reference_s else 1.0
        )
        return min(self.samples_s) / slowness

    @property
    def turns(self) -> tuple[float, ...]:
        """Ratio of each turn to what is beside it; alone, its seconds."""
        if not self.reference_s:
            return self.samples_s
        return tuple(
            mine / max(b, _LEAST_S)
            for mine, b in zip(self.samples_s, self.reference_s, strict=True)
        )

    def latest(self, count: int) -> Pairs:
        """The last turns alone."""
        return Pairs(self.samples_s[-count:], self.reference_s[-count:], self.standing_s)


def inner_repeats(once_s: float, alone: bool) -> int:
    """Launches per sample: one, or enough to fill 40 us where one takes under 20 us.

    One where they stand ``alone``.
    """
    if alone or once_s >= _SHORT_S:
        return 1
    return max(1, min(_MAX_INNER, math.ceil(_SAMPLE_S / max(once_s, 1e-9))))


def relative_interval(samples: Sequence[float], statistic: str = "median") -> float:
    """Half the width of a ~95 % interval of the statistic, over the statistic.

    Median: the order statistics of ranks n/2 +- 1.96*sqrt(n)/2 (no assumption on the distribution);
    under six samples the whole range. Minimum: the gap of the two smallest. Infinity for less than
    two samples.
    """
    if len(samples) < 2:
        return math.inf
    ordered = sorted(samples)
    if statistic == "min":
        return (ordered[1] - ordered[0]) / ordered[0] if ordered[0] > 0 else math.inf
    n = len(ordered)
    rank = max(0, math.floor((n - 1.96 * math.sqrt(n)) / 2)) if n >= 6 else 0
    middle = median(ordered)
    return 0.5 * (ordered[n - 1 - rank] - ordered[rank]) / middle if middle > 0 else math.inf


@dataclass(slots=True)
class _Turns:
    """Takes turns of a candidate and of what is beside it, of which most candidates have two: so
    that it runs last in the second one, it runs first in the first one.

    Mutable: it keeps them, and how often each is repeated.
    """

    candidate: Sampler
    beside: Sampler | None
    alone: bool
    pairs: Pairs
    inner: list[int] = field(default_factory=lambda: [1, 1])
    after: bool = True

    def take(self, count: int) -> None:
        """So many more turns, in alternating order: disturbances may keep step with turns."""
        for _ in range(count):
            if self.beside is not None and not self.after:
                self.pairs.reference_s += (self.beside(self.inner[1]),)
            self.pairs.samples_s += (self.candidate(self.inner[0]),)
            if self.beside is not None and self.after:
                self.pairs.reference_s += (self.beside(self.inner[1]),)
            self.after = self.beside is not None and not self.after

    def end(self) -> Pairs:
        """End the timing with the pairs taken; the candidate ran last: its outputs are compared."""
        if self.beside is not None and not self.after:
            self.candidate(1)
        return self.pairs

    def calibrate(self) -> None:
        """Let the first turns say how often each is repeated in a sample.

        Unless alone they count no more.
        """
        sides = self.pairs.samples_s, self.pairs.reference_s
        self.inner = [inner_repeats(min(side), self.alone) if side else 1 for side in sides]
        self.pairs = self.pairs.latest(1) if self.alone else Pairs(standing_s=self.pairs.standing_s)


def sample_pairs(
    candidate: Sampler,
    beside: tuple[Sampler, float] | None,
    policy: Policy,
    best_s: float = math.inf,
    losing_s: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
    alone: bool = False,
    once_s: float = 0.0,
) -> Pairs:
    """Turns until the interval is under ``policy.tolerance``, the budget is spent, or the candidate
    is losing.

    ``beside``: a sampler, and the seconds that it stands for. ``alone``: something is evicted
    before each sample, so that a sample is one launch, whatever ran before it. Losing: two turns
    say more than ``losing_s``, or the first one and the run before it, which took ``once_s``, both
    say over twice that. Unless ``alone``, the first turn calibrates and is kept only where nothing
    follows it. Beside nothing it has three turns, unless the first takes longer than a thread may
    wait.

    Beside something, what is not losing has ``policy.min_samples`` turns whatever they take, and no
    more where it does not beat ``best_s``. What only seems to, since the reference was slow, has
    ``policy.max_samples``, though they agree: where the reference was disturbed in each of a few
    turns a candidate seems to be the best, and of hundreds one always is. Two references of 4.5 ms
    that stood for 0.6 agreed within 1 %, and all that was met beside that best scaled by a quarter.
    """
    sampler, standing_s = (None, 0.0) if beside is None else beside
    even = once_s <= _CLEARLY * losing_s  # else it may be left at one turn
    turns = _Turns(candidate, sampler, alone, Pairs(standing_s=standing_s), after=even)
    _sample(turns, policy, best_s, losing_s, clock, once_s)
    return turns.end()


def _sample(
    turns: _Turns,
    policy: Policy,
    best_s: float,
    losing_s: float,
    clock: Callable[[], float],
    once_s: float,
) -> None:
    start = clock()
    turns.take(1)
    if min(turns.pairs.value_s, once_s) > _CLEARLY * losing_s:
        return
    if turns.pairs.value_s > losing_s:
        turns.take(1)
    late = turns.beside is None and clock() - start > max(policy.budget_s, _PAUSE_S)
    if late or turns.pairs.value_s > losing_s:
        return
    turns.calibrate()
    least = policy.min_samples if turns.beside is not None else max(policy.min_samples, _ALONE)
    while (taken := len(turns.pairs.samples_s)) < policy.max_samples:
        turns.take(min(max(1, least - taken, taken // 2), policy.max_samples - taken))
        value_s = turns.pairs.value_s
        late = clock() - start > policy.budget_s
        seems = turns.beside is not None and min(turns.pairs.samples_s) >= best_s
        if turns.beside is not None:
            late = value_s >= best_s or (late and not seems)
        if late or value_s > losing_s:
            return
        if not seems and relative_interval(turns.pairs.turns, policy.statistic) < policy.tolerance:
            return
