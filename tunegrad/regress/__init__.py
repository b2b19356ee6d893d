"""Regression sweeps: the stored winners timed again, a history of nights, and what changed in it.

regress("configs/nightly.toml")   what `tunegrad regress` calls
bless(settings, reason)           accept what is slower as the new level
between(settings, (a, b))         the commits between two that made something slower
compare(a, b)                     two sweeps, stores or revisions, with intervals
"""

from __future__ import annotations

from .bisecting import between
from .comparing import compare
from .report import (
    Accepted,
    Alert,
    BetweenReport,
    CompareReport,
    CompareRow,
    Failed,
    Finding,
    SeriesRow,
    Step,
    SweepReport,
)
from .settings import SweepSettings, load_sweep
from .sweep import bless, regress
from .verdict import Judged, judge_nights

__all__ = [
    "Accepted", "Alert", "BetweenReport", "CompareReport", "CompareRow", "Failed", "Finding",
    "Judged", "SeriesRow", "Step", "SweepReport", "SweepSettings", "between", "bless",
    "compare", "judge_nights", "load_sweep", "regress",
]  # fmt: skip
