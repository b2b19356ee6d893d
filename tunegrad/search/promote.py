"""The test of a promotion: a challenger and the incumbent by samples taken in turns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from tunegrad.errors import InternalError
from tunegrad.paired import signed_rank_p

LEAST_EFFECT = 0.01
"""A challenger whose median ratio is not at least this part below 1 is a tie, however sure the test
is: where a process puts memory and code makes a program seem half a per cent faster.
"""

LOOKS = 3
"""Looks that a comparison may have.

One look in a disturbed quarter of an hour proved 35 of 48 schedules that are 3 to 38 % faster
(decision 0026).
"""

_ALPHA = 0.05
"""Of all looks together that equals are taken for different, spent evenly (Bonferroni)."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome of a test. ``ratio`` is challenger over what stands, the median over ``n`` turns.

    ``undecided``: the challenger is ahead by the least effect, and more samples may prove it.
    """

    promoted: bool
    p_value: float
    ratio: float
    n: int
    test: str
    undecided: bool


def fastest_ratio(stands_s: Sequence[float], challenger_s: Sequence[float]) -> float:
    """Challenger over incumbent, each one's fastest turn: disturbances only slow down."""
    return min(challenger_s) / min(stands_s)


def decide(
    stands_s: Sequence[float], challenger_s: Sequence[float], looks: int = LOOKS
) -> Comparison:
    """Compare a challenger with the incumbent; the challenger is faster where it takes less by the
    least effect, and surely, at one of so many ``looks``.

    Samples are in seconds, taken in turns: the n-th of both belong together. The test is of the
    signed ranks of the logarithms of their ratios, one-sided: what slows down a turn meets both,
    one outlier counts as one rank, and no normal distribution is assumed. Ties keep what stands; so
    do too few turns (below 9 of 3 looks). Raises InternalError for samples that are not as many of
    each, or empty, not finite or not above 0.
    """
    for name, samples in (("standing", stands_s), ("challenger", challenger_s)):
        if not samples or not all(math.isfinite(s) and s > 0.0 for s in samples):
            raise InternalError(
                f"{name} samples {tuple(samples)!r}: there must be some, finite and above 0"
            )
    n = len(stands_s)
    if n != len(challenger_s):
        raise InternalError(
            f"{n} standing and {len(challenger_s)} challenger samples: they are not paired turns"
        )
    logs = [math.log(c / s) for s, c in zip(stands_s, challenger_s, strict=True)]
    p_value = signed_rank_p(logs)
    ratio = median(c / s for s, c in zip(stands_s, challenger_s, strict=True))
    ahead, sure = ratio <= 1.0 - LEAST_EFFECT, p_value < _ALPHA / looks
    return Comparison(ahead and sure, p_value, ratio, n, "wilcoxon", ahead and not sure)
