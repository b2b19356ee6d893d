"""The most memory that the tests' process held in one test, and that processes it started held."""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path

__all__ = ["forget", "of_children_bytes", "own_bytes"]

_STATUS, _FORGET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def own_bytes() -> int:
    """The most memory that this process held since ``forget``; 0 where Linux does not say."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(x.split()[1]) << 10 for x in lines if x.startswith("VmHWM:"))


def forget() -> None:
    """Begin to count this process's peak anew."""
    with suppress(OSError):
        _FORGET.write_text("5")


def of_children_bytes() -> int:
    """The most that a process held that this one waited for; no way leads back to less."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
