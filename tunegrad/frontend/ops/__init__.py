"""The operations, a family in each file: functions of handles, which ``Tensor`` has as methods.

A family is imported when one of its operations is asked for: most processes use few of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..operation import Family

__all__ = [
    "activation", "arithmetic", "convolution", "indexing", "losses", "movement",
    "normalisation", "ordering", "parts", "pooling", "products", "reduction", "resizing", "special",
]  # fmt: skip

if TYPE_CHECKING:
    from . import (
        activation,
        arithmetic,
        convolution,
        indexing,
        losses,
        movement,
        normalisation,
        ordering,
        parts,
        pooling,
        products,
        reduction,
        resizing,
        special,
    )
else:
    for _name in __all__:
        globals()[_name] = Family(f"{__name__}.{_name}")
