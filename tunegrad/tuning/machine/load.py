"""Load of other processes on the processors that this process may use.

    /proc/stat of these processors  -  what this process and its workers used  =  others, in CPUs

A machine that others use makes every time worse, and not by the same factor from one moment to the
next; figures of such a session say so.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import psutil

__all__ = ["CpuUse", "busy_text", "cpu_use", "lacking_cpus", "others_cpus", "probed"]

_PROBE_S = 0.2
_SLACK = 0.25
"""CPUs that others may use beside ours before a machine is called busy: ticks are of 10 ms."""


@dataclass(frozen=True, slots=True)
class CpuUse:
    """At a moment: seconds that processors were busy, and those of them that were ours."""

    moment_s: float
    all_s: float
    own_s: float


def cpu_use() -> CpuUse:
    """Of the processors that this process may use, since the machine started."""
    times = psutil.cpu_times(percpu=True)
    mine = [t for n, t in enumerate(times) if n in os.sched_getaffinity(0)]
    busy_s = sum(sum(t) - t.idle - t.iowait - t.guest - t.guest_nice for t in mine or times)
    me = psutil.Process()
    own_s = 0.0
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.Error):  # it ended: its parent has its time
            own_s += sum(process.cpu_times()[:4])
    return CpuUse(time.monotonic(), busy_s, own_s)


def others_cpus(before: CpuUse, after: CpuUse) -> float:
    """Number of CPUs that others kept busy between two moments, on average; never negative."""
    took_s = after.moment_s - before.moment_s
    if took_s <= 0.0:
        return 0.0
    return max(0.0, (after.all_s - before.all_s) - (after.own_s - before.own_s)) / took_s


def probed(
    seconds: float = _PROBE_S,
    sleep: Callable[[float], None] = time.sleep,
    use: Callable[[], CpuUse] = cpu_use,
) -> float:
    """Number of CPUs that others keep busy now. Takes ``seconds``."""
    before = use()
    sleep(seconds)
    return others_cpus(before, use())


def lacking_cpus(others: float, threads: int, cpus: int | None = None) -> float:
    """Number of CPUs that a process of ``threads`` threads lacks where others use so many; 0 where
    there is room for both.
    """
    cpus = len(os.sched_getaffinity(0)) if cpus is None else cpus
    lacking = others + min(threads, cpus) - cpus
    return lacking if lacking > _SLACK else 0.0


def busy_text(others: float, threads: int, cpus: int | None = None) -> str:
    """Text about the CPUs that others use, for a process of ``threads`` threads; empty where there
    is room for both.
    """
    cpus = len(os.sched_getaffinity(0)) if cpus is None else cpus
    if not lacking_cpus(others, threads, cpus):
        return ""
    return f"other processes use {others:.1f} of the {cpus} CPUs"
