"""What the store knows of other kernels on this device, in the terms of a searcher's cost model.

    rows of each kernel, from before this session --> facts of their loop trees  --> lessons of all kernels but one,
                                                      times over its fastest         for the search of that one

Rows of the sessions that this one continues are left out, as those of this session are: a search that was cut short is
to ask what it asked the first time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tunegrad.errors import IllegalAction
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.opts import SPACE_VERSION, Schedule, Space
from tunegrad.search import Facts, Features, Lessons, TrialLog, tree_features
from tunegrad.trial import Trial

__all__ = ["MOST_ROWS", "Teacher", "features_of"]

MOST_ROWS = 600
"""Rows of all kernels together; the facts of one take about a millisecond."""


def features_of(space: Space) -> Features:
    """The facts of a space's schedules, by their loop trees."""
    return lambda schedule: tree_features(space.tree(schedule))


@dataclass(frozen=True, slots=True)
class Teacher:
    """The lessons of several kernels. The keys of kernels that nothing is known of teach nothing."""

    known: Mapping[str, Lessons]

    @staticmethod
    def of(kernels: Iterable[Kernel], target: Target, log: TrialLog, most: int = MOST_ROWS) -> Teacher:
        """Read what was stored before this session. Takes a second at most."""
        different = {k.key: k for k in kernels if not k.fixed}
        old = {*log.resumed, log.session}
        stored = {key: [t for t in log.stored(key, SPACE_VERSION) if t.session not in old] for key in different}
        taught = {key: rows for key, rows in stored.items() if any(t.measurement.ran for t in rows)}
        each = most // max(1, len(taught))
        found = {key: _lessons(Space(different[key], target), _spread(rows, each)) for key, rows in taught.items()}
        return Teacher(found)

    def lessons(self, key: str) -> Lessons:
        """What all kernels but that one teach."""
        others = [lessons for other, lessons in self.known.items() if other != key]
        return Lessons(
            tuple(row for lessons in others for row in lessons.rows),
            tuple(log_s for lessons in others for log_s in lessons.log_s),
        )


def _spread(rows: Sequence[Trial], most: int) -> list[Trial]:
    """At most ``most`` rows, the fastest among them, evenly spread over their times; failures come last."""
    ranked = sorted(rows, key=lambda t: t.measurement.seconds if t.measurement.ran else math.inf)
    if len(ranked) <= most:
        return ranked
    return [ranked[i * len(ranked) // most] for i in range(most)]


def _lessons(space: Space, rows: Sequence[Trial]) -> Lessons:
    best_s = min((t.measurement.seconds for t in rows if t.measurement.ran), default=math.inf)
    found = list(_described(space, rows, best_s))
    return Lessons(tuple(facts for facts, _ in found), tuple(log_s for _, log_s in found))


def _described(space: Space, rows: Sequence[Trial], best_s: float) -> Iterator[tuple[Mapping[str, float], float]]:
    """Facts and log seconds over the fastest of the rows that are schedules of this space."""
    features = features_of(space)
    for t in rows:
        try:
            facts = Facts.named(features(Schedule.parse(t.actions)))
        except IllegalAction:
            continue  # of an older space, or the name of a variant
        ran = t.measurement.ran and best_s > 0.0
        yield facts, math.log(t.measurement.seconds / best_s) if ran else math.inf
