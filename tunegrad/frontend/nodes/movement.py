"""Movement operations on graph nodes: axes from the end, extents of -1, slices, padding with any
value, joining.

Nothing here moves data. Padding with a value and joining select with a padded mask, so that NaN and
infinity in one place never reach another.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, cast

import numpy as np

from tunegrad.errors import AxisError, DTypeError, IndexOutOfRange, ShapeError
from tunegrad.ir import graph
from tunegrad.ir.dtypes import BOOL, promote
from tunegrad.ir.graph import Node

from .elementwise import Scalar, broadcast, where

Axes = int | Sequence[int] | None
Whole = int | np.integer[Any]


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


def reshape(x: Node, shape: Sequence[int]) -> Node:
    """The same elements under another shape; one extent may be -1."""
    sizes = list(extents("reshape", shape, -1))
    unknown = [i for i, s in enumerate(sizes) if s == -1]
    if len(unknown) > 1:
        raise ShapeError(f"reshape: {x.shape} to {tuple(sizes)} has more than one extent of -1")
    if unknown:
        rest = prod(s for s in sizes if s != -1)
        if rest == 0 or x.size % rest:
            raise ShapeError(
                f"reshape: {x.shape} has {x.size} elements, {tuple(sizes)} takes multiples of "
                f"{rest}"
            )
        sizes[unknown[0]] = x.size // rest
    return graph.reshape(x, tuple(sizes))


def permute(x: Node, order: Sequence[int]) -> Node:
    """Dimensions in another order."""
    axes = tuple(axis_of("permute", a, x.shape) for a in order)
    if sorted(axes) != list(range(len(x.shape))):
        raise ShapeError(
            f"permute: {tuple(order)} is not an order of the {len(x.shape)} dimensions of {x.shape}"
        )
    return graph.permute(x, axes)


def swap(x: Node, a: int, b: int) -> Node:
    """Two dimensions exchanged."""
    order = list(range(len(x.shape)))
    if not order:
        axis_of("transpose", a, (1,)), axis_of("transpose", b, (1,))
        return x
    i, j = axis_of("transpose", a, x.shape), axis_of("transpose", b, x.shape)
    order[i], order[j] = order[j], order[i]
    return graph.permute(x, tuple(order))


def broadcast_to(x: Node, shape: Sequence[int], op: str = "broadcast_to") -> Node:
    """``x`` repeated to ``shape``; -1 keeps an extent."""
    target = list(extents(op, shape, -1))
    lead = len(target) - len(x.shape)
    if lead < 0:
        raise ShapeError(f"{op}: {x.shape} has more dimensions than {tuple(target)}")
    for i, size in enumerate(target):
        have = x.shape[i - lead] if i >= lead else None
        if size == -1 and have is not None:
            target[i] = have
        elif size == -1 or have not in (None, 1, size):
            raise ShapeError(f"{op}: {x.shape} does not broadcast to {tuple(shape)}")
    return broadcast(x, tuple(target))


def pad(x: Node, widths: Sequence[object], value: Scalar = 0) -> Node:
    """``value`` before and after each dimension; ``widths`` holds one pair for each."""
    pairs: list[tuple[int, int]] = []
    for width in widths:
        if not isinstance(width, Sequence) or len(width) != 2:
            raise ShapeError(
                f"pad: width {width!r} of shape {x.shape} must be a pair (before, after)"
            )
        pairs.append(
            (integer("pad", "a width", width[0], 0), integer("pad", "a width", width[1], 0))
        )
    if len(pairs) != len(x.shape):
        raise ShapeError(
            f"pad: {len(pairs)} pairs of widths for the {len(x.shape)} dimensions of {x.shape}"
        )
    padded = graph.pad(x, tuple(pairs))
    if padded is x or (value == 0 and str(value) != "-0.0"):
        return padded
    inside = graph.pad(graph.full(True, x.shape, BOOL), tuple(pairs))
    filled = where(inside, padded, value)
    if filled.dtype != x.dtype:
        raise DTypeError(f"pad: {value!r} is not a value of {x.dtype}")
    return filled


def shrink(x: Node, limits: Sequence[Sequence[int]]) -> Node:
    """The part ``begin <= i < end`` of each dimension."""
    if len(limits) != len(x.shape) or any(len(pair) != 2 for pair in limits):
        raise ShapeError(
            f"shrink: {limits} must be one pair (begin, end) for each dimension of {x.shape}"
        )
    return graph.shrink(
        x,
        tuple(
            (integer("shrink", "a limit", a), integer("shrink", "a limit", b)) for a, b in limits
        ),
    )


def flip(x: Node, axis: Axes) -> Node:
    """Dimensions reversed."""
    return graph.flip(x, axes_of("flip", axis, x.shape))


def squeeze(x: Node, axis: Axes) -> Node:
    """Dimensions of extent 1 removed; None removes all of them."""
    gone = axes_of("squeeze", axis, x.shape)
    if axis is None:
        gone = tuple(a for a in gone if x.shape[a] == 1)
    for a in gone:
        if x.shape[a] != 1:
            raise ShapeError(f"squeeze: axis {a} of shape {x.shape} has extent {x.shape[a]}, not 1")
    return graph.reshape(x, tuple(s for i, s in enumerate(x.shape) if i not in gone))


def unsqueeze(x: Node, axis: int) -> Node:
    """A dimension of extent 1 put in front of ``axis``."""
    at = axis_of("unsqueeze", axis, x.shape, len(x.shape) + 1)
    return graph.reshape(x, (*x.shape[:at], 1, *x.shape[at:]))


def window(x: Node, axis: int, size: int, stride: int, dilation: int) -> Node:
    """Sliding windows along ``axis``, the position inside a window as a new last dimension."""
    dim = axis_of("window", axis, x.shape)
    numbers = (
        integer("window", w, v, 1)
        for w, v in (("size", size), ("stride", stride), ("dilation", dilation))
    )
    return graph.window(x, dim, *numbers)


def cat(nodes: Sequence[Node], axis: int, op: str = "cat") -> Node:
    """Nodes joined along ``axis``: each padded to its place and selected by a padded mask."""
    if not nodes:
        raise ShapeError(f"{op}: at least one tensor is needed")
    dim = axis_of(op, axis, nodes[0].shape)
    kind, total = nodes[0].dtype, 0
    for x in nodes:
        same = len(x.shape) == len(nodes[0].shape) and all(
            a == b for i, (a, b) in enumerate(zip(x.shape, nodes[0].shape, strict=True)) if i != dim
        )
        if not same:
            raise ShapeError(
                f"{op}: shapes {nodes[0].shape} and {x.shape} differ outside axis {dim}"
            )
        kind, total = promote(kind, x.dtype), total + x.shape[dim]
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


def stack(nodes: Sequence[Node], axis: int) -> Node:
    """Nodes of one shape joined along a new axis."""
    for x in nodes:
        if x.shape != nodes[0].shape:
            raise ShapeError(f"stack: shapes {nodes[0].shape} and {x.shape} differ")
    if nodes:
        axis = axis_of("stack", axis, nodes[0].shape, len(nodes[0].shape) + 1)
    return cat([unsqueeze(x, axis) for x in nodes], axis, "stack")


def index(x: Node, key: object) -> Node:
    """Basic indexing as in numpy: integers, slices with any step, None and an Ellipsis.

    Raises:
        AxisError: too many indices, or one out of range.
        DTypeError: an index of another kind.
    """
    keys = _full_key(x, key)
    limits: list[tuple[int, int]] = []
    reversed_dims: list[int] = []
    steps: list[tuple[int, int]] = []
    shape: list[int] = []
    for item in keys:
        if item is None:
            shape.append(1)
            continue
        dim = len(limits)
        extent = x.shape[dim]
        if not isinstance(item, slice):
            at = _position(item, extent, dim, x.shape)
            limits.append((at, at + 1))
            continue
        span = _positions(item, extent)
        count, step = len(span), abs(span.step)
        low = min(span[0], span[-1]) if count else 0
        limits.append((low, low + (count - 1) * step + 1 if count else low))
        if count > 1 and span.step < 0:
            reversed_dims.append(dim)
        if count > 1 and step > 1:
            steps.append((dim, step))
        shape.append(count)
    y = graph.flip(graph.shrink(x, tuple(limits)), tuple(reversed_dims))
    for dim, step in steps:
        y = graph.window(y, dim, 1, step)
    return graph.reshape(y, tuple(shape))


def _position(item: Whole, extent: int, dim: int, shape: tuple[int, ...]) -> int:
    """A position along one dimension, counted from the front."""
    at = int(item)
    if not -extent <= at < extent:
        raise IndexOutOfRange(
            f"getitem: index {at} is out of range for extent {extent} of dimension {dim} of {shape}"
        )
    return at % extent


def _positions(item: slice, extent: int) -> range:
    try:
        return range(extent)[item]
    except (TypeError, ValueError) as error:
        raise ShapeError(f"getitem: slice {item}: {error}") from None


def _full_key(x: Node, key: object) -> list[Whole | slice | None]:
    """One item for each dimension, Nones between them, the Ellipsis written out."""
    items = list(key) if isinstance(key, tuple) else [key]
    for item in items:
        basic = item is None or item is Ellipsis or isinstance(item, slice | int | np.integer)
        if isinstance(item, bool) or not basic:
            raise DTypeError(
                f"getitem: index {item!r} on shape {x.shape} is not an integer, slice, None or ..."
            )
    dots = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise ShapeError(f"getitem: more than one ... in an index of shape {x.shape}")
    used = sum(item is not None and item is not Ellipsis for item in items)
    missing = len(x.shape) - used
    if missing < 0:
        raise AxisError(
            f"getitem: {used} indices for the {len(x.shape)} dimensions of shape {x.shape}"
        )
    at = dots[0] if dots else len(items)
    filled = items[:at] + [slice(None)] * missing + items[at + len(dots) :]
    return [i for i in filled if i is None or isinstance(i, slice | int | np.integer)]
