"""Regression sweeps: the stored winners timed again, a history of nights, and what changed in it.

regress("configs/nightly.toml")   what `tunegrad regress` calls
bless(settings, reason)           accept what is slower as the new level
compare(a, b)                     two sweeps, stores or revisions, with intervals
"""

from __future__ import annotations

from .comparing import compare
from .report import (
    Accepted,
    CompareReport,
    CompareRow,
    Failed,
    Finding,
    SeriesRow,
    SweepReport,
)
from .run import bless, regress
from .settings import SweepSettings, load_sweep

__all__ = [
    "Accepted",
    "CompareReport",
    "CompareRow",
    "Failed",
    "Finding",
    "SeriesRow",
    "SweepReport",
    "SweepSettings",
    "bless",
    "compare",
    "load_sweep",
    "regress",
]
