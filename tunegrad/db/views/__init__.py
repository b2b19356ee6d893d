"""Questions about a store, answered as tables of plain values."""

from __future__ import annotations

from .diff import DecisionChange, LatencyPair, StoreDiff, WinnerChange, WinnerFacts, diff_contents
from .histories import (
    DecisionRow,
    History,
    LatencyRow,
    MeasurementRow,
    decision_view,
    find_kernel,
    history,
    model_history,
)
from .reasons import Why, why

__all__ = [
    "DecisionChange", "DecisionRow", "History", "LatencyPair", "LatencyRow", "MeasurementRow",
    "StoreDiff", "Why", "WinnerChange", "WinnerFacts", "decision_view", "diff_contents",
    "find_kernel", "history", "model_history", "why",
]  # fmt: skip
