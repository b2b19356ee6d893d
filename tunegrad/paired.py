"""Ratios of paired times, and their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import comb, sqrt
from statistics import median

__all__ = [
    "Interval",
    "gain_interval",
    "paired_gain",
    "shift_chance",
    "shift_interval",
    "unpaired_interval",
]

Interval = tuple[float, float]
"""The ends between which a figure lies, at 95 %."""

_LEVEL, _Z = 0.95, 1.96
_LEAST = 6


def paired_gain(before_s: Sequence[float], after_s: Sequence[float]) -> float | None:
    """The median of ``before_s[i] / after_s[i]``, which ``gain_interval`` is about; None without
    pairs.
    """
    ratios = [b / a for b, a in zip(before_s, after_s, strict=True) if a > 0.0]
    return median(ratios) if ratios else None


def gain_interval(before_s: Sequence[float], after_s: Sequence[float]) -> Interval | None:
    """Interval of the median of ``before_s[i] / after_s[i]``, at 95 %; None below six pairs.

    By order statistics: as many of the ratios are below the true median as coins fall on heads, so
    two of the sorted ratios enclose it with a probability that no distribution has to be assumed
    for (David and Nagaraja, "Order Statistics", 7.1). Samples are in seconds, above 0.
    """
    ratios = sorted(b / a for b, a in zip(before_s, after_s, strict=True) if a > 0.0)
    n, left, outside = len(ratios), 0, 0.0
    for left in range(n // 2):
        outside += 2 * comb(n, left) / 2**n
        if outside > 1.0 - _LEVEL:
            break
    else:
        left = n // 2
    return (ratios[left - 1], ratios[n - left]) if left else None


def unpaired_interval(before_s: Sequence[float], after_s: Sequence[float]) -> Interval | None:
    """Interval of a typical ``after / before``, at 95 %, of samples that were not taken in turns;
    None below six on a side.

    The ratios of all pairs, cut off on both sides where the test of Wilcoxon, Mann and Whitney
    would no longer reject it (Hollander and Wolfe, "Nonparametric Statistical Methods", 4.3), by
    its normal approximation. Samples are in seconds, above 0.
    """
    m, n = len(before_s), len(after_s)
    if min(m, n) < _LEAST:
        return None
    ratios = sorted(a / b for a in after_s for b in before_s)
    cut = int(m * n / 2 - _Z * sqrt(m * n * (m + n + 1) / 12))
    return ratios[max(cut, 0)], ratios[m * n - 1 - max(cut, 0)]


def shift_chance(differences: Sequence[float]) -> float:
    """Probability of differences at least so far above 0 if they were symmetric about 0.

    The exact one-sided signed-rank test (F. Wilcoxon, "Individual Comparisons by Ranking Methods",
    1945): no distribution is assumed, and one wild value counts for one rank. 1 without values.
    """
    ranked = sorted(differences, key=abs)
    below = sum(rank for rank, x in enumerate(ranked, 1) if x <= 0.0)
    return _rank_sums(len(ranked))[below] if ranked else 1.0


def shift_interval(differences: Sequence[float]) -> tuple[float, Interval | None]:
    """The middle of the differences and its interval at 95 %; None below six of them.

    Of the means of all pairs (Hollander and Wolfe, "Nonparametric Statistical Methods", 3.2 and
    3.3), cut off on both sides where the signed-rank test would no longer reject it.
    """
    n = len(differences)
    means = sorted((differences[i] + differences[j]) / 2 for i in range(n) for j in range(i, n))
    cut = sum(p <= (1.0 - _LEVEL) / 2 for p in _rank_sums(n))
    return median(means), ((means[cut - 1], means[-cut]) if cut else None)


def _rank_sums(n: int) -> list[float]:
    """Probabilities that a sum of ranks of 1 to n, each taken or not, is at most its place."""
    ways = [1]
    for rank in range(1, n + 1):
        ways = [
            (ways[s] if s < len(ways) else 0) + (ways[s - rank] if s >= rank else 0)
            for s in range(len(ways) + rank)
        ]
    return [w / 2**n for w in accumulate(ways)]
