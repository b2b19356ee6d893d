"""Values of a race: its choices and their results, and the track that it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tunegrad.errors import CandidateCrashed, CandidateFailure, CandidateTimeout, WrongResult
from tunegrad.search import Comparison

__all__ = [
    "AT_ONCE",
    "FAULTS",
    "FEWEST_TURNS",
    "HEAT_TURNS",
    "PROOF_TURNS",
    "TOTAL",
    "Choice",
    "Met",
    "Pair",
    "Track",
]

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
A_contra = TypeVar("A_contra", contravariant=True)

AT_ONCE = 8
"""Alternatives in a heat: more of them are seconds apart from what stands beside them."""

HEAT_TURNS, PROOF_TURNS, FEWEST_TURNS = 4, 12, 5
"""Turns of a heat, of one look at a proof, and of the only look where there is no time for more: at
least 9 are needed to be sure at one of three looks, 5 at the only one.
"""

TOTAL = ""
"""The key of what a whole run takes, where a track says it."""

FAULTS = (CandidateCrashed, CandidateTimeout, WrongResult)
"""Failures of what compiled: its process ends, it hangs, or computes something else."""

Pair = tuple[Sequence[float], Sequence[float]]
"""Seconds, turn by turn, of what stands and of an alternative."""


@dataclass(frozen=True, slots=True)
class Choice(Generic[A]):
    """An incumbent, and the alternatives that may take its place, most hopeful first."""

    key: str
    stands: A
    others: tuple[A, ...]


@dataclass(frozen=True, slots=True)
class Met(Generic[A_co]):
    """The alternative that came nearest, and what was found of it: it takes the place where that is
    ``promoted``.
    """

    alternative: A_co
    comparison: Comparison
    samples: Pair

    @property
    def won(self) -> bool:
        """True when it is proved to be faster."""
        return self.comparison.promoted


class Track(Protocol[A_contra]):
    """The place where alternatives run: whole models, or kernels alone.

    ``most`` run at once, what stands not counted.
    """

    @property
    def most(self) -> int:
        """See the class."""

    def ready(
        self, stands: Mapping[str, A_contra], lineups: Sequence[Mapping[str, A_contra]]
    ) -> None:
        """Make what ``turns`` will run. Raises as that does."""

    def turns(
        self, stands: Mapping[str, A_contra], lineups: Sequence[Mapping[str, A_contra]], rounds: int
    ) -> list[dict[str, Pair]]:
        """Seconds of each alternative of each lineup, by choice (and ``TOTAL``), beside those of
        the incumbent in the same turns.

        Without those that can not be made. Raises one of ``FAULTS`` for what one of them did, and
        CandidateFailure where what stands can not be made.
        """

    def fresh(self) -> None:
        """Run in a fresh process from now on: other memory, code at other addresses."""

    def blame(self, key: str, alternative: A_contra, failure: CandidateFailure) -> None:
        """An alternative ended a race, alone and twice."""
