"""Sketches: whole schedules from a few decisions, whose defaults are the heuristic schedules."""

from .items_tensor import product_cycles
from .pick import sketch

__all__ = ["product_cycles", "sketch"]
