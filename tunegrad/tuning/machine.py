"""The machine while it measures: what other processes use of it, and the conditions that rows keep.

    /proc/stat of these processors  -  what this process and its workers used  =  others, in CPUs

A machine that others use makes every time worse, and not by the same factor from one moment to the
next; figures of such a session say so. A nightly figure that got worse says little without its
conditions: another compiler, another governor, or a machine that was busy.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np
import psutil

from tunegrad.db import Latency, Properties, Store
from tunegrad.trial import Fingerprint
from tunegrad.version import __version__

from .workload import Workload

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
    """Number of CPUs that ``threads`` threads lack where others use so many; 0 with room."""
    cpus = len(os.sched_getaffinity(0)) if cpus is None else cpus
    lacking = others + min(threads, cpus) - cpus
    return lacking if lacking > _SLACK else 0.0


def busy_text(others: float, threads: int, cpus: int | None = None) -> str:
    """Text about CPUs that others use, for ``threads`` threads; "" if there is room for both."""
    cpus = len(os.sched_getaffinity(0)) if cpus is None else cpus
    if not lacking_cpus(others, threads, cpus):
        return ""
    return f"other processes use {others:.1f} of the {cpus} CPUs"


_CPUS = Path("/sys/devices/system/cpu")

_SOURCE = Path(__file__).parent

_GIT_S = 10.0


def versions(here: Fingerprint) -> Properties:
    """Of tunegrad and its source, the device's compiler, numpy and Python."""
    source = revision()
    return (
        ("compiler", dict(here.fields).get("compiler_version", "unknown")),
        ("numpy", np.__version__),
        ("python", platform.python_version()),
        *((("revision", source),) if source else ()),
        ("tunegrad", __version__),
    )


@cache
def revision(source: Path = _SOURCE) -> str:
    """The Git revision of the tree that this package runs from, 12 digits, ``-dirty`` with changes
    of its own; of a package that was installed from a repository, the revision that pip noted
    (PEP 610). Empty where it is unknown.
    """
    git = ["git", "-C", str(source)]
    try:
        tracked = _said([*git, "ls-files", "--error-unmatch", "__init__.py"])
        return (
            _said([*git, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"])
            if tracked
            else _installed()
        )
    except (OSError, subprocess.SubprocessError):
        return _installed()


def _installed() -> str:
    """The revision that pip installed, where it was told one."""
    try:
        noted = json.loads(distribution("tunegrad").read_text("direct_url.json") or "{}")
        return str(noted.get("vcs_info", {}).get("commit_id", ""))[:12]
    except (PackageNotFoundError, ValueError, AttributeError):
        return ""


def _said(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_S, check=True)
    return done.stdout.strip()


def machine_state(
    cpus: Path = _CPUS, others: float | None = None, device: Properties = ()
) -> Properties:
    """The governor of the processors that this process may use, how many processes want to run,
    and how many of the CPUs ``others`` keep busy, which is looked at where it is not given; with
    them, in the order of their names, what the ``device`` that measures says of itself
    (``Device.state``).

    ``load_1m`` is the mean number of the last minute, this process's own included. Where processors
    have different governors all are named, joined by ``+``; a machine that does not say has
    ``unknown``.
    """
    files = (cpus / f"cpu{n}" / "cpufreq" / "scaling_governor" for n in os.sched_getaffinity(0))
    governors = sorted({_line(f) for f in files})
    found: Properties = (
        ("governor", "+".join(governors)),
        ("load_1m", os.getloadavg()[0]),
        ("others_cpus", round(probed() if others is None else others, 2)),
        *device,
    )
    return tuple(sorted(found))


def _line(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip() or "unknown"
    except (OSError, UnicodeDecodeError):
        return "unknown"


def record_latency(
    store: Store,
    work: Workload,
    here: Fingerprint,
    session: str,
    samples_s: tuple[Sequence[float], Sequence[float]],
    device: Properties = (),
) -> None:
    """Store what a tuned model took, and its default schedules in the same turns; ``device`` is
    what the device said of itself then.
    """
    tuned_s, default_s = map(tuple, samples_s)
    moment_s = time.time()
    store.record_latency(
        Latency(
            work.name,
            work.key,
            "tuned",
            here,
            tuned_s,
            default_s,
            session,
            moment_s,
            versions(here),
            machine_state(device=device),
        )
    )
