# mypy: implicit-reexport
"""Fusion: from the graph to kernels and the buffers between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.lazy import lazy_names

if TYPE_CHECKING:
    # isort: off
    from .axes import compared
    from .build import Draft, is_attention
    from .donation import New, in_place, overwriting
    from .drafts import EXPENSIVE
    from .order import least_memory, live_bytes
    from .parts import joined, separated, sliced
    from .plan import VALIDATION, Buffer, BufferRole, Combined, Launch, LaunchPlan, layers_of
    from .recompute import recomputed
    from .schedule import (
        ATTENTION, LAST, ROWS, Alternative, Alternatives, Edge, Fusion, Images, blocked, schedule,
    )  # fmt: skip
    # isort: on
else:
    __all__, __getattr__ = lazy_names(__name__)
