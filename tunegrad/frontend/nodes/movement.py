"""Movement operations on graph nodes: axes from the end, extents of -1, slices, padding with any
value, joining.

Nothing here moves data. Padding with a value and joining select with a padded mask, so that NaN and
infinity in one place never reach another.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import cast

import numpy as np

from tunegrad.errors import AxisError, ShapeError
from tunegrad.ir import graph
from tunegrad.ir.dtypes import BOOL, promote
from tunegrad.ir.graph import Node

from .elementwise import where

Axes = int | Sequence[int] | None


def flat(shape: Sequence[int | Sequence[int]]) -> Sequence[int]:
    """``f(2, 3)`` and ``f((2, 3))`` alike."""
    inner = shape[0] if len(shape) == 1 else None
    return inner if isinstance(inner, Sequence) else cast("Sequence[int]", shape)


def integer(op: str, what: str, value: object, least: int | None = None) -> int:
    """``value`` as an int.

    Raises:
        ShapeError: not a whole number, or below ``least``.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ShapeError(f"{op}: {what} is {value!r}, it must be an integer")
    number = int(value)
    if least is not None and number < least:
        raise ShapeError(f"{op}: {what} is {number}, it must be at least {least}")
    return number


def extents(op: str, shape: object, least: int = 0) -> tuple[int, ...]:
    """A shape (or one extent) as a tuple of ints, each at least ``least``."""
    listed = shape if isinstance(shape, Sequence) and not isinstance(shape, str) else (shape,)
    return tuple(integer(op, "an extent", s, least) for s in listed)


def axis_of(op: str, axis: object, shape: tuple[int, ...], rank: int | None = None) -> int:
    """An axis counted from the front; ``rank`` where it is not that of ``shape``.

    Raises:
        AxisError: the shape has no such axis.
    """
    n = len(shape) if rank is None else rank
    number = integer(op, "axis", axis)
    if not -n <= number < n:
        valid = f"valid: {-n} to {n - 1}" if n else "it has no axes"
        raise AxisError(f"{op}: axis {number} is not in shape {shape} ({valid})")
    return number % n


def axes_of(op: str, axis: Axes, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Axes counted from the front, in the order given; None is all of them.

    A scalar has none: 0 and -1, which PyTorch takes there, are left out.
    """
    if axis is None:
        return tuple(range(len(shape)))
    listed = axis if isinstance(axis, Sequence) and not isinstance(axis, str) else (axis,)
    found = tuple(axis_of(op, a, shape or (1,)) for a in listed)
    if len(set(found)) != len(found):
        raise ShapeError(f"{op}: axes {tuple(listed)} name one dimension of shape {shape} twice")
    return found if shape else ()


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The order that puts dimensions back which ``order`` permuted."""
    return tuple(order.index(d) for d in range(len(order)))


def cat(nodes: Sequence[Node], axis: int, op: str = "cat") -> Node:
    """Nodes joined along ``axis``: each padded to its place and selected by a padded mask. Those of
    shape (0,) count for the dtype only, beside others, as in PyTorch.
    """
    if not nodes:
        raise ShapeError(f"{op}: at least one tensor is needed")
    kind, total = functools.reduce(promote, (x.dtype for x in nodes)), 0
    nodes = [x for x in nodes if x.shape != (0,)] or nodes[:1]
    dim = axis_of(op, axis, nodes[0].shape)
    for x in nodes:
        same = len(x.shape) == len(nodes[0].shape) and all(
            a == b for i, (a, b) in enumerate(zip(x.shape, nodes[0].shape, strict=True)) if i != dim
        )
        if not same:
            raise ShapeError(
                f"{op}: shapes {nodes[0].shape} and {x.shape} differ outside axis {dim}"
            )
        total += x.shape[dim]
    result: Node | None = None
    begin = 0
    for x in (n for n in nodes if n.shape[dim]):
        end = begin + x.shape[dim]
        place = tuple((begin, total - end) if i == dim else (0, 0) for i in range(len(x.shape)))
        value, mask = (
            graph.pad(graph.cast(x, kind), place),
            graph.pad(graph.full(True, x.shape, BOOL), place),
        )
        result = value if result is None else where(mask, value, result)
        begin = end
    return graph.cast(nodes[0], kind) if result is None else result


def extended(x: Node, dim: int, extent: int) -> Node:
    """Cut, or filled with zeros, at the end of a dimension."""
    more = max(0, extent - x.shape[dim])
    padded = graph.pad(x, tuple((0, more if d == dim else 0) for d in range(len(x.shape))))
    limits = ((0, extent if d == dim else e) for d, e in enumerate(padded.shape))
    return graph.shrink(padded, tuple(limits))


def spaced(x: Node, dim: int, step: int) -> Node:
    """``step`` - 1 zeros behind each element of a dimension."""
    if step == 1:
        return x
    lead, tail, count = x.shape[:dim], x.shape[dim + 1 :], x.shape[dim]
    wide = extended(graph.reshape(x, (*lead, count, 1, *tail)), dim + 1, step)
    return graph.reshape(wide, (*lead, count * step, *tail))


def ravel(x: Node) -> Node:
    """All elements in one dimension."""
    return graph.reshape(x, (x.size,))


def diagonal(x: Node, offset: int, a: int, b: int) -> Node:
    """Elements at (i, i + offset) of two dimensions, as a new last dimension."""
    order = (*(d for d in range(len(x.shape)) if d not in (a, b)), a, b)
    moved = graph.permute(x, order)
    *lead, rows, columns = moved.shape
    top, left = max(0, -offset), max(0, offset)
    count = max(0, min(rows - top, columns - left))
    ends = tuple((0, s) for s in lead)
    if not count:
        return graph.reshape(graph.shrink(moved, (*ends, (0, 0), (0, columns))), (*lead, 0))
    # rows of count + 1 elements put each diagonal element first
    square = graph.shrink(moved, (*ends, (top, top + count), (left, left + count)))
    line = graph.reshape(square, (*lead, count * count))
    padded = graph.shrink(line, (*ends, (0, (count - 1) * (count + 1) + 1)))
    return graph.reshape(graph.window(padded, len(lead), 1, count + 1), (*lead, count))


def mirrored_windows(x: Node, dim: int, size: int, stride: int, dilation: int, extent: int) -> Node:
    """Windows that turn those of WINDOW round: the place that reads ``i`` by tap ``k``.

    ``out[.., i, .., k] = x[.., (i - k * dilation) / stride, ..]`` for i up to ``extent``, zero
    where there is none.
    """
    x = extended(spaced(x, dim, stride), dim, (x.shape[dim] - 1) * stride + 1)
    before = dilation * (size - 1)
    ends = (before, extent - x.shape[dim])
    padded = graph.pad(x, tuple(ends if d == dim else (0, 0) for d in range(len(x.shape))))
    return graph.flip(graph.window(padded, dim, size, 1, dilation), (len(padded.shape),))
