"""Every operator that is there, by its ONNX name."""

from __future__ import annotations

from .control import CONTROL
from .elementwise import ELEMENTWISE
from .networks import NETWORKS
from .node import Function
from .sequences import SEQUENCES
from .shapes import SHAPES

__all__ = ["OPERATORS"]

OPERATORS: dict[str, Function] = {
    **ELEMENTWISE,
    **SHAPES,
    **NETWORKS,
    **CONTROL,
    **SEQUENCES,
}
