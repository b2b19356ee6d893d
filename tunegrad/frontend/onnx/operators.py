"""Every operator that is there, by its ONNX name."""

from __future__ import annotations

from .attention import ATTENTION
from .casts import CASTS
from .contrib import CONTRIB
from .control import CONTROL
from .convolutions import CONVOLUTIONS
from .elementwise import ELEMENTWISE
from .grams import GRAMS
from .node import Function
from .norms import NORMS
from .pools import POOLS
from .products import PRODUCTS
from .recurrence import RECURRENCE
from .reductions import REDUCTIONS
from .resizing import RESIZING
from .sampling import SAMPLING
from .scattering import SCATTERING
from .sequences import SEQUENCES
from .shapes import SHAPES
from .signals import SIGNALS

__all__ = ["OPERATORS"]

OPERATORS: dict[str, Function] = {
    **ELEMENTWISE, **CASTS, **SHAPES, **SCATTERING, **PRODUCTS, **CONVOLUTIONS, **NORMS,
    **POOLS, **GRAMS, **REDUCTIONS, **ATTENTION, **RECURRENCE, **RESIZING, **SAMPLING, **SIGNALS,
    **CONTROL, **SEQUENCES, **CONTRIB,
}  # fmt: skip
