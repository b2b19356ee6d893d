"""Protocols at the edges of a search: a space to draw from, a searcher to ask, a measurer to time
with, a store to keep trials.

    Searcher.ask(n) --> Proposals --> Measurer.measure --> Measured --> TrialStore.add
           ^                                                                 |
           +-------------------------- Searcher.tell ------------------------+

A search knows no hardware and no file: the devices and the store are handed in, and only have to
look like these.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from tunegrad.ir.kernel import Kernel
from tunegrad.opts import Action, Chooser, Schedule
from tunegrad.trial import Fingerprint, Measured, Measurement, Policy, Trial

__all__ = ["Measured", "Measurer", "Proposal", "Results", "SearchSpace", "Searcher", "TrialStore"]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A schedule to try, and its origin: default, beam, random, seed ..."""

    schedule: Schedule
    origin: str


class Results:
    """The results of one call of a measurer, in the order of its schedules. Mutable: what was read
    is gone.

    These are measured as they are read. A subclass may measure many ``at_once``: then they are
    waited for together, and committed as one.
    """

    at_once = False

    def __init__(self, found: Iterable[Measured | None]) -> None:
        self._found = iter(found)

    def __iter__(self) -> Iterator[Measured | None]:
        return self

    def __next__(self) -> Measured | None:
        return next(self._found)

    def wait(self) -> None:
        """Return once every result that is measured at once is there."""

    def arrived(self) -> Sequence[Measured | None]:
        """Results that can be read without waiting, in order; None for those not there yet."""
        return ()

    def close(self) -> None:
        """Give up what was not read; a measurer that works ahead stops."""
        if isinstance(self._found, Generator):
            self._found.close()


class SearchSpace(Protocol):
    """The schedules of one kernel; ``tunegrad.opts.Space`` is one."""

    version: int

    def sample(self, chooser: Chooser) -> Schedule:
        """The schedule of a chooser's answers; IllegalAction when they do not go together."""

    def defaults(self) -> tuple[Schedule, ...]:
        """Heuristic schedules, best guess first."""

    def actions(self, schedule: Schedule) -> Iterator[Action]:
        """Legal single steps to append, in a fixed order; IllegalAction if the schedule is not."""


class Searcher(Protocol):
    """Proposes schedules and learns from what came of them.

    One conformance suite holds every searcher to this.

    - The text of a schedule is its identity. No text is proposed twice, and none that was told.
    - Samples that are not legal are skipped and counted in ``skipped``; they never raise.
    - Failures are data: a proposal told with any status is a normal event, and asking goes on.
    - Same space, same seed and same calls give the same proposals, in another process with another
      hash seed too: no clock, no global random draw, no order of a set is read.
    - Trials that it did not propose may be told at any time (defaults, seeds, a resumed store),
      with or without a trace. What was asked need not be told: a program that is known already has
      nothing to tell.
    """

    @property
    def done(self) -> bool:
        """True after an ask that found nothing new.

        What is told later may give new ideas, and then it is False again.
        """

    @property
    def skipped(self) -> int:
        """Samples so far that were not legal."""

    def ask(self, n: int) -> list[Proposal]:
        """At most ``n`` schedules never seen before, most promising first.

        Fewer only when no more were found.
        """

    def tell(self, proposal: Proposal, measurement: Measurement) -> None:
        """Report the measurement of a schedule. Telling the same text again changes nothing."""


class Measurer(Protocol):
    """Compiles, verifies and times schedules of a kernel.

    It never raises for what a candidate does.
    """

    def measure(
        self, kernel: Kernel, schedules: Sequence[Schedule], best_s: float, known: Collection[str]
    ) -> Iterable[Measured | None]:
        """One result per schedule, in order; None where its program is in ``known`` or came earlier
        in the batch.

        ``best_s`` is the time to beat: clear losers may be stopped early. The caller commits each
        result before it takes the next, so an implementation yields each as it is there. Several
        calls may be open at once, and are read one after the other in the order of the calls: one
        with many machines starts at the call, one with a single machine may compile from then on,
        and measures when its results are asked for. ``Results`` are closed where they are not read
        to their end.
        """


class TrialStore(Protocol):
    """The part of a store that a search needs; ``tunegrad.db.Store`` is one."""

    def add(self, trial: Trial) -> int:
        """Commit one trial before returning. One that is stored already stays as it is."""

    def together(self) -> AbstractContextManager[None]:
        """Commit the trials that the block adds at its end, all at once or none of them."""

    def trials(
        self,
        kernel_key: str,
        fingerprint: Fingerprint | None = None,
        policy: Policy | None = None,
        without: Collection[str] = (),
    ) -> list[Trial]:
        """The trials of a kernel on this machine and under this policy, oldest first.

        It is as if the sessions in ``without`` had measured nothing.
        """
