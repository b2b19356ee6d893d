"""Reductions on graph nodes, and the matrix product, which is one.

Sums and products of integers and bools are i64 (as PyTorch's), of u64 u64; f16 and bf16 accumulate
in f32. The matrix product keeps the promoted dtype of its operands. It is nothing special in the
graph: expand, multiply, sum over the last axis.

    accumulate    of bf16, f16, f32    of f64    of integers                   of sums of bools
    default       f32                  f64       sum: i64, matmul: their own   i64
    also          f64                            i32, i64, unsigned: u32, u64  i32, i64

Of integers those are allowed that hold all values of what is added up.

The accumulator is part of the kernel, and no schedule changes it. A float result keeps its dtype
whatever the accumulator; an integer one has the accumulator's, where it is given.

Cumulative sums, products, maxima and minima on graph nodes.

    y[i] = x[0] op ... op x[i]

A block of 8 elements is one reduction over a triangle: element i folds those up to i. Longer axes
are blocks, whose totals are scanned in the same way and folded in front of the blocks after them:
so every element costs 8 folds a level, however long the axis is, and all of them run at once.

    x  3 1 2 | 4 1 0 | 2 2        blocks of 3
       3 4 6 | 4 5 5 | 2 4        each by itself
       0     | 6     | 11         totals before each block
    y  3 4 6 | 10 11 11 | 13 15

Finds the greatest and the least elements, and the order of all of them, on graph nodes.

    rank[i] = how many elements come before x[i]        n * n comparisons, one reduction
    order[r] = the i whose rank is r                    n * (as many as are asked for)
    sorted = x at order                                 a gather

Equal elements keep their order, whatever the direction, so every sort is stable and the same on
every device. NaN comes after all numbers; in descending order first, as in PyTorch. Axes of more
than 8,192 elements are sorted by a bitonic network, a kernel for each of its passes. The first few
of an axis are looked for one after the other, a kernel for each; the first ones of a long axis are
the first of the first ones of its blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Literal

from tunegrad.errors import AxisError, DTypeError, ShapeError
from tunegrad.ir import graph
from tunegrad.ir.dtypes import F32, F64, I32, I64, U32, U64, DType, dtype_of
from tunegrad.ir.expr import Op
from tunegrad.ir.graph import Node
from tunegrad.ir.kernel import identity
from tunegrad.lazy import dataclass

from .arrays import DTypeLike
from .elementwise import binary, broadcast, broadcast_shapes, compare, result_type, where
from .movement import Axes, axes_of, axis_of, cat, inverse

_NAMES = {Op.ADD: "sum", Op.MUL: "prod", Op.MAX: "max", Op.MIN: "min"}


def accumulator(
    name: str, kind: DType, accumulate: DTypeLike | None, default: DType | None = None
) -> DType:
    """The type in which sums of ``kind`` are added up: ``accumulate``, or by default the type that
    ``kind`` is computed in.

    Raises:
        DTypeError: ``accumulate`` is narrower than what it adds up, of another kind, or a 16-bit
        type.
    """
    if accumulate is None:
        return kind.compute if default is None else default
    chosen = dtype_of(accumulate)
    wide = (F32, F64) if kind.is_float else (I32, I64) if kind.signed else (I32, I64, U32, U64)
    valid = [t for t in wide if t.bits >= kind.bits + (t.signed and not kind.signed)]
    if chosen not in valid:
        raise DTypeError(
            f"{name}: accumulate={chosen} can not add up {kind}; valid: "
            f"{', '.join(map(str, valid))}"
        )
    return chosen


def fold(op: Op, x: Node, axis: Axes, keepdims: bool, accumulate: DTypeLike | None = None) -> Node:
    """``x`` folded over ``axis`` (None: all axes) with ADD, MUL, MAX or MIN; ``accumulate`` is for
    ADD and MUL.

    Raises:
        DTypeError: ``accumulate`` can not add up ``x``.
        ShapeError: no such axis, or a maximum or minimum of no elements.
    """
    name = _NAMES[op]
    axes = axes_of(name, axis, x.shape)
    if op in (Op.MAX, Op.MIN):
        if any(x.shape[a] == 0 for a in axes):
            raise AxisError(
                f"{name}: shape {x.shape} has no elements along axes {axes}, and {name} needs one"
            )
        return _without(_extremum(op, x, axes), axes, keepdims)
    whole = U64 if x.dtype == U64 else I64
    exact = F64 if op is Op.MUL else None  # each product rounds all that are in it
    acc = accumulator(name, x.dtype, accumulate, exact if x.dtype.is_float else whole)
    total = graph.reduce(op, graph.cast(x, acc), axes)
    return graph.cast(_without(total, axes, keepdims), x.dtype if x.dtype.is_float else acc)


def _extremum(op: Op, x: Node, axes: tuple[int, ...]) -> Node:
    if x.dtype.is_bool:
        return compare("ne", graph.reduce(op, graph.cast(x, I32), axes), 0)
    return graph.cast(graph.reduce(op, graph.cast(x, x.dtype.compute), axes), x.dtype)


def _without(x: Node, axes: tuple[int, ...], keepdims: bool) -> Node:
    if keepdims:
        return x
    return graph.reshape(x, tuple(s for i, s in enumerate(x.shape) if i not in axes))


def matmul(a: Node, b: Node, accumulate: DTypeLike | None = None) -> Node:
    """``a @ b`` as numpy's: the last axis of ``a`` with the second to last of ``b``, leading axes
    broadcast.

    Raises:
        DTypeError: ``accumulate`` can not add up the products, or the operands are bools, which are
        not added up. ShapeError: a scalar operand, inner extents that differ, or leading axes that
        do not broadcast.
    """
    if not a.shape or not b.shape:
        raise ShapeError(
            f"matmul: shapes {a.shape} and {b.shape}: a scalar has no axis to sum over; use *"
        )
    inner = b.shape[0] if len(b.shape) == 1 else b.shape[-2]
    if a.shape[-1] != inner:
        raise ShapeError(
            f"matmul: shapes {a.shape} and {b.shape}: inner extents {a.shape[-1]} and {inner} "
            "differ"
        )
    left = graph.reshape(a, (1, *a.shape)) if len(a.shape) == 1 else a
    right = graph.reshape(b, (*b.shape, 1)) if len(b.shape) == 1 else b
    out = _matrices(left, right, f"matmul of {a.shape} and {b.shape}", accumulate)
    rows = out.shape[-2:-1] if len(a.shape) > 1 else ()
    columns = out.shape[-1:] if len(b.shape) > 1 else ()
    return graph.reshape(out, (*out.shape[:-2], *rows, *columns))


def _matrices(a: Node, b: Node, name: str, accumulate: DTypeLike | None) -> Node:
    """(.., M, K) and (.., K, N): expand both to (.., M, N, K), multiply, sum over K."""
    kind: DType = result_type(a, b)
    if kind.is_bool and accumulate is not None:
        raise DTypeError(
            f"matmul: accumulate={dtype_of(accumulate)}: the product of bools is a bool; cast "
            "them first"
        )
    work = I32 if kind.is_bool else accumulator("matmul", kind, accumulate)
    lead = broadcast_shapes(name, a.shape[:-2], b.shape[:-2])
    (m, k), n = a.shape[-2:], b.shape[-1]
    rank = len(b.shape)
    turned = graph.permute(graph.cast(b, work), (*range(rank - 2), rank - 1, rank - 2))
    left = graph.reshape(graph.cast(a, work), (*a.shape[:-2], m, 1, k))
    right = graph.reshape(turned, (*b.shape[:-2], 1, n, k))
    full = (*lead, m, n, k)
    product = binary(Op.MUL, broadcast(left, full), broadcast(right, full))
    total = graph.reshape(graph.reduce(Op.ADD, product, (len(full) - 1,)), full[:-1])
    return (
        compare("ne", total, 0)
        if kind.is_bool
        else graph.cast(total, kind if kind.is_float else work)
    )


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
    moved = graph.permute(scanned, inverse(order)) if x.size else scanned
    if result.is_bool:
        return compare("ne", moved, 0)
    return graph.cast(moved, result)


def cumulative_extremum(kind: Literal["max", "min"], x: Node, axis: int) -> tuple[Node, Node]:
    """The cumulative maximum or minimum and its place (i64, last of equals): ``torch.cummax``."""
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


_RANKED = 8192
"""Elements up to which all pairs are compared."""

_PART = 1024
"""Elements of a block of a long axis, of which the first ones are wanted."""

_FEW, _PAIRED = 32, 128
"""So many are looked for one after the other, in rows of more than that many."""


def argextremum(op: Op, x: Node, axis: int | None, keepdims: bool = False) -> Node:
    """Position of the MAX or MIN along an axis, an i64; the first of equal ones, and of NaNs.

    ``axis`` None: in the row-major order of all elements.

    Raises:
        ShapeError: no such axis, or one without elements.
    """
    name = f"arg{op}"
    flat = graph.reshape(x, (x.size,)) if axis is None else x
    if not flat.shape:
        axis_of(name, axis, (1,))
        return graph.full(0, (), I64)
    at = 0 if axis is None else axis_of(name, axis, x.shape)
    if not flat.shape[at]:
        raise AxisError(f"{name}: shape {x.shape} has no elements along the axis")
    values = graph.cast(flat, I32) if flat.dtype.is_bool else flat
    best = graph.expand(fold(op, values, at, keepdims=True), flat.shape)
    found = compare("eq", values, best)
    if values.dtype.is_float:
        found = graph.elementwise(Op.OR, found, compare("ne", values, values))
    places = where(found, graph.iota(flat.shape, at, I32), flat.shape[at])
    first = graph.cast(graph.reduce(Op.MIN, places, (at,)), I64)
    if keepdims:
        return first if axis is not None else graph.reshape(first, (1,) * len(x.shape))
    return graph.reshape(first, tuple(s for d, s in enumerate(flat.shape) if d != at))


def argsort(x: Node, axis: int = -1, descending: bool = False) -> Node:
    """The positions of the elements in order along an axis, an i64 of the shape of ``x``."""
    return _along(x, axis, lambda rows: _order(rows, rows.shape[-1], descending), "argsort")


def sort(x: Node, axis: int = -1, descending: bool = False) -> tuple[Node, Node]:
    """The elements in order along an axis, and their positions (i64)."""
    order = argsort(x, axis, descending)
    return _picked(x, order, axis), order


def topk(x: Node, k: int, axis: int = -1, largest: bool = True) -> tuple[Node, Node]:
    """The first ``k`` in descending order (``largest``) or ascending order, and their positions.

    Raises:
        ShapeError: no such axis, or fewer than ``k`` elements along it.
    """
    extent = x.shape[axis_of("topk", axis, x.shape)] if x.shape else 1
    if not 0 <= k <= extent:
        raise ShapeError(f"topk: {k} of {extent} elements of shape {x.shape}")
    order = _along(x, axis, lambda rows: _first(rows, k, largest), "topk")
    return _picked(x, order, axis), order


def _picked(x: Node, order: Node, axis: int) -> Node:
    if not x.shape or not order.size:
        return graph.reshape(x, order.shape) if order.size else graph.full(0, order.shape, x.dtype)
    return graph.gather(x, order, axis_of("sort", axis, x.shape))


def _along(x: Node, axis: int, function: Callable[[Node], Node], name: str) -> Node:
    """A function of rows applied along any axis; i32 positions become i64."""
    at = axis_of(name, axis, x.shape or (1,))
    if not x.shape:
        return graph.full(0, (), I64)
    order = (*(d for d in range(len(x.shape)) if d != at), at)
    rows = graph.permute(graph.cast(x, I32) if x.dtype.is_bool else x, order)
    found = function(graph.cast(rows, rows.dtype.compute))
    return graph.permute(graph.cast(found, I64), inverse(order))


def _first(x: Node, k: int, descending: bool) -> Node:
    """Positions of the first ``k`` of rows."""
    *rows, n = x.shape
    ends = tuple((0, s) for s in rows)
    if k <= _FEW and n > _PAIRED:
        return _one_by_one(x, k, descending)
    if n <= 2 * _PART or 4 * k > _PART:
        return graph.shrink(_order(x, k, descending), (*ends, (0, k)))
    parts = -(-n // _PART)
    padded = graph.pad(x, (*((0, 0) for _ in rows), (0, parts * _PART - n)))
    inside = compare("lt", graph.iota(padded.shape, len(rows), I32), n)
    last = graph.full(_last(x, descending), padded.shape, x.dtype)
    blocks = graph.reshape(where(inside, padded, last), (*rows, parts, _PART))
    local = graph.contiguous(_order(blocks, k, descending))
    values = graph.contiguous(graph.gather(blocks, local, len(rows) + 1))
    starts = binary(Op.MUL, graph.iota(local.shape, len(rows), I32), _PART)
    places = graph.contiguous(binary(Op.ADD, local, starts))
    flat = (*rows, parts * k)
    chosen = _first(graph.reshape(values, flat), k, descending)
    return graph.gather(graph.reshape(places, flat), chosen, len(rows))


def _last(x: Node, descending: bool) -> float | int:
    """A value that no element comes after."""
    if x.dtype.is_float:
        return -inf if descending else nan
    return x.dtype.least if descending else x.dtype.greatest


@dataclass(frozen=True, slots=True)
class _Keys:
    """Elements as they are compared: by key, then by tie, which is the position; NaNs are infinite,
    and their ties lie beyond all others.
    """

    key: Node
    tie: Node

    @staticmethod
    def of(x: Node, position: Node, extent: int, descending: bool) -> _Keys:
        if not x.dtype.is_float:
            return _Keys(x, position)
        numbers = compare("eq", x, x)
        beyond = binary(Op.ADD, position, -extent if descending else extent)
        return _Keys(where(numbers, x, inf), where(numbers, position, beyond))

    def moved(self, function: Callable[[Node], Node]) -> _Keys:
        return _Keys(function(self.key), function(self.tie))

    def before(self, other: _Keys, descending: bool) -> Node:
        """True where these come first."""
        a, b = (other.key, self.key) if descending else (self.key, other.key)
        tied = graph.elementwise(Op.AND, compare("eq", a, b), compare("lt", self.tie, other.tie))
        return graph.elementwise(Op.OR, compare("lt", a, b), tied)


def _one_by_one(x: Node, k: int, descending: bool) -> Node:
    """Each is the first of those that come after the one before: a kernel for each."""
    *rows, n = x.shape
    at = len(rows)
    mine = _Keys.of(x, graph.iota(x.shape, at, I32), n, descending)
    found: list[Node] = []
    for _ in range(k):
        key, tie = mine.key, mine.tie
        if found:
            before = _Keys.of(graph.gather(x, found[-1], at), found[-1], n, descending)
            later = before.moved(lambda y: graph.expand(y, x.shape)).before(mine, descending)
            key = where(later, key, identity(Op.MAX if descending else Op.MIN, x.dtype))
            tie = where(later, tie, 2 * n)
        best = graph.reduce(Op.MAX if descending else Op.MIN, key, (at,))
        equal = compare("eq", key, graph.expand(best, x.shape))
        first = graph.reduce(Op.MIN, where(equal, tie, 2 * n), (at,))
        found.append(graph.contiguous(_position(first, n)))
    return cat(found, at)


def _position(tie: Node, extent: int) -> Node:
    """The position that a tie is of."""
    low = where(compare("lt", tie, 0), binary(Op.ADD, tie, extent), tie)
    return where(compare("lt", low, extent), low, binary(Op.SUB, low, extent))


def _order(x: Node, count: int, descending: bool) -> Node:
    """Positions (i32) of at least the first ``count`` of rows, in order."""
    *rows, n = x.shape
    if not x.size or not count:
        return graph.full(0, (*rows, count), I32)
    if n > _RANKED:
        return _network(x, descending)
    at = len(rows)
    keys = _Keys.of(x, graph.iota(x.shape, at, I32), n, descending)
    if x.dtype.is_float:
        keys = keys.moved(graph.contiguous)
    pairs = (*rows, n, n)
    mine, other = (
        keys.moved(lambda y, shape=shape: graph.expand(graph.reshape(y, shape), pairs))  # type: ignore[misc]
        for shape in ((*rows, n, 1), (*rows, 1, n))
    )
    before = graph.cast(other.before(mine, descending), I32)
    rank = graph.contiguous(graph.reduce(Op.ADD, before, (at + 1,)))
    table = (*rows, count, n)
    ranks = graph.expand(graph.reshape(rank, (*rows, 1, n)), table)
    same = compare("eq", ranks, graph.iota(table, at, I32))
    numbers = where(same, graph.iota(table, at + 1, I32), 0)
    return graph.reshape(graph.reduce(Op.ADD, numbers, (at + 1,)), (*rows, count))


def _network(x: Node, descending: bool) -> Node:
    """Positions of rows in order by a bitonic network: each pass compares all neighbours at one
    distance and exchanges those that are not in the order of their run.
    """
    *rows, n = x.shape
    size = 1 << (n - 1).bit_length()
    order = graph.iota((*rows, size), len(rows), I32)
    run = 2
    while run <= size:
        distance = run // 2
        while distance:
            order = graph.contiguous(exchanged(x, order, run, distance, descending))
            distance //= 2
        run *= 2
    return graph.shrink(order, (*((0, s) for s in rows), (0, n)))


def exchanged(x: Node, order: Node, run: int, distance: int, descending: bool) -> Node:
    """One pass of the network: the positions ``order`` (rows of a power of two) of rows ``x``, of
    which those from its extent on stand for nothing, and come last.
    """
    *rows, size = order.shape
    n, at = x.shape[-1], len(rows)
    pairs = graph.reshape(order, (*rows, size // (2 * distance), 2, distance))
    other = graph.reshape(graph.flip(pairs, (at + 1,)), order.shape)
    theirs, mine = (
        _Keys.of(graph.gather(x, places, at), places, n, descending) for places in (other, order)
    )
    nothing = compare("le", n, graph.elementwise(Op.MAX, order, other))
    first = where(nothing, compare("lt", other, order), theirs.before(mine, descending))
    position = graph.iota(order.shape, at, I32)
    forwards = graph.elementwise(Op.XOR, _bit(position, distance), _bit(position, run))
    return where(graph.elementwise(Op.XOR, first, forwards), other, order)


def _bit(position: Node, value: int) -> Node:
    """True where a position has that power of two."""
    power = graph.full(value, position.shape, position.dtype)
    return compare("ne", graph.elementwise(Op.AND, position, power), 0)
