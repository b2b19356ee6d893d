"""Chooses the attentions that run as one kernel where none was measured: those whose scores are
more than the last cache holds.

    scores, softmax, product   -->   write S, read S, write P, read P: through memory
    attention                  -->   rows of a block of queries, in a core's own cache

The arithmetic is the same, and both forms do it at about the same rate, so shorter ones are for a
race of whole models to decide.
"""

from __future__ import annotations

from tunegrad.ir.fusion import Fusion
from tunegrad.ir.graph import Node
from tunegrad.ir.target import Target

__all__ = ["expected_attentions"]

_RESULTS = 2
"""Rows of each query: scores and their exponentials."""


def expected_attentions(fusion: Fusion, target: Target) -> frozenset[int]:
    """The toggles that make attention of products whose scores the last cache does not hold; none
    for a device of work-items, whose matrix units multiply faster than their rows are folded.
    """
    if target.has_work_items:
        return frozenset()
    found = fusion.drafts.attentions()
    return frozenset(i for i, (s, _) in found.items() if _too_many(s, target) and _fits(s, target))


def _too_many(scores: Node, target: Target) -> bool:
    """True if the last cache does not hold the scores. Scores in 16 bits are left alone: three
    kernels may multiply those in pairs or tiles.
    """
    nbytes = scores.size * scores.dtype.itemsize
    return not scores.dtype.is_half and nbytes > target.cached_bytes


def _fits(scores: Node, target: Target) -> bool:
    """True if the rows of a vector of queries fit half of a core's own cache."""
    keys = scores.shape[-1]
    return _RESULTS * keys * target.vector_bytes <= target.l2_bytes // 2
