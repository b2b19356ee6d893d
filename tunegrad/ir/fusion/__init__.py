"""Fusion: from the graph to kernels and the buffers between them."""

from __future__ import annotations

from .alternatives import Alternative, Alternatives, Edge
from .build import Draft
from .layouts import LAST, ROWS, Images, blocked
from .origins import layers_of
from .plan import Buffer, BufferRole, Launch, LaunchPlan
from .realize import EXPENSIVE
from .schedule import Fusion, schedule

__all__ = [
    "EXPENSIVE",
    "LAST",
    "ROWS",
    "Alternative",
    "Alternatives",
    "Buffer",
    "BufferRole",
    "Draft",
    "Edge",
    "Fusion",
    "Images",
    "Launch",
    "LaunchPlan",
    "blocked",
    "layers_of",
    "schedule",
]
