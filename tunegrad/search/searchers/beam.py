"""Beam search over decisions: the best schedules so far, each changed a little at a time, best bets
first.

    told schedules --> beam (the ``width`` fastest) --> moves --> proposals
                                                          |
               change one decision of a trace             |  most of the time
               append one legal raw action                |  rarely
               a fresh random draw                        |  rarely

A move on one decision is scored by what such moves have gained so far (of that decision, and to
that option), by how often its option has failed, by how near the option is to the present one, and
by how fast the parent is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from random import Random

from tunegrad.errors import IllegalAction
from tunegrad.opts import Action, Chooser, Schedule, TraceChooser
from tunegrad.trial import Measurement

from ..protocols import Proposal, SearchSpace
from .ledger import Row, Traces, log_seconds
from .one_by_one import TRIES, OneByOne, RandomChooser

_Change = tuple[str, int]
"""(decision name, option to take instead)"""

_PRIOR_GAIN = 0.1
"""Log gain that an untried decision is taken to be worth, as if seen once: before known duds."""


@dataclass(slots=True)
class _Knob:
    """The record of a decision's moves: how many were asked, log gains (>= 0) of those told."""

    tries: int = 0
    gain: float = 0.0

    @property
    def expected(self) -> float:
        return (_PRIOR_GAIN + self.gain) / (1 + self.tries)


@dataclass(slots=True)
class _Option:
    """One option of a decision: schedules that ran and failed, and log gains of moves to it."""

    ok: int = 0
    failed: int = 0
    moves: int = 0
    gain: float = 0.0

    @property
    def factor(self) -> float:
        """In (0, e]: below 1 for options that fail or that made schedules slower."""
        return (
            (1 + self.ok)
            / (1 + self.ok + 2 * self.failed)
            * math.exp(2.0 * self.gain / (1 + self.moves))
        )


@dataclass(slots=True)
class _Parent:
    """A schedule of the beam. ``tried`` holds the changes already made to it."""

    row: Row
    tried: set[_Change] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Move:
    """The origin of a proposal: its parent's log seconds, what was changed (None: appended)."""

    parent_log_s: float
    change: _Change | None = None


_Scored = tuple[float, _Parent, _Change]
"""The promise of a parent's change, the parent and the change."""


_Idea = tuple[Schedule, _Move | None]
"""A schedule, and the move that led to it; None for a fresh draw."""


class _InformedChooser(RandomChooser):
    """Draws decisions by the factors of options: failed and slow ones come up less."""

    def __init__(self, rng: Random, default_share: float, known: dict[_Change, _Option]) -> None:
        super().__init__(rng, default_share)
        self.known = known

    def choose(self, name: str, options: Sequence[object], default: int) -> int:
        if self.rng.random() < self.default_share:
            return default
        found = [self.known.get((name, i)) for i in range(len(options))]
        weights = [1.0 if x is None else x.factor for x in found]
        return self.rng.choices(range(len(options)), weights)[0]


class BeamSearcher(OneByOne):
    """Keeps the ``width`` fastest schedules and changes one of their decisions at a time.

    Schedules without a trace (from a store) are extended by raw actions only, until a sample prints
    the same text: then they count like any other. For the fastest of them such a sample is looked
    for.

    A share ``explore`` of the proposals are fresh draws, a share ``append`` has one more action.
    It is done when ``TRIES`` ideas in a row were old ones.
    """

    origin = "beam"

    def __init__(
        self,
        space: SearchSpace,
        rng: Random,
        width: int = 6,
        explore: float = 0.06,
        append: float = 0.04,
        traces: Traces | None = None,
    ) -> None:
        super().__init__(space, traces)
        self.rng, self.width, self.explore, self.append = rng, width, explore, append
        self._beam: list[_Parent] = []
        self._used = 0
        self._moves: dict[str, _Move] = {}
        self._appended: dict[str, list[Action]] = {}
        self._knobs: dict[str, _Knob] = {}
        self._options: dict[_Change, _Option] = {}
        self._best = math.inf

    @property
    def beam(self) -> tuple[Schedule, ...]:
        """The schedules that are being changed, fastest first."""
        return tuple(parent.row.schedule for parent in self._beam)

    def tell(self, proposal: Proposal, measurement: Measurement) -> None:
        if not self.ledger.take(proposal, measurement):
            return
        self._done = False
        self._best = min(self._best, log_seconds(measurement))
        self._learn()

    def prepare(self, n: int) -> None:  # noqa: ARG002  # however many
        self.ledger.retrace_best()
        self._learn()

    # ---- learning

    def _learn(self) -> None:
        """Learn from the rows that came in; into the beam with those that ran."""
        for row in self.ledger.rows[self._used :]:
            self._count(row)
            if row.ran:
                self._beam = sorted([*self._beam, _Parent(row)], key=lambda p: p.row.log_s)[
                    : self.width
                ]
        self._used = len(self.ledger.rows)

    def _count(self, row: Row) -> None:
        for d in row.schedule.trace:
            option = self._option(d.name, d.choice)
            if row.ran:
                option.ok += 1
            else:
                option.failed += 1
        move = self._moves.pop(row.schedule.text, None)
        if move is None or move.change is None or not row.ran:
            return
        gain = move.parent_log_s - row.log_s
        self._knob(move.change[0]).gain += max(0.0, gain)
        option = self._option(*move.change)
        option.moves += 1
        option.gain += min(1.0, max(-1.0, gain))

    def _knob(self, name: str) -> _Knob:
        found = self._knobs.get(name)
        if found is None:
            found = self._knobs[name] = _Knob()
        return found

    def _option(self, name: str, choice: int) -> _Option:
        found = self._options.get((name, choice))
        if found is None:
            found = self._options[name, choice] = _Option()
        return found

    # ---- proposing

    def propose(self) -> Schedule | None:
        """One schedule not seen before; None when ``TRIES`` ideas in a row were old or illegal."""
        misses = 0
        while misses < TRIES:
            # Before it gives up, options that were thought bad get their chance as well.
            idea = self._idea() if 2 * misses < TRIES else self._random(RandomChooser(self.rng))
            if idea is None:
                misses += 1
                continue
            schedule, move = idea
            new = self.ledger.claim(schedule)
            lent = len(self.ledger.rows) > self._used  # its trace, to what was told without
            if new or lent:
                self._note(schedule.text, move)
                self._learn()
            if new:
                return schedule
            misses += not lent
        return None

    def _note(self, text: str, move: _Move | None) -> None:
        if move is not None:
            self._moves[text] = move
            if move.change is not None:
                self._knob(move.change[0]).tries += 1

    def _idea(self) -> _Idea | None:
        """A schedule, perhaps an old one; None when the draw was not legal."""
        draw = self.rng.random()
        if self._best == math.inf or draw < self.explore:
            return self._random()
        if draw < self.explore + self.append:
            return self._extended()
        scored = self._scored()
        if not scored:
            return self._extended() if self.rng.random() < 0.2 else self._random()
        _, parent, change = max(scored, key=itemgetter(0))
        parent.tried.add(change)
        return self._changed(parent, change)

    def _scored(self) -> list[_Scored]:
        """(score, parent, change) of every untried move of the beam."""
        found: list[_Scored] = []
        random, known = self.rng.random, self._options
        factors: dict[_Change, float] = {}
        for parent in self._beam:
            speed = math.exp(2.0 * (self._beam[0].row.log_s - parent.row.log_s))
            tried = parent.tried
            for d in parent.row.schedule.trace:
                name = d.name
                worth = self._knob(name).expected * speed
                for choice, near in _others(d.choice, d.options):
                    change = name, choice
                    if change in tried:
                        continue
                    factor = factors.get(change)
                    if factor is None:
                        option = known.get(change)
                        factor = factors[change] = 1.0 if option is None else option.factor
                    # between 0.8 and 1, as Random.uniform draws it
                    found.append(
                        (worth * near * (0.8 + (1.0 - 0.8) * random()) * factor, parent, change)
                    )
        return found

    def _changed(self, parent: _Parent, change: _Change) -> _Idea | None:
        schedule = self.ledger.sample(TraceChooser(parent.row.choices | {change[0]: change[1]}))
        if schedule is not None:
            return schedule, _Move(parent.row.log_s, change)
        self._option(*change).failed += 1
        return None

    def _random(self, chooser: Chooser | None = None) -> _Idea | None:
        """A draw by what is known of the options; every other time half of it at defaults."""
        if chooser is None:
            chooser = _InformedChooser(
                self.rng, 0.5 if self.rng.random() < 0.5 else 0.0, self._options
            )
        schedule = self.ledger.sample(chooser)
        return None if schedule is None else (schedule, None)

    def _extended(self) -> _Idea | None:
        """One of the fastest schedules, with a trace or without, with one more legal action."""
        known = [*(parent.row for parent in self._beam), *self.ledger.untraced()]
        row = self.rng.choice(sorted(known, key=lambda r: r.log_s)[: self.width])
        text = row.schedule.text
        if text not in self._appended:
            self._appended[text] = self._steps(row.schedule)
        if not self._appended[text]:
            return None
        return Schedule((*row.schedule.actions, self._appended[text].pop())), _Move(row.log_s)

    def _steps(self, schedule: Schedule) -> list[Action]:
        """The legal actions to append, in random order."""
        try:
            found = list(self.ledger.space.actions(schedule))
        except IllegalAction:
            found = []
        self.rng.shuffle(found)
        return found


@lru_cache(maxsize=4096)
def _others(taken: int, options: int) -> tuple[tuple[int, float], ...]:
    """The options not taken, nearest first, and their nearness: 1 for a neighbour, less else."""
    return tuple(
        (choice, 1.0 / (1.0 + 0.25 * (distance - 1)))
        for distance in range(1, options)
        for choice in (taken + distance, taken - distance)
        if 0 <= choice < options
    )
