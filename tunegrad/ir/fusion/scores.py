"""Finds attention in a graph: a product, a softmax of its rows, and a product of that."""

from __future__ import annotations

from collections.abc import Mapping

from ..expr import Apply, Op, nodes
from ..graph import Node
from ..kernel import Kernel
from .attention import sums_products
from .build import Draft

__all__ = ["scores_of"]


def scores_of(product: Node, drafts: Mapping[Node, Draft]) -> tuple[Node, ...]:
    """The nodes whose memory attention does without, scores first, then their softmax; none where
    ``product`` ends no attention.

    Only what a single draft reads can go.
    """

    def alone(n: Node) -> bool:
        return sum(n in d.reads.values() for d in drafts.values()) == 1

    if not _is_product(drafts[product].kernel):
        return ()
    for softmax in drafts[product].reads.values():
        if softmax in drafts and _is_softmax(drafts[softmax].kernel) and alone(softmax):
            for scores in drafts[softmax].reads.values():
                if scores in drafts and _is_product(drafts[scores].kernel) and alone(scores):
                    return scores, softmax
    return ()


def _is_product(k: Kernel) -> bool:
    """True if a kernel is one sum of products of its inputs, and its epilogue."""
    return len(k.reduces) == 1 and sums_products(k.reduces[0])


def _is_softmax(k: Kernel) -> bool:
    """True if a kernel folds the maximum of each row, and then a sum of exponentials."""
    return (
        [r.op for r in k.reduces] == [Op.MAX, Op.ADD]
        and all(len(s.axes) == 1 for s in k.stores)
        and any(isinstance(x, Apply) and x.op is Op.EXP for x in nodes(k.reduces[1].expr))
    )
