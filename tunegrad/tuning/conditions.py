"""What measured, in which state of the machine: kept with sessions and latencies of models.

A nightly figure that got worse says little without them: another compiler, another governor, or a
machine that was busy.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tunegrad import __version__
from tunegrad.db import Latency, Properties, Store
from tunegrad.trial import Fingerprint

from .busy import probed
from .workload import Workload

__all__ = ["machine_state", "record_latency", "versions"]

_CPUS = Path("/sys/devices/system/cpu")


def versions(here: Fingerprint) -> Properties:
    """Of tunegrad, the device's compiler, numpy and Python."""
    return (
        ("compiler", dict(here.fields).get("compiler_version", "unknown")),
        ("numpy", np.__version__),
        ("python", platform.python_version()),
        ("tunegrad", __version__),
    )


def machine_state(cpus: Path = _CPUS, others: float | None = None) -> Properties:
    """The governor of the processors that this process may use, how many processes want to run,
    and how many of the CPUs ``others`` keep busy, which is looked at where it is not given.

    ``load_1m`` is the mean number of the last minute, this process's own included. Where processors
    have different governors all are named, joined by ``+``; a machine that does not say has
    ``unknown``.
    """
    files = (cpus / f"cpu{n}" / "cpufreq" / "scaling_governor" for n in os.sched_getaffinity(0))
    governors = sorted({_line(f) for f in files})
    return (
        ("governor", "+".join(governors)),
        ("load_1m", os.getloadavg()[0]),
        ("others_cpus", round(probed() if others is None else others, 2)),
    )


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
) -> None:
    """Store what a tuned model took, and its default schedules in the same turns."""
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
            machine_state(),
        )
    )
