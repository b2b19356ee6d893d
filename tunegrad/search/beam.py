"""Beam search over decisions: the best schedules so far, each changed a little at a time, best bets first.

    told schedules --> beam (the ``width`` fastest) --> moves --> proposals
                                                        change one decision of a trace      most of the time
                                                        change two at once                  now and then
                                                        append one legal raw action         rarely
                                                        a fresh random draw                 rarely; often when stalled

A move on one decision is scored by what such moves have gained so far (of that decision, and to that option), by how
often its option has failed, by how near the option is to the present one, and by how fast the parent is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from tunegrad.errors import IllegalAction
from tunegrad.opts import Action, Chooser, Decision, Schedule, TraceChooser
from tunegrad.trial import Measurement, Status

from .protocols import Proposal, SearchSpace
from .random import RandomChooser
from .retrace import retrace

__all__ = ["BeamSearcher"]

_Change = tuple[str, int]
"""(decision name, option to take instead)"""

_PRIOR_GAIN = 0.1
"""Log gain that an untried decision is taken to be worth, as if seen once: untried ones come before known duds."""

_RETRACED = 3
"""How many of the fastest stored schedules have their decisions looked for; each takes some hundred samples."""

_CLOCK_TICK_S = 1e-9
"""No time is taken to be less, so that ratios of times exist."""


@dataclass(slots=True)
class _Knob:
    """What moves of one decision have brought: how many were asked, and the log gains (>= 0) of those told."""

    tries: int = 0
    gain: float = 0.0

    @property
    def expected(self) -> float:
        return (_PRIOR_GAIN + self.gain) / (1 + self.tries)


@dataclass(slots=True)
class _Option:
    """One option of one decision: schedules with it that ran and that failed, and the log gains of moves to it."""

    ok: int = 0
    failed: int = 0
    moves: int = 0
    gain: float = 0.0

    @property
    def factor(self) -> float:
        """In (0, e]: below 1 for options that fail or that made schedules slower."""
        return (1 + self.ok) / (1 + self.ok + 2 * self.failed) * math.exp(2.0 * self.gain / (1 + self.moves))


@dataclass(slots=True)
class _Entry:
    """A schedule that ran. ``tried`` holds the changes already made to it."""

    schedule: Schedule
    seconds: float
    order: int
    tried: set[_Change] = field(default_factory=set)
    appended: list[Action] | None = None


@dataclass(frozen=True, slots=True)
class _Move:
    """Where a proposal came from: the text of its parent, and what was changed."""

    parent: str
    changes: tuple[_Change, ...] = ()


_Idea = tuple[Schedule, _Move | None]
"""A schedule, and the move that led to it; None for a fresh draw."""


class _InformedChooser(RandomChooser):
    """Draws each decision by the factors of its options: what failed or slowed things down comes up less."""

    def __init__(self, rng: Random, default_share: float, known: dict[_Change, _Option]) -> None:
        super().__init__(rng, default_share)
        self.known = known

    def choose(self, name: str, options: Sequence[object], default: int) -> int:
        if self.rng.random() < self.default_share:
            return default
        found = [self.known.get((name, i)) for i in range(len(options))]
        weights = [1.0 if x is None else x.factor for x in found]
        return self.rng.choices(range(len(options)), weights)[0]


class BeamSearcher:
    """Keeps the ``width`` fastest schedules and changes one or two of their decisions at a time.

    Schedules without a trace (from a store) are extended by raw actions only, until a sample prints the same text: then
    they count like any other. For the fastest of them such a sample is looked for.

    After ``patience`` results without a new best, ``stalled`` of the proposals are fresh draws instead of ``explore``.
    It is done when ``tries`` ideas in a row were old ones.
    """

    origin = "beam"

    def __init__(
        self,
        space: SearchSpace,
        rng: Random,
        width: int = 6,
        patience: int = 40,
        explore: float = 0.06,
        stalled: float = 0.4,
        pairs: float = 0.15,
        append: float = 0.04,
        tries: int = 200,
    ) -> None:
        self.space, self.rng, self.width, self.patience, self.tries = space, rng, width, patience, tries
        self.explore, self.stalled, self.pairs, self.append = explore, stalled, pairs, append
        self._entries: dict[str, _Entry] = {}
        self._beam: list[str] = []
        self._untraced: dict[str, float | None] = {}
        self._retraced: set[str] = set()
        self._best_s = math.inf
        self._seen: set[str] = set()
        self._told: set[str] = set()
        self._moves: dict[str, _Move] = {}
        self._knobs: dict[str, _Knob] = {}
        self._options: dict[tuple[str, int], _Option] = {}
        self._since_best = 0
        self._skipped = 0
        self._done = False

    @property
    def done(self) -> bool:
        return self._done

    @property
    def skipped(self) -> int:
        return self._skipped

    @property
    def beam(self) -> tuple[Schedule, ...]:
        """The schedules that are being changed, fastest first."""
        return tuple(self._entries[text].schedule for text in self._beam)

    def ask(self, n: int) -> list[Proposal]:
        self._retrace_best()
        found: list[Proposal] = []
        while len(found) < n and (schedule := self._next()) is not None:
            found.append(Proposal(schedule, self.origin))
        self._done = len(found) < n
        return found

    def tell(self, proposal: Proposal, measurement: Measurement) -> None:
        schedule, text = proposal.schedule, proposal.schedule.text
        self._seen.add(text)
        if text in self._told:
            return
        self._told.add(text)
        self._done = False
        ok = measurement.status is Status.OK and measurement.seconds < math.inf
        seconds = max(_CLOCK_TICK_S, measurement.seconds) if ok else None
        better = seconds is not None and seconds < self._best_s
        self._since_best = 0 if better else self._since_best + 1
        if seconds is not None:
            self._best_s = min(self._best_s, seconds)
            self._entries[text] = _Entry(schedule, seconds, len(self._entries))
        if schedule.trace:
            self._take(schedule, text, seconds)
        else:
            self._untraced[text] = seconds

    def _retrace_best(self) -> None:
        """Find the decisions of the fastest stored schedules, once each, where they are faster than the beam's best."""
        best = self._entries[self._beam[0]].seconds if self._beam else math.inf
        for text in self._fastest(self._stored())[:_RETRACED]:
            entry = self._entries[text]
            if text not in self._retraced and entry.seconds < best:
                self._retraced.add(text)
                try:
                    found = retrace(self.space, entry.schedule)
                except IllegalAction:
                    return  # no default to start from
                if found is not None:
                    self._lend_trace(text, found, None)

    def _stored(self) -> Iterator[str]:
        return (text for text, seconds in self._untraced.items() if seconds is not None)

    # ---- learning ----------------------------------------------------------------------------------------------------

    def _take(self, schedule: Schedule, text: str, seconds: float | None) -> None:
        """Learn from a schedule that has a trace; into the beam with it, if it ran."""
        self._learn(schedule, text, seconds)
        if seconds is not None:
            self._beam = self._fastest([*self._beam, text])

    def _fastest(self, texts: Iterable[str]) -> list[str]:
        return sorted(texts, key=lambda t: (self._entries[t].seconds, self._entries[t].order))[: self.width]

    def _learn(self, schedule: Schedule, text: str, seconds: float | None) -> None:
        for d in schedule.trace:
            option = self._option(d.name, d.choice)
            if seconds is None:
                option.failed += 1
            else:
                option.ok += 1
        move = self._moves.pop(text, None)
        if move is None or seconds is None:
            return
        gain = math.log(self._entries[move.parent].seconds / seconds) / max(1, len(move.changes))
        for name, choice in move.changes:
            self._knob(name).gain += max(0.0, gain)
            option = self._option(name, choice)
            option.moves += 1
            option.gain += min(1.0, max(-1.0, gain))

    def _knob(self, name: str) -> _Knob:
        return self._knobs.setdefault(name, _Knob())

    def _option(self, name: str, choice: int) -> _Option:
        return self._options.setdefault((name, choice), _Option())

    # ---- proposing ---------------------------------------------------------------------------------------------------

    def _next(self) -> Schedule | None:
        """One schedule not seen before; None when ``tries`` ideas in a row were old or not legal."""
        misses = 0
        while misses < self.tries:
            # Before it gives up, options that were thought bad get their chance as well.
            idea = self._idea() if 2 * misses < self.tries else self._random(RandomChooser(self.rng))
            if idea is None:
                misses += 1
                continue
            schedule, move = idea
            text = schedule.text
            if text not in self._seen:
                self._seen.add(text)
                self._note(text, move)
                return schedule
            misses += not self._lend_trace(text, schedule, move)
        return None

    def _note(self, text: str, move: _Move | None) -> None:
        if move is not None:
            self._moves[text] = move
            for name, _ in move.changes:
                self._knob(name).tries += 1

    def _lend_trace(self, text: str, schedule: Schedule, move: _Move | None) -> bool:
        """Learn from a schedule that was told without a trace, now that a sample printed it; whether it was one."""
        if text not in self._untraced or not schedule.trace:
            return False
        seconds = self._untraced.pop(text)
        if seconds is not None:
            self._entries[text].schedule = schedule
        self._note(text, move)
        self._take(schedule, text, seconds)
        return True

    def _idea(self) -> _Idea | None:
        """A schedule, perhaps an old one; None when the draw was not legal."""
        draw = self.rng.random()
        fresh = self.stalled if self._since_best > self.patience else self.explore
        if not self._entries or draw < fresh:
            return self._random()
        if draw < fresh + self.append:
            return self._extended()
        scored = sorted(self._scored(), key=lambda s: s[0], reverse=True)
        if not scored:
            return self._extended() if self.rng.random() < 0.2 else self._random()
        _, text, change = scored[0]
        entry = self._entries[text]
        entry.tried.add(change)
        if self.rng.random() < self.pairs and (second := self._second(scored, text, change)) is not None:
            entry.tried.discard(change)
            return self._changed(entry, (change, second))
        return self._changed(entry, (change,))

    def _scored(self) -> Iterator[tuple[float, str, _Change]]:
        """(score, parent, change) of every untried move of the beam."""
        for text in self._beam:
            entry = self._entries[text]
            speed = (self._entries[self._beam[0]].seconds / entry.seconds) ** 2
            for d in entry.schedule.trace:
                worth = self._knob(d.name).expected * speed
                for choice in _others(d):
                    if (d.name, choice) not in entry.tried:
                        near = 1.0 / (1.0 + 0.25 * (abs(choice - d.choice) - 1))
                        jitter = self.rng.uniform(0.8, 1.0)
                        yield worth * near * jitter * self._option(d.name, choice).factor, text, (d.name, choice)

    def _second(self, scored: list[tuple[float, str, _Change]], text: str, change: _Change) -> _Change | None:
        """Another decision to change along with the first: one of the best few of the same parent."""
        others = [c for _, t, c in scored if t == text and c[0] != change[0]][:8]
        return self.rng.choice(others) if others else None

    def _changed(self, entry: _Entry, changes: tuple[_Change, ...]) -> _Idea | None:
        choices = {d.name: d.choice for d in entry.schedule.trace} | dict(changes)
        try:
            return self.space.sample(TraceChooser(choices)), _Move(entry.schedule.text, changes)
        except IllegalAction:
            self._skipped += 1
            for name, choice in changes:
                self._option(name, choice).failed += 1
            return None

    def _random(self, chooser: Chooser | None = None) -> _Idea | None:
        """A fresh draw, by what is known of the options; every other time with half of its decisions at defaults."""
        if chooser is None:
            chooser = _InformedChooser(self.rng, 0.5 if self.rng.random() < 0.5 else 0.0, self._options)
        try:
            return self.space.sample(chooser), None
        except IllegalAction:
            self._skipped += 1
            return None

    def _extended(self) -> _Idea | None:
        """One of the fastest schedules, with a trace or without, with one more legal action."""
        entry = self._entries[self.rng.choice(self._fastest([*self._beam, *self._stored()]))]
        if entry.appended is None:
            try:
                entry.appended = list(self.space.actions(entry.schedule))
            except IllegalAction:
                entry.appended = []
            self.rng.shuffle(entry.appended)
        if not entry.appended:
            return None
        return Schedule((*entry.schedule.actions, entry.appended.pop())), _Move(entry.schedule.text)


def _others(d: Decision) -> Iterator[int]:
    """The options not taken, the nearest first."""
    for distance in range(1, d.options):
        for choice in (d.choice + distance, d.choice - distance):
            if 0 <= choice < d.options:
                yield choice
