"""Beam searches that learn nothing, as rivals: every change of every schedule of the beam, in no
particular order.

    beam (the 4 fastest)  -->  all their changes, shuffled, measured  -->  the 4 fastest of all

    plain beam   from our default schedules; a change is another answer of one decision
    bare beam    from the kernel without a schedule; a change is one action more

Both end when a whole level brought nothing new into the beam. The second one is how tinygrad's BEAM
goes through a kernel, here on our actions.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tunegrad.opts import Schedule, TraceChooser
from tunegrad.search.protocols import SearchSpace
from tunegrad.search.searchers.ledger import Row
from tunegrad.search.searchers.one_by_one import OneByOne

__all__ = ["BareBeam", "PlainBeam"]


class PlainBeam(OneByOne):
    """Keeps the ``width`` fastest schedules, and tries all their neighbours level by level.

    Mutable.
    """

    origin = "plain beam"

    def __init__(self, space: SearchSpace, rng: Random, width: int = 4) -> None:
        super().__init__(space)
        self.rng, self.width = rng, width
        self._expanded: set[str] = set()
        self._level: list[Schedule] = []

    def prepare(self, n: int) -> None:  # noqa: ARG002  # however many
        if not self._level:
            parents = [r for r in self.beam() if r.schedule.text not in self._expanded]
            self._expanded |= {r.schedule.text for r in parents}
            self._level = [change for r in parents for change in self.changes(r)]
            self.rng.shuffle(self._level)

    def propose(self) -> Schedule | None:
        while self._level:
            schedule = self._level.pop()
            if self.ledger.claim(schedule):
                return schedule
        return None

    def beam(self) -> list[Row]:
        """The fastest so far."""
        return self.ledger.fastest(self.width)

    def changes(self, row: Row) -> Iterator[Schedule]:
        """A schedule's neighbours, as far as they are legal."""
        choices = row.choices
        for decision in row.schedule.trace:
            for option in range(decision.options):
                if option != decision.choice:
                    chooser = TraceChooser({**choices, decision.name: option})
                    if (schedule := self.ledger.sample(chooser)) is not None:
                        yield schedule


class BareBeam(PlainBeam):
    """The same from the kernel without a schedule, one action more at a time.

    The default schedules count as measured, and are no part of the beam.
    """

    origin = "bare beam"

    def __init__(self, space: SearchSpace, rng: Random, width: int = 4) -> None:
        super().__init__(space, rng, width)
        self._level = [Schedule(())]

    def beam(self) -> list[Row]:
        """The fastest of those that decisions did not make."""
        return self.ledger.untraced()[: self.width]

    def changes(self, row: Row) -> Iterator[Schedule]:
        """A schedule with one more of the legal steps."""
        actions = row.schedule.actions
        return (Schedule((*actions, step)) for step in self.ledger.space.actions(row.schedule))
