"""How many samples to take, and what they say: adaptive repeats and order-statistic intervals.

The sampler is a function from (samples, inner repeats) to seconds, so all of this is tested with no clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from tunegrad.trial import Policy

__all__ = ["inner_repeats", "relative_interval", "sample_adaptively"]

Sampler = Callable[[int, int], Sequence[float]]

_SHORT_S = 20e-6
_SAMPLE_S = 40e-6
_MAX_INNER = 4096


def inner_repeats(once_s: float, cold: bool) -> int:
    """Launches per sample: one, or enough to fill 40 us where one takes under 20 us. A cold sample is one launch."""
    if cold or once_s >= _SHORT_S:
        return 1
    return max(1, min(_MAX_INNER, math.ceil(_SAMPLE_S / max(once_s, 1e-9))))


def relative_interval(samples: Sequence[float], statistic: str = "median") -> float:
    """Half the width of a ~95 % interval of the statistic, over the statistic.

    Median: the order statistics of ranks n/2 +- 1.96*sqrt(n)/2 (no assumption on the distribution); under six samples
    the whole range. Minimum: the gap of the two smallest. Infinity for less than two samples.
    """
    if len(samples) < 2:
        return math.inf
    ordered = sorted(samples)
    if statistic == "min":
        return (ordered[1] - ordered[0]) / ordered[0] if ordered[0] > 0 else math.inf
    n = len(ordered)
    rank = max(0, math.floor((n - 1.96 * math.sqrt(n)) / 2)) if n >= 6 else 0
    middle = 0.5 * (ordered[(n - 1) // 2] + ordered[n // 2])
    return 0.5 * (ordered[n - 1 - rank] - ordered[rank]) / middle if middle > 0 else math.inf


def sample_adaptively(
    sampler: Sampler,
    policy: Policy,
    losing_s: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[float, ...]:
    """Samples in seconds until the interval is under ``policy.tolerance``, the budget is spent, or it is losing.

    Losing: every sample so far, of at least two, took longer than ``losing_s``. The first launch calibrates and is
    kept only where nothing follows it.
    """
    cold = policy.cache == "cold"
    start = clock()
    first = list(sampler(1, 1))
    if first[0] > losing_s:
        first.extend(sampler(1, 1))
    if clock() - start > policy.budget_s or min(first) > losing_s:
        return tuple(first)
    inner = inner_repeats(min(first), cold)
    samples: list[float] = []
    step = max(1, policy.min_samples)
    while True:
        samples.extend(sampler(min(step, policy.max_samples - len(samples)), inner))
        if len(samples) >= policy.max_samples or clock() - start > policy.budget_s:
            break
        if min(samples) > losing_s or relative_interval(samples, policy.statistic) < policy.tolerance:
            break
        step = max(1, len(samples) // 2)
    return tuple(samples)
