"""Check that the machine is quiet: what is timed beside busy processes says less."""

from __future__ import annotations

import os

__all__ = ["busy"]

_LOOK_S = 0.5
_SHARE = 0.1
"""Of the time of all processors: what a desktop or a daemon takes is less, a build is more."""


def busy(look_s: float = _LOOK_S) -> str:
    """Description of how busy other processes keep this machine; empty where it is quiet.

    Looks for ``look_s`` seconds, in which this process does nothing. ``load_1m`` is said, and
    decides nothing: it lags by a minute, and counts what this process did before.
    """
    import psutil

    share = float(psutil.cpu_percent(interval=look_s)) / 100.0
    if share <= _SHARE:
        return ""
    return f"other processes take {share:.0%} of the processors (load {os.getloadavg()[0]:.2f})"
