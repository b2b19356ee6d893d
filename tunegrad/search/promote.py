"""Whether a challenger replaces an incumbent: only when a test of samples taken in turns says that it is faster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from tunegrad.errors import InternalError

__all__ = ["LEAST_EFFECT", "Verdict", "decide"]

LEAST_EFFECT = 0.005
"""A challenger whose median is not at least this part faster is a tie, however sure the test is."""

_TESTS = 2
"""Of which the surer one speaks, so that its p-value counts twice (Bonferroni)."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a test. ``ratio`` is challenger's over incumbent's time as it sees them; ``n`` counts the turns.

    ``undecided``: the challenger is ahead by the least effect, and more samples may prove it.
    """

    promoted: bool
    p_value: float
    ratio: float
    n: int
    test: str
    undecided: bool


def decide(
    incumbent_samples: Sequence[float],
    challenger_samples: Sequence[float],
    alpha: float = 0.01,
    least_effect: float = LEAST_EFFECT,
) -> Verdict:
    """The surer of two tests that the challenger takes less, one-sided, and by the least effect at least.

    Samples are in seconds, taken in turns: the n-th of both belong together.

    ``mannwhitneyu``  all samples against all: the surer one where each is disturbed for itself
    ``wilcoxon``      signed ranks of the ratios within turns: where the machine is in one state for a while, in another
                      for the next, so that both are met alike

    Ties keep the incumbent; so do samples too few to be sure (below 5 turns at ``alpha`` 0.01). Raises InternalError
    for samples that are not as many of each, or empty, not finite or negative. Mann and Whitney, "On a test of whether
    one of two random variables is stochastically larger than the other", 1947; Wilcoxon, "Individual comparisons by
    ranking methods", 1945. No normal distribution is assumed, and one outlier counts as one rank.
    """
    for name, samples in (("incumbent", incumbent_samples), ("challenger", challenger_samples)):
        if not samples or not all(math.isfinite(s) and s > 0.0 for s in samples):
            raise InternalError(f"{name} samples {tuple(samples)!r}: there must be some, finite and above 0")
    n = len(incumbent_samples)
    if n != len(challenger_samples):
        raise InternalError(f"{n} incumbent and {len(challenger_samples)} challenger samples: they are no turns")
    from scipy.stats import mannwhitneyu, wilcoxon

    ratios = [c / i for i, c in zip(incumbent_samples, challenger_samples, strict=True)]
    logs = [math.log(r) for r in ratios]
    apart = median(challenger_samples) / median(incumbent_samples)
    tests = [
        (float(mannwhitneyu(challenger_samples, incumbent_samples, alternative="less").pvalue), apart, "mannwhitneyu"),
        (float(wilcoxon(logs, alternative="less").pvalue) if any(logs) else 1.0, median(ratios), "wilcoxon"),
    ]
    p_value, ratio, test = min(tests, key=lambda t: (t[1] > 1.0 - least_effect, t[0]))
    p_value = min(1.0, _TESTS * p_value)
    ahead, sure = ratio <= 1.0 - least_effect, p_value < alpha
    return Verdict(ahead and sure, p_value, ratio, n, test, ahead and not sure)
