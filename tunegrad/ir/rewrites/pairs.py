"""Sums of products of bf16 tensors as sums of products of pairs, where the user has allowed it.

    sum over k: f32(a[m, k]) * f32(b[k, n])
        -->
    a2[m, k'] = pair(a[m, 2k'], a[m, 2k'+1])    kernels of their own; of constants, computed at load
    b2[k', n] = pair(b[2k', n], b[2k'+1, n])
    sum over k': dot2(a2[m, k'], b2[k', n])     an odd k is padded with a zero

Both operands are bf16 before any movement (or one is an f32 input that may be rounded, in a model
that is asked to be bf16), the sum is in f32, and one of its axes is a whole dimension of both, or
the inner part of one that is split: the channels of a convolution, the inner extent of a matrix
product, one head's part of the features. Pairs lie in one word, so that
everything else sees a product of 32-bit elements. An operand that every product reads but once is
paired only where that costs nothing, as of a constant. Other sums stay as they are.
"""

from __future__ import annotations

from .. import graph as g
from ..dtypes import BF16, F32
from ..expr import Op
from ..graph import MOVEMENT, GraphOp, Node, Step
from .factors import is_known, rewritten, sum_of_products
from .words import dimension, in_words, worded

__all__ = ["pair_dots"]


def pair_dots(
    outputs: tuple[Node, ...], *, inputs: bool = False, steps: list[Step] | None = None
) -> tuple[Node, ...]:
    """The same outputs with products of bf16 tensors summed in pairs; a graph without any keeps its
    nodes.

    ``inputs``: one factor may be an f32 input, which is rounded where its pairs are made.
    """
    fixed: dict[Node, bool] = {}
    return rewritten(outputs, lambda n: _paired_sum(n, fixed, inputs), steps)


def _paired_sum(n: Node, fixed: dict[Node, bool], inputs: bool) -> Node | None:
    """The sum ``n`` in pairs, or None where it is none of bf16 products."""
    found = sum_of_products(n) if n.dtype == F32 else None
    if found is None:
        return None
    product, axes = found
    operands = [c for c in map(_chain, product.srcs) if c is not None]
    wide = [base for base, _ in operands if base.dtype != BF16]
    if len(operands) < 2 or len(wide) > inputs:
        return None
    operands = [(g.cast(base, BF16), moves) for base, moves in operands]
    if any(base.size >= product.size and not is_known(base, fixed) for base, _ in operands):
        return None
    for axis in sorted(axes, key=lambda a: -product.shape[a]):
        dims = [dimension(base, moves, axis, 2) for base, moves in operands]
        if product.shape[axis] >= 2 and all(d is not None for d in dims):
            pairs = [
                worded(in_words(base, d, Op.PAIR), moves, d, base.shape[d], 2)
                for (base, moves), d in zip(operands, dims, strict=True)
                if d is not None
            ]
            return g.reduce(Op.ADD, g.elementwise(Op.DOT2, *pairs), axes)
    return None


def _chain(x: Node) -> tuple[Node, tuple[Node, ...]] | None:
    """The bf16 tensor (or f32 input) that ``x`` is, widened and moved; and the movements, the last
    one last.
    """
    moves: list[Node] = []
    while x.op in MOVEMENT or x.op is GraphOp.CAST:
        if x.op is GraphOp.CAST:
            if (x.dtype, x.srcs[0].dtype) == (F32, BF16):
                return x.srcs[0], tuple(reversed(moves))
            return None
        moves.append(x)
        x = x.srcs[0]
    is_input = x.op is GraphOp.INPUT and x.dtype == F32
    return (x, tuple(reversed(moves))) if is_input else None
