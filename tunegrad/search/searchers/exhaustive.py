"""Exhaustive search: every list of decisions once, the default first, then those with one change,
two changes ...

    defaults          d d d d
    one change        1 d d d   2 d d d   d 1 d d ...
    two changes       1 1 d d   1 2 d d ...

Each list is reached from exactly one other: the one without its last change. Decisions that are
only asked after some answers are found when those answers are given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from random import Random

from tunegrad.errors import IllegalAction
from tunegrad.opts import Schedule, SpaceDecision

from ..protocols import SearchSpace
from .one_by_one import OneByOne


class _Prefix:
    """Takes the given choices in order, then defaults; remembers what it was asked."""

    def __init__(self, choices: Sequence[int]) -> None:
        self.choices = choices
        self.asked: list[SpaceDecision] = []

    def choose(self, name: str, options: Sequence[object], default: int) -> int:
        at = len(self.asked)
        choice = self.choices[at] if at < len(self.choices) else default
        self.asked.append(SpaceDecision(name, choice, len(options), default))
        return choice


def decision_lists(space: SearchSpace) -> Iterator[Schedule | None]:
    """The schedule of every list of decisions, fewest changes first; None for illegal ones."""
    waiting: deque[tuple[int, ...]] = deque([()])
    while waiting:
        prefix = waiting.popleft()
        chooser = _Prefix(prefix)
        try:
            yield space.sample(chooser)
        except IllegalAction:
            yield None
        # What was asked before a clash is all there is behind it: other answers later on do not
        # mend it.
        taken = tuple(d.choice for d in chooser.asked)
        for at in range(len(prefix), len(chooser.asked)):
            decision = chooser.asked[at]
            others = (o for o in range(decision.options) if o != decision.default)
            waiting.extend((*taken[:at], other) for other in others)


class ExhaustiveSearcher(OneByOne):
    """Proposes every schedule of the space once, in order, and is done when it is through.

    It learns nothing from times and draws nothing: every seed gives the same order. On a large
    space it goes on for as long as it is asked.
    """

    origin = "exhaustive"
    learns = False

    def __init__(self, space: SearchSpace, rng: Random) -> None:  # noqa: ARG002  # made like every other searcher
        super().__init__(space)
        self._lists = decision_lists(space)

    def propose(self) -> Schedule | None:
        for schedule in self._lists:
            if schedule is None:
                self.ledger.skipped += 1
            elif self.ledger.claim(schedule):
                return schedule
        return None
