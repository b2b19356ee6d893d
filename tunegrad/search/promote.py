"""Whether a challenger replaces an incumbent: only when a two-sample test says that it is faster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from tunegrad.errors import InternalError

__all__ = ["LEAST_EFFECT", "TEST", "Evidence", "decide"]

LEAST_EFFECT = 0.005
"""A challenger whose median is not at least this part faster is a tie, however sure the test is."""

TEST = "mannwhitneyu"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The outcome of a test. ``ratio`` is challenger's over incumbent's median, ``n`` the smaller sample's size.

    ``undecided``: the challenger is ahead by the least effect, and more samples may prove it.
    """

    promoted: bool
    p_value: float
    ratio: float
    n: int
    undecided: bool = False


def decide(
    incumbent_samples: Sequence[float],
    challenger_samples: Sequence[float],
    alpha: float = 0.01,
    least_effect: float = LEAST_EFFECT,
) -> Evidence:
    """One-sided Mann-Whitney U test that the challenger's times are smaller, and by the least effect at least.

    Samples are in seconds, interleaved, so that drift of the machine meets both alike. Ties keep the incumbent; so
    do samples too few to be sure (below 5 each at ``alpha`` 0.01). Raises InternalError for samples that are empty,
    not finite or negative. Mann and Whitney, "On a test of whether one of two random variables is stochastically
    larger than the other", 1947; no normal distribution is assumed, and one outlier counts as one rank.
    """
    for name, samples in (("incumbent", incumbent_samples), ("challenger", challenger_samples)):
        if not samples or not all(math.isfinite(s) and s > 0.0 for s in samples):
            raise InternalError(f"{name} samples {tuple(samples)!r}: there must be some, finite and above 0")
    from scipy.stats import mannwhitneyu

    ratio = median(challenger_samples) / median(incumbent_samples)
    p_value = float(mannwhitneyu(challenger_samples, incumbent_samples, alternative="less").pvalue)
    ahead, sure = ratio <= 1.0 - least_effect, p_value < alpha
    n = min(len(incumbent_samples), len(challenger_samples))
    return Evidence(ahead and sure, p_value, ratio, n, ahead and not sure)
