"""Fusion: from the graph to kernels and the buffers between them."""

from __future__ import annotations

from .alternatives import ATTENTION, Alternative, Alternatives, Edge
from .attention import is_attention
from .axes import compared
from .build import Draft
from .naming import layers_of
from .plan import VALIDATION, Buffer, BufferRole, Combined, Launch, LaunchPlan
from .realize import EXPENSIVE
from .schedule import LAST, ROWS, Fusion, Images, blocked, schedule

__all__ = [
    "ATTENTION",
    "EXPENSIVE",
    "LAST",
    "ROWS",
    "VALIDATION",
    "Alternative",
    "Alternatives",
    "Buffer",
    "BufferRole",
    "Combined",
    "Draft",
    "Edge",
    "Fusion",
    "Images",
    "Launch",
    "LaunchPlan",
    "blocked",
    "compared",
    "is_attention",
    "layers_of",
    "schedule",
]
