"""The record of a searcher that learns from decisions: texts that are taken, and the result of each
list of decisions.

    tell --> take   new?  with a trace --> rows, to learn from
                          without      --> set aside, until a sample prints the same text
    ask  --> sample --> claim  a text that was not seen before, once
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from tunegrad.errors import IllegalAction
from tunegrad.opts import Chooser, Schedule, TraceChooser
from tunegrad.trial import Measurement

from ..protocols import Proposal, SearchSpace

_CLOCK_TICK_S = 1e-9
"""No time is taken to be less, so that its logarithm exists."""

_RETRACED = 3
"""Number of the fastest schedules without a trace that are traced, some hundred samples each."""


def log_seconds(measurement: Measurement) -> float:
    """The logarithm of what it took; infinity where it did not run."""
    return math.log(max(_CLOCK_TICK_S, measurement.seconds)) if measurement.ran else math.inf


Traces = dict[str, Schedule | None]
"""Schedules with their decisions, by text; None where they were not found."""


@dataclass(frozen=True, slots=True)
class Row:
    """A schedule that was told, and the logarithm of its seconds; infinity where it failed."""

    schedule: Schedule
    log_s: float

    @property
    def ran(self) -> bool:
        return self.log_s < math.inf

    @property
    def choices(self) -> dict[str, int]:
        """The option taken of each decision."""
        return {d.name: d.choice for d in self.schedule.trace}


class Ledger:
    """Texts seen, rows told, samples skipped.

    Mutable; ``rows`` only grows, so that a learner can read on.

    Schedules told without a trace (from a store) count once a sample prints the same text.
    For the fastest of them such a sample is looked for, by ``retrace_best``; ledgers of one space
    may share ``traces``, what it found.
    """

    def __init__(self, space: SearchSpace, traces: Traces | None = None) -> None:
        self.space = space
        self._traces: Traces = {} if traces is None else traces
        self.rows: list[Row] = []
        self.skipped = 0
        self.best = math.inf
        self._seen: set[str] = set()
        self._told: set[str] = set()
        self._untraced: dict[str, Row] = {}
        self._retraced: set[str] = set()

    def take(self, proposal: Proposal, measurement: Measurement) -> bool:
        """Note what came of a proposal; whether its text was not told before."""
        schedule, text = proposal.schedule, proposal.schedule.text
        self._seen.add(text)
        if text in self._told:
            return False
        self._told.add(text)
        row = Row(schedule, log_seconds(measurement))
        if schedule.trace:
            self._add(row)
        else:
            self._untraced[text] = row
        return True

    def sample(self, chooser: Chooser) -> Schedule | None:
        """The schedule of a chooser's answers; None, and counted, where they are not legal."""
        try:
            return self.space.sample(chooser)
        except IllegalAction:
            self.skipped += 1
            return None

    def claim(self, schedule: Schedule) -> bool:
        """Return True for a new text; it is taken from then on.

        An old one may give its trace to a told schedule.
        """
        text = schedule.text
        if text not in self._seen:
            self._seen.add(text)
            return True
        if schedule.trace and (row := self._untraced.pop(text, None)) is not None:
            self._add(Row(schedule, row.log_s))
        return False

    def known(self, schedule: Schedule) -> bool:
        """True when the text of a schedule was seen."""
        return schedule.text in self._seen

    def fastest(self, count: int) -> list[Row]:
        """The fastest rows with a trace that ran, fastest first, earlier first among equals."""
        return sorted((r for r in self.rows if r.ran), key=lambda r: r.log_s)[:count]

    def telling(self, count: int) -> list[Row]:
        """The ``count`` fastest rows, failures last, and the ``count`` latest, in order told."""
        rows = self.rows
        latest = range(max(0, len(rows) - count), len(rows))
        fastest = sorted(range(len(rows)), key=lambda i: rows[i].log_s)[:count]
        return [rows[i] for i in sorted({*latest, *fastest})]

    def untraced(self) -> list[Row]:
        """The rows without a trace that ran, fastest first; earlier ones first among equals."""
        return sorted((r for r in self._untraced.values() if r.ran), key=lambda r: r.log_s)

    def retrace_best(self) -> None:
        """Look once for decisions of schedules told without, where they beat all with a trace."""
        best = self.best
        for row in self.untraced()[:_RETRACED]:
            text = row.schedule.text
            if text in self._retraced or row.log_s >= best:
                continue
            self._retraced.add(text)
            try:
                if text not in self._traces:
                    self._traces[text] = retrace(self.space, row.schedule)
            except IllegalAction:
                return  # no default to start from
            if (schedule := self._traces[text]) is not None:
                self.claim(schedule)

    def _add(self, row: Row) -> None:
        self.rows.append(row)
        self.best = min(self.best, row.log_s)


def retrace(space: SearchSpace, schedule: Schedule, samples: int = 400) -> Schedule | None:
    """The schedule with the decisions that print it; None when ``samples`` draws did not find them.

    Goes down the decisions in order, keeping of each the option whose schedule has most actions in
    common with the one that is looked for, until a whole round brings it no nearer. Nothing is
    random.
    """
    target, text = Counter(map(str, schedule.actions)), schedule.text
    found = space.defaults()[0]
    best, done, left = _shared(target, found), 0, samples
    while found.text != text and done < len(found.trace):
        decision = found.trace[done]
        done += 1
        for option in range(decision.options):
            if option == decision.choice:
                continue
            if left == 0:
                return None
            left -= 1
            try:
                near = space.sample(
                    TraceChooser({d.name: d.choice for d in found.trace} | {decision.name: option})
                )
            except IllegalAction:
                continue
            shared = _shared(target, near)
            if near.text == text:
                return near
            if shared > best:
                found, best = near, shared
                # A change can open or spoil others, before and after it.
                done = done if done < len(found.trace) else 0
    return found if found.text == text else None


def _shared(target: Counter[str], schedule: Schedule) -> tuple[int, int]:
    """Actions in common, then how few others there are."""
    mine = Counter(map(str, schedule.actions))
    return (target & mine).total(), -(mine - target).total()
