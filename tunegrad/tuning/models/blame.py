"""Search for the challenger that ended a race: found by halves, and believed when it fails alone,
twice.

    a b c d e f g h  the race failed
    a b c d          runs through  -->  e f g h    (not tried together: the last word
                                                    is a try of one alone)
            e f      fails         -->  e f
            e        runs through  -->  f
              f      fails, and fails again  -->  f
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tunegrad.errors import CandidateFailure

__all__ = ["culprit"]

_S = TypeVar("_S")


def culprit(
    suspects: Sequence[_S], fails: Callable[[Sequence[_S]], CandidateFailure | None]
) -> tuple[_S, CandidateFailure] | None:
    """The suspect that fails alone, twice, with its failure; None where none does.

    ``fails`` runs the race, in a fresh process, with the incumbents and those suspects. About
    log2(n) + 2 races.
    """
    left = list(suspects)
    while len(left) > 1:
        half = left[: len(left) // 2]
        left = half if fails(half) is not None else left[len(half) :]
    if not left or fails(left) is None:
        return None
    failure = fails(left)
    return None if failure is None else (left[0], failure)
