"""Records of a report on a session or a store, gathered from rows alone. Nothing is measured, and
no model is built.
"""

from .pages import gather
from .records import (
    Failure,
    HistoryChart,
    Judgement,
    KernelEntry,
    Latencies,
    PeerTime,
    ReportPage,
    Series,
    SessionLine,
    SessionPage,
    Source,
    Trace,
)

__all__ = [
    "Failure",
    "HistoryChart",
    "Judgement",
    "KernelEntry",
    "Latencies",
    "PeerTime",
    "ReportPage",
    "Series",
    "SessionLine",
    "SessionPage",
    "Source",
    "Trace",
    "gather",
]
