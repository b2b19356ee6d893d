"""Cumulative sums, products, maxima and minima on graph nodes.

    y[i] = x[0] op ... op x[i]

A block of 8 elements is one reduction over a triangle: element i folds those up to i. Longer axes
are blocks, whose totals are scanned in the same way and folded in front of the blocks after them:
so every element costs 8 folds a level, however long the axis is, and all of them run at once.

    x  3 1 2 | 4 1 0 | 2 2        blocks of 3
       3 4 6 | 4 5 5 | 2 4        each by itself
       0     | 6     | 11         totals before each block
    y  3 4 6 | 10 11 11 | 13 15
"""

from __future__ import annotations

from typing import Literal

from tunegrad.ir import graph
from tunegrad.ir.dtypes import I32, I64, U64
from tunegrad.ir.expr import Op
from tunegrad.ir.graph import Node
from tunegrad.ir.kernel import identity

from .elementwise import compare, where
from .movement import axis_of

__all__ = ["Fold", "cumulative", "cumulative_extremum"]

Fold = Literal["sum", "prod", "max", "min"]
_OPS = {"sum": Op.ADD, "prod": Op.MUL, "max": Op.MAX, "min": Op.MIN}
_BLOCK = 8


def cumulative(kind: Fold, x: Node, axis: int) -> Node:
    """The fold of all elements up to each one along an axis.

    Sums and products of integers and bools are i64, of u64 u64; f16 and bf16 are folded in f32. NaN
    stays from the first one on. Raises ShapeError where there is no such axis.
    """
    op = _OPS[kind]
    work, result = x.dtype.compute, x.dtype
    if kind in ("sum", "prod") and not x.dtype.is_float:
        work = result = U64 if x.dtype == U64 else I64
    elif x.dtype.is_bool:
        work = I32
    at = axis_of(f"cum{kind}", axis, x.shape)
    last = len(x.shape) - 1
    order = (*(d for d in range(last + 1) if d != at), at)
    scanned = (
        _scan(op, graph.permute(graph.cast(x, work), order)) if x.size else graph.cast(x, work)
    )
    back = tuple(order.index(d) for d in range(last + 1))
    moved = graph.permute(scanned, back) if x.size else scanned
    if result.is_bool:
        return compare("ne", moved, 0)
    return graph.cast(moved, result)


def cumulative_extremum(kind: Literal["max", "min"], x: Node, axis: int) -> tuple[Node, Node]:
    """The cumulative maximum or minimum and where it stands, an i64: the last of equal ones, as
    ``torch.cummax``.
    """
    values = cumulative(kind, x, axis)
    at = axis_of(f"cum{kind}", axis, x.shape)
    new = compare("eq", x, values)
    if x.dtype.is_float:
        new = graph.elementwise(Op.OR, new, compare("ne", x, x))
    places = where(new, graph.iota(x.shape, at, I32), -1)
    return values, graph.cast(cumulative("max", places, at), I64)


def _scan(op: Op, x: Node) -> Node:
    """Along the last dimension."""
    *rows, n = x.shape
    if n <= _BLOCK:
        return _triangle(op, x)
    count = -(-n // _BLOCK)
    start = identity(op, x.dtype)
    padded = _padded(x, 0, count * _BLOCK - n, start)
    blocks = graph.contiguous(_triangle(op, graph.reshape(padded, (*rows, count, _BLOCK))))
    ends = tuple((0, s) for s in (*rows, count))
    totals = graph.shrink(blocks, (*ends, (_BLOCK - 1, _BLOCK)))
    before = _scan(op, graph.reshape(totals, (*rows, count)))
    if count > _BLOCK:  # else every element would add up the totals of all levels
        before = graph.contiguous(before)
    shifted = _padded(graph.shrink(before, (*ends[:-1], (0, count - 1))), 1, 0, start)
    spread = graph.expand(graph.reshape(shifted, (*rows, count, 1)), (*rows, count, _BLOCK))
    whole = graph.reshape(graph.elementwise(op, spread, blocks), (*rows, count * _BLOCK))
    return graph.shrink(whole, (*((0, s) for s in rows), (0, n)))


def _triangle(op: Op, x: Node) -> Node:
    """``y[.., i] = fold over j <= i of x[.., j]``"""
    *rows, n = x.shape
    square = (*rows, n, n)
    terms = graph.expand(graph.reshape(x, (*rows, 1, n)), square)
    later = compare(
        "lt", graph.iota(square, len(rows), I32), graph.iota(square, len(rows) + 1, I32)
    )
    kept = where(later, graph.full(identity(op, x.dtype), square, x.dtype), terms)
    return graph.reshape(graph.reduce(op, kept, (len(rows) + 1,)), x.shape)


def _padded(x: Node, before: int, after: int, value: float | int | bool) -> Node:
    """The last dimension with ``value`` before and after it."""
    widths = (*((0, 0) for _ in x.shape[1:]), (before, after))
    if before == after == 0:
        return x
    padded = graph.pad(x, widths)
    if value == 0:
        return padded
    position = graph.iota(padded.shape, len(x.shape) - 1, I32)
    outside = compare("lt", position, before)
    if after:
        outside = compare("le", before + x.shape[-1], position)
    return where(outside, graph.full(value, padded.shape, x.dtype), padded)
