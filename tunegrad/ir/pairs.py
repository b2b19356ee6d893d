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

from typing import Any, cast

from tunegrad.errors import InternalError

from . import graph as g
from .dtypes import BF16, F32
from .expr import Op
from .graph import MOVEMENT, GraphOp, Node, topological

__all__ = ["pair_dots"]


def pair_dots(outputs: tuple[Node, ...], *, inputs: bool = False) -> tuple[Node, ...]:
    """The same outputs with products of bf16 tensors summed in pairs; a graph without any keeps its
    nodes.

    ``inputs``: one factor may be an f32 input, which is rounded where its pairs are made.
    """
    new: dict[Node, Node] = {}
    fixed: dict[Node, bool] = {}
    for n in topological(outputs):
        srcs = tuple(new[s] for s in n.srcs)
        made = n if srcs == n.srcs else Node(n.op, srcs, n.arg, n.shape, n.dtype)
        new[n] = _paired_sum(made, fixed, inputs) or made
    return tuple(new[o] for o in outputs)


def _paired_sum(n: Node, fixed: dict[Node, bool], inputs: bool) -> Node | None:
    """The sum ``n`` in pairs, or None where it is none of bf16 products."""
    if (
        n.op is not GraphOp.REDUCE
        or n.dtype != F32
        or n.srcs[0].op is not GraphOp.MAP
        or n.srcs[0].arg is not Op.MUL
    ):
        return None
    op, axes = cast(tuple[Op, tuple[int, ...]], n.arg)
    product = n.srcs[0]
    operands = [c for c in map(_chain, product.srcs) if c is not None]
    wide = [base for base, _ in operands if base.dtype != BF16]
    if op is not Op.ADD or len(operands) < 2 or len(wide) > inputs:
        return None
    operands = [(g.cast(base, BF16), moves) for base, moves in operands]
    if any(base.size >= product.size and not _known(base, fixed) for base, _ in operands):
        return None
    for axis in sorted(axes, key=lambda a: -product.shape[a]):
        dims = [_dimension(base, moves, axis) for base, moves in operands]
        if product.shape[axis] >= 2 and all(d is not None for d in dims):
            pairs = [
                _moved(_paired(base, d), moves, d, base.shape[d])
                for (base, moves), d in zip(operands, dims, strict=True)
                if d is not None
            ]
            return g.reduce(Op.ADD, g.elementwise(Op.DOT2, *pairs), axes)
    return None


def _known(n: Node, fixed: dict[Node, bool]) -> bool:
    """Whether no input reaches ``n``."""
    for m in topological((n,)) if n not in fixed else ():
        fixed[m] = m.op is not GraphOp.INPUT and all(fixed[s] for s in m.srcs)
    return fixed[n]


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


def _dimension(base: Node, moves: tuple[Node, ...], axis: int) -> int | None:
    """The dimension of ``base`` that is ``axis`` after the movements, all of it or the inner part
    of where it is split; None where there is none.
    """
    for d, extent in enumerate(base.shape):
        at: tuple[int, int] | None = d, extent
        for m in moves:
            at = _after(m, *at) if at is not None else None
        if extent >= 2 and at is not None and at[0] == axis:
            return d
    return None


def _after(m: Node, at: int, extent: int) -> tuple[int, int] | None:
    """Where a dimension is after a movement that leaves it whole, or splits it, and its extent."""
    arg = cast(Any, m.arg)
    if m.op is GraphOp.PERMUTE:
        return cast(tuple[int, ...], arg).index(at), extent
    if m.op is GraphOp.RESHAPE:
        return _reshaped(m.srcs[0].shape, m.shape, at)
    whole = {GraphOp.PAD: (0, 0), GraphOp.SHRINK: (0, extent)}
    moved = (
        (m.op in whole and arg[at] != whole[m.op])
        or (m.op is GraphOp.FLIP and at in arg)
        or (m.op is GraphOp.WINDOW and at == arg[0])
    )
    return None if moved else (at, extent)


def _reshaped(before: tuple[int, ...], after: tuple[int, ...], at: int) -> tuple[int, int] | None:
    """The dimension with as many elements behind it: with the same extent, or an even part of it,
    whose pairs are pairs of the whole.
    """
    behind = _product(before[at + 1 :])
    for d, extent in enumerate(after):
        part = extent % 2 == 0 and before[at] % extent == 0
        if _product(after[d + 1 :]) == behind and extent > 1 and (extent == before[at] or part):
            return d, extent
    return None


def _product(extents: tuple[int, ...]) -> int:
    total = 1
    for e in extents:
        total *= e
    return total


def _paired(base: Node, d: int) -> Node:
    """``base`` with neighbours along ``d`` in one word, in memory.

    What sums are behind it is stored before: two sums in one kernel, of even and of odd neighbours,
    would be no product of matrices any more.
    """
    if any(n.op is GraphOp.REDUCE for n in topological((base,))):
        base = g.contiguous(base)
    odd = base.shape[d] % 2
    even = g.pad(base, tuple((0, odd if i == d else 0) for i in range(len(base.shape))))
    shape = even.shape
    split = g.reshape(even, (*shape[:d], shape[d] // 2, 2, *shape[d + 1 :]))
    halves = []
    for half in (0, 1):
        limits = tuple(
            (half, half + 1) if i == d + 1 else (0, e) for i, e in enumerate(split.shape)
        )
        halves.append(
            g.reshape(g.shrink(split, limits), (*shape[:d], shape[d] // 2, *shape[d + 1 :]))
        )
    return g.contiguous(g.elementwise(Op.PAIR, *halves))


def _moved(x: Node, moves: tuple[Node, ...], at: int, extent: int) -> Node:
    """The movements of a chain, on its base in pairs along dimension ``at`` of that extent."""
    for m in moves:
        arg = cast(Any, m.arg)
        found = _after(m, at, extent)
        if found is None:
            raise InternalError(f"{m!r} does not keep dimension {at}")
        after, extent = found
        shape = (*m.shape[:after], -(-extent // 2), *m.shape[after + 1 :])
        if m.op is GraphOp.RESHAPE:
            x = g.reshape(x, shape)
        elif m.op is GraphOp.EXPAND:
            x = g.expand(x, shape)
        elif m.op is GraphOp.PERMUTE:
            x = g.permute(x, arg)
        elif m.op is GraphOp.PAD:
            x = g.pad(x, arg)
        elif m.op is GraphOp.SHRINK:
            x = g.shrink(
                x, tuple((0, x.shape[at]) if i == at else limit for i, limit in enumerate(arg))
            )
        elif m.op is GraphOp.FLIP:
            x = g.flip(x, arg)
        else:
            x = g.window(x, *arg)
        at = after
    return x
