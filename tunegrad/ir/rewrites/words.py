"""Neighbours along a dimension of a tensor in one word, made in front of movements.

    moves(base)                  base [.., d, ..]      what a factor of a sum of products is
        -->
    moves(words)                 words[.., i, ..] = word(base[.., n*i, ..], ..), n neighbours each

The movements leave the dimension whole, or split it so that its inner part is words of the whole,
and it becomes the axis of a sum: the channels of a convolution, the inner extent of a matrix
product, one head's part of the features.
"""

from __future__ import annotations

from math import prod
from typing import Any, cast

from tunegrad.errors import InternalError

from .. import graph as g
from ..expr import Op
from ..graph import GraphOp, Node, topological
from .factors import Moves

__all__ = ["dimension", "in_words", "worded"]


def dimension(base: Node, moves: Moves, axis: int, count: int) -> int | None:
    """The dimension of ``base`` that is ``axis`` after the movements, all of it or the inner part
    of where it is split into words of ``count``; None where there is none.
    """
    for d, extent in enumerate(base.shape):
        at: tuple[int, int] | None = d, extent
        for m in moves:
            at = _after(m, *at, count) if at is not None else None
        if extent >= 2 and at is not None and at[0] == axis:
            return d
    return None


def in_words(base: Node, d: int, op: Op, *, stored: bool = False) -> Node:
    """``base`` with neighbours along ``d`` in one word, by ``op``, in memory; what is missing of
    the last word is zero.

    ``stored``: numbers are stored before, one by one. So they are where sums are behind them: two
    sums in one kernel, of even and of odd neighbours, would be no product of matrices any more.
    """
    count = op.arity
    if stored or any(n.op is GraphOp.REDUCE for n in topological((base,))):
        base = g.contiguous(base)
    rest = -base.shape[d] % count
    whole = g.pad(base, tuple((0, rest if i == d else 0) for i in range(len(base.shape))))
    shape = whole.shape
    split = g.reshape(whole, (*shape[:d], shape[d] // count, count, *shape[d + 1 :]))
    parts = []
    for part in range(count):
        limits = tuple(
            (part, part + 1) if i == d + 1 else (0, e) for i, e in enumerate(split.shape)
        )
        made = g.shrink(split, limits)
        parts.append(g.reshape(made, (*shape[:d], shape[d] // count, *shape[d + 1 :])))
    return g.contiguous(g.elementwise(op, *parts))


def worded(x: Node, moves: Moves, at: int, extent: int, count: int) -> Node:
    """The movements of a chain, on its base in words along dimension ``at`` of that extent."""
    for m in moves:
        arg = cast(Any, m.arg)
        found = _after(m, at, extent, count)
        if found is None:
            raise InternalError(f"{m!r} does not keep dimension {at}")
        after, extent = found
        shape = (*m.shape[:after], -(-extent // count), *m.shape[after + 1 :])
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


def _after(m: Node, at: int, extent: int, count: int) -> tuple[int, int] | None:
    """Place and extent of a dimension after a movement that leaves it whole, or splits it."""
    arg = cast(Any, m.arg)
    if m.op is GraphOp.PERMUTE:
        return cast(tuple[int, ...], arg).index(at), extent
    if m.op is GraphOp.RESHAPE:
        return _reshaped(m.srcs[0].shape, m.shape, at, count)
    whole = {GraphOp.PAD: (0, 0), GraphOp.SHRINK: (0, extent)}
    moved = (
        (m.op in whole and arg[at] != whole[m.op])
        or (m.op is GraphOp.FLIP and at in arg)
        or (m.op is GraphOp.WINDOW and at == arg[0])
    )
    return None if moved else (at, extent)


def _reshaped(
    before: tuple[int, ...], after: tuple[int, ...], at: int, count: int
) -> tuple[int, int] | None:
    """The dimension with as many elements behind it: with the same extent, or a part of it whose
    words are words of the whole.
    """
    behind = prod(before[at + 1 :])
    for d, extent in enumerate(after):
        part = extent % count == 0 and before[at] % extent == 0
        if prod(after[d + 1 :]) == behind and extent > 1 and (extent == before[at] or part):
            return d, extent
    return None
