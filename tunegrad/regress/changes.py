"""Changes of level in a series of nights: when, by how much, and how sure each is.

    values     one logarithm of seconds a night, freed of what the whole night had in common
    level      median of up to 20 nights since the last level that was accepted
    noise      how nights scatter about their level: learned from the series and from its siblings
    watch      two cumulative sums (E. S. Page, "Continuous Inspection Schemes", 1954) of how far
               nights are above and below their level, in units of the noise

A night counts for at most ``CLIP`` units, so that no single one, and no two, decide anything: a sum
of clipped scores is the robust form of Page's test. A change began after its sum left zero, where
the nights split best. It stays open until it is accepted or goes away by itself; faster is accepted
when it has lasted as many nights as a first level has to. What a level drifts away from stays: a
slow drift adds up.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import exp, sqrt

import numpy as np
from numpy.typing import NDArray

from tunegrad.paired import Interval

Values = NDArray[np.float64]

CLIP = 3.5
SLACK = 1.2
LIMIT = 4.8
"""In units of the noise: what a night counts for at most, what is taken off each night, and the sum
that is a change. Two nights make 2 (CLIP - SLACK) = 4.6 at most.

``tests/unit/test_regress_simulated.py`` holds what they are worth: false alarms, steps, drifts.
"""

LEARNING = 7
"""Nights before the first decision."""

_LEVEL_NIGHTS = 20
_LEAST_NIGHTS = 3
"""Of a level that follows another one: the noise is known."""

_SIBLINGS = 30.0
"""Nights that the noise of all series counts for, beside the series' own."""

_LEAST_NOISE = 1e-3
"""A tenth of a per cent: no clock and no machine repeats itself better over nights."""

_RECOVERED = 3
_MAD, _MEDIAN_SE, _TWO_SIDED = 1.4826, 1.2533, 1.96


@dataclass(frozen=True, slots=True)
class Change:
    """From night ``start`` on the level is ``ratio`` times what it was in ``before`` nights;
    ``found`` is the night that said so. Nights are places in the series.

    ``interval`` is where the ratio lies, at 95 %. ``end`` is the night at which it was over: None
    while it lasts.
    """

    start: int
    found: int
    ratio: float
    interval: Interval
    before: int
    end: int | None = None

    @property
    def slower(self) -> bool:
        """True for a change to longer times."""
        return self.ratio > 1.0


@dataclass(frozen=True, slots=True)
class Watched:
    """All changes of a series, the oldest first, and the one to slower that is ``open`` now.

    ``noise`` is the relative scatter of one night; None while it is being learned.
    """

    changes: tuple[Change, ...]
    open: Change | None
    noise: float | None


def night_values(samples: Sequence[Values]) -> Values:
    """One value a series of one night, from logarithms of seconds by series and turn.

    ``samples[i][t]``: series i in turn t; all were timed in the same turns. What a turn had in
    common, in a slow minute, is taken off all of them first.
    """
    table = np.stack(samples)
    common = np.median(table - np.median(table, axis=1, keepdims=True), axis=0)
    return np.asarray(np.median(table - common, axis=1))


def scatter(values: Values) -> float:
    """The standard deviation of nights about their level, from medians: neither a few bad nights
    nor a step count for much. 0 for less than three.

    The larger of what neighbouring nights and what all of them say: a machine drifts slowly, too.
    """
    if len(values) < 3:
        return 0.0
    near = np.median(np.abs(np.diff(values))) / sqrt(2)
    return float(_MAD * max(near, np.median(np.abs(values - np.median(values)))))


def sure_from(noise: float) -> float:
    """The least ratio to slower that is found within three nights about 95 times in 100.

    Each of them has to bring its part of the limit, less what noise may take off all.
    """
    return exp(noise * (LIMIT / 3 + SLACK + 1.645 / sqrt(3)))


def watch(values: Values, siblings: float, accepted: Collection[int] = ()) -> Watched:
    """Go through the nights of a series in their order, as each night would have.

    ``siblings`` is the scatter of the series of the same sweeps. ``accepted`` are nights from which
    on what was measured is the new level, whatever it was before.
    """
    return _Watch(np.asarray(values, np.float64), siblings, frozenset(accepted)).run()


class _Watch:
    """A series being gone through. Mutable."""

    def __init__(self, values: Values, siblings: float, accepted: frozenset[int]) -> None:
        self._values, self._siblings, self._accepted = values, siblings, accepted
        self._changes: list[Change] = []
        self._open: Change | None = None
        self._noise: float | None = None
        self._least = LEARNING
        self._begin(0)

    def run(self) -> Watched:
        for night in range(len(self._values)):
            if night in self._accepted:
                self._accept(night)
            self._see(night)
        lasting = self._open
        if lasting is not None:
            lasting = self._changed(lasting.start, lasting.found, len(self._values))
            self._changes[-1] = lasting
        slower = lasting if lasting is not None and lasting.slower else None
        return Watched(tuple(self._changes), slower, self._noise)

    def _begin(self, start: int) -> None:
        """A level that counts from night ``start`` on."""
        self._start = start
        self._sums, self._since = [0.0, 0.0], [-1, -1]
        self._known: tuple[int, float, float] | None = None

    def _accept(self, night: int) -> None:
        if self._open is not None:
            self._close(night)
        self._least = LEARNING if self._noise is None else _LEAST_NIGHTS
        self._begin(night)

    def _close(self, night: int) -> None:
        found = self._open
        assert found is not None
        self._changes[-1] = replace(self._changed(found.start, found.found, night), end=night)
        self._open = None

    def _see(self, night: int) -> None:
        if self._open is not None:
            self._go_on(self._open, night)
            return
        end = self._level_end(night)
        if end - self._start < self._least:
            return
        level, noise = self._level(end)
        spread = noise * sqrt(1.0 + _MEDIAN_SE**2 / (end - self._start))
        score = float(np.clip((self._values[night] - level) / spread, -CLIP, CLIP))
        for side, above in enumerate((score, -score)):
            if self._sums[side] == 0.0:
                self._since[side] = night
            self._sums[side] = max(0.0, self._sums[side] + above - SLACK)
            if self._sums[side] > LIMIT:
                start = self._began(self._since[side], night, level)
                self._open = self._changed(start, night, night + 1)
                self._changes.append(self._open)
                return

    def _began(self, since: int, night: int, level: float) -> int:
        """The night after ``since`` that splits best: nights before it are at the level, the others
        at one of their own; by absolute differences.
        """

        def misfit(start: int) -> float:
            old, new = self._values[since:start], self._values[start : night + 1]
            return float(np.sum(np.abs(old - level)) + np.sum(np.abs(new - np.median(new))))

        return min(range(since, night), key=misfit, default=night)

    def _go_on(self, change: Change, night: int) -> None:
        """Close the change where the last nights are nearer to the level before, or long faster."""
        last = night + 1 - _RECOVERED
        if last <= change.found:
            return
        level, _ = self._level(self._level_end(change.start))
        other = float(np.median(self._values[change.start : last])) - level
        now = float(np.median(self._values[last : night + 1])) - level
        if now / other < 1 / 2:
            self._close(last)
            self._sums, self._since = [0.0, 0.0], [-1, -1]
        elif not change.slower and night + 1 - change.start >= LEARNING:
            self._changes[-1] = self._changed(change.start, change.found, night + 1)
            self._open, self._least = None, _LEAST_NIGHTS
            self._begin(change.start)

    def _level_end(self, night: int) -> int:
        """The nights that make the level end where a sum left zero, for that may be a change."""
        suspect = [s for s, total in zip(self._since, self._sums, strict=True) if total > 0.0]
        return min([self._start + _LEVEL_NIGHTS, night, *suspect])

    def _level(self, end: int) -> tuple[float, float]:
        """The level of the nights from its start to ``end``, and the noise."""
        if self._known is None or self._known[0] != end:
            nights = self._values[self._start : end]
            own, count = scatter(nights), len(nights) if len(nights) >= LEARNING else 0
            pooled = (count * own**2 + _SIBLINGS * self._siblings**2) / (count + _SIBLINGS)
            self._known = end, float(np.median(nights)), max(sqrt(pooled), _LEAST_NOISE)
            self._noise = self._known[2]
        return self._known[1:]

    def _changed(self, start: int, found: int, end: int) -> Change:
        """The change of the nights from ``start`` to ``end`` against the level."""
        before = max(min(start, self._start + _LEVEL_NIGHTS) - self._start, 1)
        level, noise = self._level(self._start + before)
        moved = float(np.median(self._values[start:end])) - level
        error = _TWO_SIDED * _MEDIAN_SE * noise * sqrt(1.0 / before + 1.0 / max(end - start, 1))
        return Change(start, found, exp(moved), (exp(moved - error), exp(moved + error)), before)
