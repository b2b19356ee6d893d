"""Fusion: from the graph to kernels and the buffers between them."""

from __future__ import annotations

from .alternatives import Alternative, Alternatives, Edge
from .plan import Buffer, BufferRole, Launch, Schedule
from .realize import EXPENSIVE
from .schedule import Fusion, schedule

__all__ = [
    "EXPENSIVE",
    "Alternative",
    "Alternatives",
    "Buffer",
    "BufferRole",
    "Edge",
    "Fusion",
    "Launch",
    "Schedule",
    "schedule",
]
