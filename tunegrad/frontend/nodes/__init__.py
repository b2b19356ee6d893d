"""Operations on graph nodes: arithmetic, movement, folds, scans, sorting, indexing; arrays."""

from __future__ import annotations

from tunegrad.ir.graph import rewritten, substitute

from . import arrays, elementwise, folds, movement

__all__ = ["arrays", "elementwise", "folds", "movement", "rewritten", "substitute"]
