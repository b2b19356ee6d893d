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
"""

from __future__ import annotations

from tunegrad.errors import DTypeError, ShapeError
from tunegrad.ir import graph
from tunegrad.ir.dtypes import F32, F64, I32, I64, U32, U64, DType, dtype_of
from tunegrad.ir.expr import Op
from tunegrad.ir.graph import Node

from .arrays import DTypeLike
from .elementwise import binary, broadcast, broadcast_shapes, compare, result_type
from .movement import Axes, axes_of

__all__ = ["accumulator", "fold", "matmul"]

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
            raise ShapeError(
                f"{name}: shape {x.shape} has no elements along axes {axes}, and {name} needs one"
            )
        return _without(_extremum(op, x, axes), axes, keepdims)
    whole = U64 if x.dtype == U64 else I64
    acc = accumulator(name, x.dtype, accumulate, None if x.dtype.is_float else whole)
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
