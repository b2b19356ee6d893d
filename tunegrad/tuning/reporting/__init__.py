"""Records of a report on a session or store, from rows alone: nothing is measured or built."""

from .candidates import one_change, tried_neighbour
from .pages import gather
from .records import (
    Beside,
    Failure,
    HistoryChart,
    Judgement,
    KernelEntry,
    Latencies,
    Machine,
    Parameter,
    PeerTime,
    ReportPage,
    Search,
    SessionLine,
    SessionPage,
    Source,
)

__all__ = [
    "Beside", "Failure", "HistoryChart", "Judgement", "KernelEntry", "Latencies", "Machine",
    "Parameter", "PeerTime", "ReportPage", "Search", "SessionLine", "SessionPage", "Source",
    "gather", "one_change", "tried_neighbour",
]  # fmt: skip
