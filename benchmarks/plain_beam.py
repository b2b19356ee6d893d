"""A beam search that learns nothing, as a rival: every change of every schedule of the beam, in no
particular order.

    beam (the 4 fastest)  -->  all their changes of one decision, shuffled, measured  -->  the 4
    fastest of all

It begins with the default schedules and ends when a whole level brought nothing new into the beam.
So tinygrad's BEAM goes through a kernel's actions; here on our space, and from our defaults.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tunegrad.opts import Schedule, TraceChooser
from tunegrad.search.ledger import Row
from tunegrad.search.one_by_one import OneByOne
from tunegrad.search.protocols import SearchSpace

__all__ = ["PlainBeam"]


class PlainBeam(OneByOne):
    """Keeps the ``width`` fastest schedules, and tries all their neighbours level by level.

    Mutable.
    """

    origin = "plain beam"

    def __init__(self, space: SearchSpace, rng: Random, width: int = 4) -> None:
        super().__init__(space)
        self.rng, self.width = rng, width
        self._expanded: set[str] = set()
        self._level: list[TraceChooser] = []

    def prepare(self, n: int) -> None:  # noqa: ARG002  # however many
        if not self._level:
            parents = [
                r for r in self.ledger.fastest(self.width) if r.schedule.text not in self._expanded
            ]
            self._expanded |= {r.schedule.text for r in parents}
            self._level = [change for r in parents for change in _changes(r)]
            self.rng.shuffle(self._level)

    def propose(self) -> Schedule | None:
        while self._level:
            if (schedule := self.claimed(self._level.pop())) is not None:
                return schedule
        return None


def _changes(row: Row) -> Iterator[TraceChooser]:
    choices = row.choices
    for decision in row.schedule.trace:
        for option in range(decision.options):
            if option != decision.choice:
                yield TraceChooser({**choices, decision.name: option})
