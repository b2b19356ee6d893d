"""Conditions of a measurement: the software, and the state of the machine, kept with sessions and
latencies of models.

A nightly figure that got worse says little without them: another compiler, another governor, or a
machine that was busy.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np

from tunegrad.db import Latency, Properties, Store
from tunegrad.trial import Fingerprint
from tunegrad.version import __version__

from ..workload import Workload
from .load import probed

__all__ = ["machine_state", "record_latency", "revision", "versions"]

_CPUS = Path("/sys/devices/system/cpu")
_SOURCE = Path(__file__).parents[1]
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
