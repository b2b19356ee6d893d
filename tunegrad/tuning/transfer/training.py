"""Transfer data for a searcher's cost model: rows of the store of other kernels on this device.

    the session's own kernels,         -->  those with rows of this machine,
    then all others of the store            from before this session: a number
                                            of them at most, the nearest of
                                            each in turns, read back from
                                            their texts
    rows of each, evenly spread        -->  facts of their loop trees,
    over their times                        times over the kernel's fastest
    lessons of all kernels but one     -->  for the search of that one

Rows of the sessions that this one continues are left out, as those of this session are, and all
that began since: a search that was cut short is to ask what it asked the first time. What a file
claims teaches nothing.

The bounds count kernels and rows, not seconds, for the same reason.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from random import Random

from tunegrad.config import TuneSettings
from tunegrad.db import IMPORTED
from tunegrad.errors import IllegalAction
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.parse_kernel import read_back
from tunegrad.ir.target import Target
from tunegrad.opts import SPACE_VERSION, Schedule, Space
from tunegrad.search import (
    LEARNED,
    OPENMP,
    Features,
    Lessons,
    ScheduleFeatures,
    Searcher,
    Shape,
    TrialLog,
    cost_model_installed,
    distance,
    make_searcher,
    tree_features,
)
from tunegrad.trial import Trial

__all__ = ["MOST_KERNELS", "MOST_ROWS", "Teacher", "features_of", "learns", "missing_model"]

MOST_ROWS = 600
"""Rows of all kernels together; the facts of one take about half a millisecond."""

MOST_KERNELS = 40
"""Kernels that teach; each has its part of the rows. Reading one back takes a millisecond, of
Winograd's some ten.
"""

_FEWEST = 4
"""Fewer rows of a kernel that ran say little of what makes it slow; of many only the default
was measured.
"""

_MOST_READ = 20_000
"""Rows that are read from the store before no further kernel is looked at, at some 40
microseconds each.
"""


def features_of(space: Space) -> Features:
    """The facts of a space's schedules, by their loop trees."""
    return lambda schedule: tree_features(space.tree(schedule))


def learns(settings: TuneSettings) -> bool:
    """True when the searcher has a cost model here."""
    return settings.searcher in LEARNED and cost_model_installed()


def missing_model(settings: TuneSettings) -> str:
    """Text for a searcher that would have a cost model and can not; '' otherwise."""
    if settings.searcher not in LEARNED or cost_model_installed():
        return ""
    return f"searcher {settings.searcher}: no cost model: lightgbm can not be imported; {OPENMP}"


@dataclass(frozen=True, slots=True)
class Teacher:
    """The lessons of several kernels.

    The keys of kernels that nothing is known of teach nothing.
    """

    known: Mapping[str, Lessons]

    @staticmethod
    def of(
        kernels: Iterable[Kernel],
        target: Target,
        log: TrialLog,
        others: Mapping[str, str] | None = None,
        leave_out: Collection[str] = (),
        most: int = MOST_ROWS,
    ) -> Teacher:
        """Read what was stored before this session. Takes a second or two at most.

        ``others`` are texts of further kernels by their keys; rows of the sessions in ``leave_out``
        do not count.
        """
        mine = {k.key: k for k in kernels if not k.fixed}
        rows = _Rows(log, frozenset((*leave_out, *log.resumed, log.session)))
        taught = {key: (k, found) for key, k in mine.items() if (found := rows.of(key))}
        for key, text in _nearest(mine, others or {}):
            if len(taught) >= MOST_KERNELS or rows.read >= _MOST_READ:
                break
            found = rows.of(key)
            kernel = read_back(text) if found else None
            if kernel is not None and not kernel.fixed:
                taught[key] = kernel, found
        shares = _shares({key: len(found) for key, (_, found) in taught.items()}, most)
        return Teacher(
            {
                key: _lessons(Space(k, target), _spread(found, shares[key]))
                for key, (k, found) in taught.items()
            }
        )

    def searcher(self, settings: TuneSettings, space: Space, key: str) -> Searcher:
        """A searcher of a kernel by its key, which is taught by the others."""
        rng = Random(f"{settings.seed} {key}")
        return make_searcher(settings.searcher, space, rng, features_of(space), self.lessons(key))

    def lessons(self, key: str) -> Lessons:
        """Rows of all kernels but that one."""
        others = [lessons for other, lessons in self.known.items() if other != key]
        return Lessons(
            tuple(row for lessons in others for row in lessons.rows),
            tuple(log_s for lessons in others for log_s in lessons.log_s),
        )


@dataclass(slots=True)
class _Rows:
    """The rows that may teach: measured on this machine, before this session.

    Mutable: it counts what it has read.
    """

    log: TrialLog
    leave_out: frozenset[str]
    read: int = 0

    def of(self, key: str) -> Sequence[Trial]:
        """Those of a kernel; none where hardly any ran."""
        stored = self.log.stored(key, SPACE_VERSION, self.leave_out)
        found = [t for t in stored if not t.origin.startswith(IMPORTED)]
        self.read += len(found)
        return found if sum(t.measurement.ran for t in found) >= _FEWEST else ()


@dataclass(frozen=True, slots=True)
class _Kind:
    """The key by which kernels are near: their shapes; where nothing carries over, their reductions
    and sizes.
    """

    shape: Shape
    reductions: tuple[str, ...]
    log_size: float

    @staticmethod
    def of(text: str) -> _Kind:
        shape = Shape.of(text)
        reductions = tuple(
            line.split(" in ", 1)[0] for line in shape.pattern.splitlines() if " in " in line
        )
        return _Kind(shape, reductions, sum(math.log2(max(1, n)) for n in shape.extents))

    def apart(self, other: _Kind) -> tuple[int, float]:
        """0 to 3 for what they have in common, then how far apart they are in that."""
        near = distance(self.shape, other.shape)
        if near is not None:
            return near
        return 2 if self.reductions == other.reductions else 3, abs(self.log_size - other.log_size)


def _nearest(mine: Mapping[str, Kernel], others: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Other kernels, those nearest to each of mine first, in turns."""
    kinds = {key: _Kind.of(text) for key, text in others.items() if key not in mine}
    ranked = []
    for kind in (_Kind.of(k.text) for k in mine.values()):
        near = sorted((kind.apart(other), key) for key, other in kinds.items())
        ranked.append([key for _, key in near])
    for key in dict.fromkeys(chain.from_iterable(zip(*ranked, strict=True))):
        yield key, others[key]


def _shares(counts: Mapping[str, int], most: int) -> dict[str, int]:
    """Number of rows of each: the same of all that have so many, all of the others."""
    shares: dict[str, int] = {}
    for key in sorted(counts, key=lambda key: (counts[key], key)):
        shares[key] = min(counts[key], (most - sum(shares.values())) // (len(counts) - len(shares)))
    return shares


def _spread(rows: Sequence[Trial], most: int) -> list[Trial]:
    """At most ``most`` rows, the fastest among them, evenly spread over their times; failures come
    last.
    """
    ranked = sorted(rows, key=lambda t: t.measurement.seconds if t.measurement.ran else math.inf)
    if len(ranked) <= most:
        return ranked
    return [ranked[i * len(ranked) // most] for i in range(most)]


def _lessons(space: Space, rows: Sequence[Trial]) -> Lessons:
    best_s = min((t.measurement.seconds for t in rows if t.measurement.ran), default=math.inf)
    found = list(_described(space, rows, best_s))
    return Lessons(tuple(facts for facts, _ in found), tuple(log_s for _, log_s in found))


def _described(
    space: Space, rows: Sequence[Trial], best_s: float
) -> Iterator[tuple[Mapping[str, float], float]]:
    """Features and log seconds over the fastest of the rows that are schedules of this space."""
    features = features_of(space)
    for t in rows:
        try:
            facts = ScheduleFeatures.named(features(Schedule.parse(t.actions)))
        except IllegalAction:
            continue  # of an older space, or the name of a variant
        ran = t.measurement.ran and best_s > 0.0
        yield facts, math.log(t.measurement.seconds / best_s) if ran else math.inf
