"""References that the candidates of each kernel are timed in turns with, and the seconds that each
stands for.

    default schedule, sound       the first reference; it stands for what it took
    a candidate, twice as fast    the next one; it stands for ratio x what the one before stood for

Rows of one kernel are ranked by ratio x standing seconds, so that rows of different minutes, and of
different references, compare. What the first reference took in its moment is a factor that all of
them share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tunegrad.devices import Beside, CompiledCandidate
from tunegrad.trial import Measurement, Trial

__all__ = ["References", "standing"]

_RENEWED = 0.5
"""A reference is timed as often as its candidates: one of twice the time would take two thirds of
all timing.
"""


@dataclass(slots=True)
class References:
    """The reference of each kernel, by key. Mutable: it learns from every measurement."""

    _found: dict[str, Beside] = field(default_factory=dict)

    def of(self, key: str) -> Beside | None:
        """The reference that a candidate of a kernel is timed beside; None for the first one."""
        return self._found.get(key)

    def stand(self, key: str, compiled: CompiledCandidate, seconds: float) -> None:
        """A program that was found sound before stands for what it took then."""
        self._found[key] = Beside(compiled, seconds)

    def learn(self, key: str, compiled: CompiledCandidate, measurement: Measurement) -> None:
        """A candidate was measured."""
        held = self._found.get(key)
        if measurement.ran and (held is None or measurement.seconds <= _RENEWED * held.seconds):
            self._found[key] = Beside(compiled, measurement.seconds)


def standing(trials: Sequence[Trial]) -> Trial | None:
    """The reference that the rows of a kernel ended with: its own row says what it stands for.

    Of rows that were timed alone the first one that ran, which is a default's as a rule; None where
    nothing ran.
    """
    ran = [t for t in trials if t.measurement.ran]
    beside = [t.measurement.reference_program for t in ran if t.measurement.reference_samples_s]
    held = [t for t in ran if beside and t.program_hash == beside[-1]]
    return next(iter(held or ran), None)
