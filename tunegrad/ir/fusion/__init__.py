"""Fusion: from the graph to kernels and the buffers between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.lazy import lazy_names

if TYPE_CHECKING:
    from .axes import compared as compared
    from .build import Draft as Draft
    from .build import is_attention as is_attention
    from .donation import New as New
    from .donation import in_place as in_place
    from .donation import overwriting as overwriting
    from .drafts import EXPENSIVE as EXPENSIVE
    from .order import least_memory as least_memory
    from .order import live_bytes as live_bytes
    from .parts import joined as joined
    from .parts import separated as separated
    from .parts import sliced as sliced
    from .plan import VALIDATION as VALIDATION
    from .plan import Buffer as Buffer
    from .plan import BufferRole as BufferRole
    from .plan import Combined as Combined
    from .plan import Launch as Launch
    from .plan import LaunchPlan as LaunchPlan
    from .plan import layers_of as layers_of
    from .recompute import recomputed as recomputed
    from .schedule import ATTENTION as ATTENTION
    from .schedule import LAST as LAST
    from .schedule import ROWS as ROWS
    from .schedule import Alternative as Alternative
    from .schedule import Alternatives as Alternatives
    from .schedule import Edge as Edge
    from .schedule import Fusion as Fusion
    from .schedule import Images as Images
    from .schedule import blocked as blocked
    from .schedule import schedule as schedule
else:
    __all__, __getattr__ = lazy_names(
        __name__,
        {
            "axes": "compared",
            "build": "Draft is_attention",
            "donation": "New in_place overwriting",
            "drafts": "EXPENSIVE",
            "order": "least_memory live_bytes",
            "parts": "joined separated sliced",
            "plan": "Buffer BufferRole Combined Launch LaunchPlan VALIDATION layers_of",
            "recompute": "recomputed",
            "schedule": (
                "ATTENTION Alternative Alternatives Edge Fusion Images LAST ROWS blocked schedule"
            ),
        },
    )
