"""Sums up the rows: geometric means per group, the worst rows, and the targets that are met."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.rows import Row
from benchmarks.targets import TARGETS, Target
from benchmarks.workloads import SUITES, group_of

__all__ = ["Verdict", "geomeans", "judge", "speedup", "summary"]

_TIE = 0.03
"""Gaps below this share are ties: a target missed by less is named as one."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One target and the rows there are: how many of its workloads, their geometric mean, the worst
    of them.

    ``passed`` is None when a workload of the target has no figure and those that have one do not
    already fail it.
    """

    target: Target
    measured: int
    geomean: float
    worst: float
    worst_row: str
    passed: bool | None


def speedup(row: Row, peer: str = "") -> float | None:
    """The time of ``peer`` (empty: the fastest) over ours: above 1 is faster; None without both
    figures.
    """
    best = row.best_peer
    peer_ms = row.peers.get(peer) if peer else None if best is None else best[1]
    return None if peer_ms is None or row.ours_ms is None else peer_ms / row.ours_ms


def geomeans(rows: Sequence[Row]) -> dict[str, tuple[int, float]]:
    """(rows, geometric mean of their speed-ups) of each group that has a figure, in the order of
    the suites.
    """
    found: dict[str, list[float]] = {}
    for row in rows:
        if (ratio := speedup(row)) is not None:
            found.setdefault(group_of(row.workload), []).append(ratio)
    order = [group for group in SUITES if group in found]
    return {group: (len(found[group]), statistics.geometric_mean(found[group])) for group in order}


def judge(target: Target, rows: Sequence[Row]) -> Verdict | None:
    """The verdict on one target; None when none of its workloads has a figure."""
    by_name: Mapping[str, Row] = {row.workload: row for row in rows}
    ratios = {
        name: ratio
        for name in target.workloads
        if name in by_name and (ratio := speedup(by_name[name], target.peer)) is not None
    }
    if not ratios:
        return None
    mean = statistics.geometric_mean(ratios.values())
    worst_row = min(ratios, key=lambda name: ratios[name])
    worst, whole = ratios[worst_row], len(ratios) == len(target.workloads)
    failed = worst < target.each or (whole and mean < target.geomean)
    return Verdict(
        target, len(ratios), mean, worst, worst_row, False if failed else True if whole else None
    )


def summary(rows: Sequence[Row]) -> str:
    """Lines to read; empty when no row has both our figure and a peer's."""
    means = geomeans(rows)
    if not means:
        return ""
    lines = ["best peer / ours (above 1 is faster), geometric mean:"]
    for group, (count, mean) in means.items():
        lines.append(f"  {group:<14}{mean:5.2f}  of {count} rows; worst {_worst(rows, group)}")
    called = [row.called_ratio for row in rows if row.called_ratio]
    if called:
        mean = 1.0 / statistics.geometric_mean(called)
        lines.append(f"  {'as called':<14}{mean:5.2f}  of {len(called)} rows: both through Python")
    lines.append("targets:")
    lines += [
        "  " + _line(verdict) for target in TARGETS if (verdict := judge(target, rows)) is not None
    ]
    return "\n".join(lines)


def _worst(rows: Sequence[Row], group: str) -> str:
    ratios = {row.workload: ratio for row in rows if (ratio := speedup(row)) is not None}
    name = min((n for n in ratios if group_of(n) == group), key=lambda n: ratios[n])
    return f"{ratios[name]:.2f} ({name})"


def _line(verdict: Verdict) -> str:
    t = verdict.target
    asked = [f"geometric mean >= {t.geomean:g}"] if t.geomean else []
    asked += [f"each >= {t.each:g}"] if t.each else []
    share = f"{verdict.measured} of {len(t.workloads)} rows"
    found = f"mean {verdict.geomean:.2f}, worst {verdict.worst:.2f} ({verdict.worst_row}), {share}"
    against = f" of {t.peer}" if t.peer else ""
    return (
        f"{_word(verdict):<12}{t.name}: {' and '.join(asked)}{against}: {found}; reach for "
        f"{t.reach_for}"
    )


def _word(verdict: Verdict) -> str:
    if verdict.passed is None:
        return "so far ok"
    if verdict.passed:
        return "pass"
    t = verdict.target
    near = verdict.worst >= t.each * (1 - _TIE) and (verdict.geomean >= t.geomean * (1 - _TIE))
    return "FAIL (tie)" if near else "FAIL"
