"""Products of f32 whose factors are rounded to tf32, where the user has allowed it.

    sum over k: a[m, k] * b[k, n]
        -->
    sum over k: tf32(a)[m, k] * tf32(b)[k, n]      10 bits of a fraction, the sum in f32 as before

A matrix unit multiplies such numbers: products of 11 digits are exact in f32. The rounding is an
operation of the graph, so the text and the key of a kernel say it, and it means the same on every
device. Rounded are contractions in f32 alone, whose factors are both read repeatedly, and which add
up whole steps of the unit along some axis. Products that no unit could multiply stay f32: the first
convolution of an image of three channels, a matrix times a vector.
"""

from __future__ import annotations

from .. import graph as g
from ..dtypes import F32
from ..expr import Op
from ..graph import VIEWS, GraphOp, Node, Step
from .factors import applied, chain, rewritten, with_factors

__all__ = ["round_factors"]

_STEP = 8
"""Terms that the unit adds at a time."""


def round_factors(outputs: tuple[Node, ...], steps: list[Step] | None = None) -> tuple[Node, ...]:
    """The same outputs with the factors of f32 contractions rounded; others keep their nodes.

    ``outputs`` are folded, so that what is rounded is no part of a product of constants.
    """
    return rewritten(outputs, _rounded_sum, steps)


def _rounded_sum(n: Node) -> Node | None:
    """The sum ``n`` of rounded factors; None where it is no contraction that a unit can do."""
    return with_factors(n, _STEP, _rounded) if n.dtype == F32 else None


def _rounded(x: Node) -> Node | None:
    """A factor of f32 elements of their own that are each multiplied several times, rounded before
    it is spread, after its views: which of those is stored is then open, and each reader rounds.
    None of any other.
    """
    base, moves = chain(x)
    spread = any(m.op in (GraphOp.EXPAND, GraphOp.WINDOW) for m in moves)
    if not spread or base.dtype != F32 or g.converts_reads(base):
        return None
    views = next((k for k, m in enumerate(moves) if m.op not in VIEWS), len(moves))
    return applied(g.elementwise(Op.TF32, applied(base, moves[:views])), moves[views:])
