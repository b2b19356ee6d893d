"""Fusion: from the graph to kernels and the buffers between them."""

from __future__ import annotations

from .axes import compared
from .build import Draft, is_attention
from .donation import New, in_place, overwriting
from .drafts import EXPENSIVE
from .order import least_memory, live_bytes
from .parts import joined, separated, sliced
from .plan import VALIDATION, Buffer, BufferRole, Combined, Launch, LaunchPlan, layers_of
from .recompute import recomputed
from .schedule import (
    ATTENTION,
    LAST,
    ROWS,
    Alternative,
    Alternatives,
    Edge,
    Fusion,
    Images,
    blocked,
    schedule,
)

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
    "New",
    "blocked",
    "compared",
    "in_place",
    "is_attention",
    "joined",
    "layers_of",
    "least_memory",
    "live_bytes",
    "overwriting",
    "recomputed",
    "schedule",
    "separated",
    "sliced",
]
