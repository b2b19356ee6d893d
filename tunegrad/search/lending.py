"""Kernels of one session lend each other the fastest that they have found.

    a kernel found something faster  -->  alike kernels measure it with their next batch:
                                          as it stands, where that is legal; else what its decisions
                                          give there

Alike are kernels of one structure (a convolution of the next stage), and those that differ in what
follows the reduction alone. Searched for five minutes each, many still end with something slower
than what the neighbour's winner gives them as it stands (decision 0027). What was lent is told to
the searcher like any other result, and lent on where it turns out to be the fastest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tunegrad.errors import IllegalAction
from tunegrad.opts import Schedule, TraceChooser

from .driver import KernelSearch
from .protocols import SearchSpace
from .seeds import Shape, distance
from .stopping import NOTABLE

__all__ = ["Lending", "taken_over"]

_NEAREST = 3
"""Kernels that one borrows from."""

_FARTHEST = 5.0
"""How far apart the extents of kernels of one structure may be: a convolution of the next stage
of a network is 4.
"""

_AT_ONCE = 3
"""Schedules that a batch takes, at most."""

TakeOver = Callable[[SearchSpace, Schedule], Schedule | None]


class Lending:
    """Who lends whom among searches, and what is due. Mutable: it remembers what was lent.

    It goes by what has come to light in the searches, so that a resumed session lends what it lent.
    """

    def __init__(self, searches: Sequence[KernelSearch], take_over: TakeOver | None = None) -> None:
        self._searches, self._take_over = searches, take_over or taken_over
        self._near = _neighbours([s.task.text for s in searches])
        self._lent_s: dict[tuple[int, int], float] = {}

    def due(self, borrower: int, most: int = _AT_ONCE) -> tuple[Schedule, ...]:
        """What kernel ``borrower`` should measure now: of each neighbour that got notably faster
        since, its fastest.

        At most ``most`` and three; the others stay due.
        """
        search, found = self._searches[borrower], dict[str, Schedule]()
        for lender in self._near[borrower]:
            if len(found) >= min(most, _AT_ONCE):
                break
            best, best_s = self._searches[lender].best, self._searches[lender].best_s
            if best is None or best_s > (1.0 - NOTABLE) * self._lent_s.get(
                (lender, borrower), float("inf")
            ):
                continue
            self._lent_s[lender, borrower] = best_s
            if best.text in search.told or any(
                best.text == d.text for d in self._searches[lender].defaults
            ):
                continue
            lent = self._take_over(search.space, best)
            if lent is not None and lent.text not in search.told:
                found.setdefault(lent.text, lent)
        return tuple(found.values())


def taken_over(space: SearchSpace, schedule: Schedule) -> Schedule | None:
    """Another kernel's schedule in this space: as it stands, else what its decisions give; None
    where neither is legal.

    It has its decisions wherever they print it here, too, so that searchers can vary it.
    """
    try:
        decided = (
            space.sample(TraceChooser({d.name: d.choice for d in schedule.trace}))
            if schedule.trace
            else None
        )
    except IllegalAction:
        decided = None
    if decided is not None and decided.text == schedule.text:
        return decided
    try:
        next(iter(space.actions(schedule)), None)
    except IllegalAction:
        return decided
    return Schedule(schedule.actions)


def _neighbours(texts: Sequence[str]) -> list[tuple[int, ...]]:
    """Of each kernel the nearest alike ones, nearest first."""
    shapes = [Shape.of(text) for text in texts]
    found = []
    for i, mine in enumerate(shapes):
        far = [
            (d, j)
            for j, other in enumerate(shapes)
            if j != i and (d := distance(mine, other)) is not None
        ]
        near = [j for (kind, extents), j in sorted(far) if extents <= (0.0 if kind else _FARTHEST)]
        found.append(tuple(near[:_NEAREST]))
    return found
