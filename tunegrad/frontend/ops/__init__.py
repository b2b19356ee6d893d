"""The operations, a family in each file: functions of handles, which ``Tensor`` has as methods."""

from __future__ import annotations

from . import (
    activation,
    arithmetic,
    convolution,
    indexing,
    losses,
    movement,
    normalisation,
    ordering,
    pooling,
    products,
    reduction,
    resizing,
    special,
)

__all__ = [
    "activation", "arithmetic", "convolution", "indexing", "losses", "movement",
    "normalisation", "ordering", "pooling", "products", "reduction", "resizing", "special",
]  # fmt: skip
