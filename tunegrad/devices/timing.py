"""How many samples to take, and what they say: adaptive repeats and order-statistic intervals.

The sampler is a function from (samples, inner repeats) to seconds, so all of this is tested with no clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from statistics import median

from tunegrad.trial import Policy

__all__ = ["QUIET", "inner_repeats", "relative_interval", "sample_adaptively", "sample_quietly"]

Sampler = Callable[[int, int], Sequence[float]]

_SHORT_S = 20e-6
_SAMPLE_S = 40e-6
_MAX_INNER = 4096

_TRIES = 4
_TRYING = 0.3
"""Launches before something is losing, and the part of its budget that they may take. The first ones find caches, and
threads, as what ran before them left them: a kernel of 12 us took 280 at first.
"""

QUIET = 1.15
"""Moments in which a fixed piece of arithmetic takes at most this much longer than it can are undisturbed."""


def inner_repeats(once_s: float, alone: bool) -> int:
    """Launches per sample: one, or enough to fill 40 us where one takes under 20 us; one where they stand ``alone``."""
    if alone or once_s >= _SHORT_S:
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
    alone: bool = False,
    promising_s: float = math.inf,
) -> tuple[float, ...]:
    """Samples in seconds until the interval is under ``policy.tolerance``, the budget is spent, or it is losing.

    ``alone``: something is evicted before each sample, so that a sample is one launch, whatever ran before it; two are
    enough where both took longer than ``promising_s``. Losing: every sample so far took longer than ``losing_s``, and
    there were several, but of a long one two. Unless ``alone``, the first launch calibrates and is kept only where
    nothing follows it.
    """
    start = clock()
    first = list(sampler(1, 1))
    while min(first) > losing_s and len(first) < _TRIES:
        if len(first) > 1 and clock() - start > _TRYING * policy.budget_s:
            break
        first.extend(sampler(1, 1))
    if clock() - start > policy.budget_s or min(first) > losing_s:
        return tuple(first[1:] if len(first) == _TRIES else first)
    inner = inner_repeats(min(first), alone)
    samples = first[-1:] if alone else []
    if alone and policy.max_samples > 1:
        samples.extend(sampler(1, 1))
        if min(samples) > promising_s:
            return tuple(samples)
    while len(samples) < policy.max_samples:
        step = max(1, policy.min_samples - len(samples), len(samples) // 2)
        samples.extend(sampler(min(step, policy.max_samples - len(samples)), inner))
        if clock() - start > policy.budget_s:
            break
        if min(samples) > losing_s or relative_interval(samples, policy.statistic) < policy.tolerance:
            break
    return tuple(samples)


def sample_quietly(
    sampler: Sampler,
    slowness: Callable[[], float],
    policy: Policy,
    losing_s: float = math.inf,
    promising_s: float = math.inf,
    wait_s: float = 0.0,
    clock: Callable[[], float] = time.monotonic,
    alone: bool = False,
) -> tuple[float, ...]:
    """As ``sample_adaptively``; but what may be good is not judged by a disturbed moment.

    ``slowness`` says how much longer a fixed piece of arithmetic takes just now than it can. Where that disturbed the
    samples, and they would be at most ``promising_s`` without it, samples of quiet moments are looked for, one by one,
    for ``wait_s`` seconds at most. Where there are too few, the first ones stand.
    """
    before = slowness()
    samples = sample_adaptively(sampler, policy, losing_s, clock, alone, promising_s)
    slow = max(before, slowness())
    if slow <= QUIET or median(samples) > slow * promising_s:
        return samples
    inner, quiet, end_s = inner_repeats(min(samples), alone), list[float](), clock() + wait_s
    while clock() < end_s and len(quiet) < policy.min_samples:
        if slowness() > QUIET:
            continue
        taken = sampler(1, inner)
        if slowness() <= QUIET:
            quiet.extend(taken)
    return tuple(quiet) if len(quiet) >= policy.min_samples else samples
