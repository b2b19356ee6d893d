"""Operations on graph nodes: arithmetic, movement, folds, scans, sorting, indexing; and arrays as
what nodes hold.
"""

from __future__ import annotations

from . import arrays, elementwise, folds, indexing, movement
from .rewrite import substitute

__all__ = [
    "arrays", "elementwise", "folds", "indexing", "movement", "substitute",
]  # fmt: skip
