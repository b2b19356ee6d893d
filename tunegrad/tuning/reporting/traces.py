"""The best so far over time: of each kernel by source, and of the models as sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf

from tunegrad.trial import Trial

from .records import KernelEntry, Series, Source, Trace

__all__ = ["progress_of", "sources_of", "traces_of"]


def _moments(trials: Sequence[Trial], key: str = "") -> list[Trial]:
    """Trials that ran, of one kernel where given, in the order in which they were measured."""
    ran = (t for t in trials if t.measurement.ran and key in ("", t.kernel_key))
    return sorted(ran, key=lambda t: t.created_s)


def source_of(trial: Trial) -> str:
    """Source of a proposal, without what a file's origin adds."""
    return trial.origin.split(" ", 1)[0] or "unknown"


def progress_of(
    kernels: Sequence[KernelEntry], trials: Sequence[Trial], begun_s: float
) -> tuple[tuple[float, float], ...]:
    """The sum of all kernels' best times so far, from when each has one; kernels of which the
    session measured nothing are left out.
    """
    uses = {k.key: k.uses for k in kernels}
    mine = [t for t in _moments(trials) if t.kernel_key in uses]
    best = dict.fromkeys((t.kernel_key for t in mine), inf)
    points = []
    for t in mine:
        if t.measurement.seconds < best[t.kernel_key]:
            best[t.kernel_key] = t.measurement.seconds
            total_s = sum(uses[key] * seconds for key, seconds in best.items())
            if total_s < inf:
                points.append((t.created_s - begun_s, total_s))
    if points:
        points.append((mine[-1].created_s - begun_s, points[-1][1]))
    return tuple(points)


def traces_of(
    kernels: Sequence[KernelEntry], trials: Sequence[Trial], begun_s: float
) -> tuple[Trace, ...]:
    """A trace per kernel of which the session measured several schedules, in the order of
    ``kernels``.
    """
    found = []
    for k in kernels:
        mine = _moments(trials, k.key)
        if len(mine) < 2:
            continue
        last_s = mine[-1].created_s - begun_s
        first = next((t for t in mine if source_of(t) == "default"), mine[0])
        series = []
        for origin in dict.fromkeys(map(source_of, mine)):
            points = _improvements([t for t in mine if source_of(t) == origin], begun_s)
            series.append(Series(origin, (*points, (last_s, points[-1][1]))))
        found.append(Trace(k.name, k.key, first.measurement.seconds, tuple(series)))
    return tuple(found)


def _improvements(trials: Sequence[Trial], begun_s: float) -> list[tuple[float, float]]:
    points: list[tuple[float, float]] = []
    for t in trials:
        if not points or t.measurement.seconds < points[-1][1]:
            points.append((t.created_s - begun_s, t.measurement.seconds))
    return points


def sources_of(kernels: Sequence[KernelEntry], trials: Sequence[Trial]) -> tuple[Source, ...]:
    """Contribution of each source, those with the most candidates first."""
    asked, failed, better = Counter[str](), Counter[str](), Counter[str]()
    best: dict[str, float] = {}
    for t in sorted(trials, key=lambda t: t.created_s):
        origin = source_of(t)
        asked[origin] += 1
        if not t.measurement.ran:
            failed[origin] += 1
        elif t.measurement.seconds < best.get(t.kernel_key, inf):
            better[origin] += t.kernel_key in best
            best[t.kernel_key] = t.measurement.seconds
    won = Counter(k.origin.split(" ", 1)[0] for k in kernels if k.origin)
    return tuple(
        Source(origin, count, failed[origin], better[origin], won[origin])
        for origin, count in asked.most_common()
    )
