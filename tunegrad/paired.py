"""Ratios of paired times, and their intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import comb, sqrt
from statistics import median

import numpy as np
from numpy.typing import NDArray

Interval = tuple[float, float]
"""The ends between which a figure lies, at 95 %."""

_LEVEL, _Z = 0.95, 1.96
_LEAST = 6


def paired_gain(before_s: Sequence[float], after_s: Sequence[float]) -> float | None:
    """The median of ``before_s[i] / after_s[i]``, as in ``gain_interval``; None without pairs."""
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


def signed_rank_p(differences: Sequence[float]) -> float:
    """Return how probable positive ranks of so small a sum are, where each sign is a coin's.

    Exact for any number, ties and zeros: zeros are left out, equal sizes share the mean of their
    ranks, and the sums of all 2^n choices of signs are counted rank by rank (Wilcoxon, "Individual
    comparisons by ranking methods", 1945). 1.0 where nothing differs.
    """
    kept = np.array([d for d in differences if d])
    sizes = np.abs(kept)
    below = (sizes[:, None] > sizes).sum(axis=1)
    ranks = 2 * below + (sizes[:, None] == sizes).sum(axis=1) + 1  # doubled: a shared one is half
    return float(min(1.0, _rank_sums(ranks)[: ranks[kept > 0].sum() + 1].sum()))


def shift_interval(differences: Sequence[float]) -> tuple[float, Interval | None]:
    """The middle of the differences and its interval at 95 %; None below six of them.

    Of the means of all pairs (Hollander and Wolfe, "Nonparametric Statistical Methods", 3.2 and
    3.3), cut off on both sides where the signed-rank test would no longer reject it.
    """
    n = len(differences)
    means = sorted((differences[i] + differences[j]) / 2 for i in range(n) for j in range(i, n))
    cut = int((_rank_sums(range(1, n + 1)).cumsum() <= (1.0 - _LEVEL) / 2).sum())
    return median(means), ((means[cut - 1], means[-cut]) if cut else None)


def _rank_sums(ranks: Iterable[int]) -> NDArray[np.float64]:
    """Probability of each sum of ranks, of which each is taken or not."""
    chances = np.ones(1)
    for rank in ranks:
        chances = np.pad(chances, (0, rank)) / 2 + np.pad(chances, (rank, 0)) / 2
    return chances
