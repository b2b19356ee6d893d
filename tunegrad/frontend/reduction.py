"""Reductions on graph nodes, and the matrix product, which is one.

Sums and products of integers and bools are i64 (as numpy's); f16 and bf16 accumulate in f32. The matrix product keeps
the promoted dtype of its operands. It is nothing special in the graph: expand, multiply, sum over the last axis.
"""

from __future__ import annotations

from tunegrad.errors import ShapeError
from tunegrad.ir import graph
from tunegrad.ir.dtypes import I32, I64, DType
from tunegrad.ir.expr import Op
from tunegrad.ir.graph import Node

from .elementwise import binary, broadcast, broadcast_shapes, compare, result_type
from .movement import Axes, axes_of

__all__ = ["fold", "matmul"]

_NAMES = {Op.ADD: "sum", Op.MUL: "prod", Op.MAX: "max", Op.MIN: "min"}


def fold(op: Op, x: Node, axis: Axes, keepdims: bool) -> Node:
    """``x`` folded over ``axis`` (None: all axes) with ADD, MUL, MAX or MIN.

    Raises:
        ShapeError: no such axis, or a maximum or minimum of no elements.
    """
    name = _NAMES[op]
    axes = axes_of(name, axis, x.shape)
    if op in (Op.MAX, Op.MIN):
        if any(x.shape[a] == 0 for a in axes):
            raise ShapeError(f"{name}: shape {x.shape} has no elements along axes {axes}, and {name} needs one")
        return _without(_extremum(op, x, axes), axes, keepdims)
    kind = x.dtype if x.dtype.is_float else I64
    total = graph.reduce(op, graph.cast(x, kind.compute), axes)
    return graph.cast(_without(total, axes, keepdims), kind)


def _extremum(op: Op, x: Node, axes: tuple[int, ...]) -> Node:
    if x.dtype.is_bool:
        return compare("ne", graph.reduce(op, graph.cast(x, I32), axes), 0)
    return graph.cast(graph.reduce(op, graph.cast(x, x.dtype.compute), axes), x.dtype)


def _without(x: Node, axes: tuple[int, ...], keepdims: bool) -> Node:
    if keepdims:
        return x
    return graph.reshape(x, tuple(s for i, s in enumerate(x.shape) if i not in axes))


def matmul(a: Node, b: Node) -> Node:
    """``a @ b`` as numpy's: the last axis of ``a`` with the second to last of ``b``, leading axes broadcast.

    Raises:
        ShapeError: a scalar operand, inner extents that differ, or leading axes that do not broadcast.
    """
    if not a.shape or not b.shape:
        raise ShapeError(f"matmul: shapes {a.shape} and {b.shape}: a scalar has no axis to sum over; use *")
    inner = b.shape[0] if len(b.shape) == 1 else b.shape[-2]
    if a.shape[-1] != inner:
        raise ShapeError(f"matmul: shapes {a.shape} and {b.shape}: inner extents {a.shape[-1]} and {inner} differ")
    left = graph.reshape(a, (1, *a.shape)) if len(a.shape) == 1 else a
    right = graph.reshape(b, (*b.shape, 1)) if len(b.shape) == 1 else b
    out = _matrices(left, right, f"matmul of {a.shape} and {b.shape}")
    rows = out.shape[-2:-1] if len(a.shape) > 1 else ()
    columns = out.shape[-1:] if len(b.shape) > 1 else ()
    return graph.reshape(out, (*out.shape[:-2], *rows, *columns))


def _matrices(a: Node, b: Node, name: str) -> Node:
    """(.., M, K) and (.., K, N): expand both to (.., M, N, K), multiply, sum over K."""
    kind: DType = result_type(a, b)
    work = I32 if kind.is_bool else kind.compute
    lead = broadcast_shapes(name, a.shape[:-2], b.shape[:-2])
    (m, k), n = a.shape[-2:], b.shape[-1]
    rank = len(b.shape)
    turned = graph.permute(graph.cast(b, work), (*range(rank - 2), rank - 1, rank - 2))
    left = graph.reshape(graph.cast(a, work), (*a.shape[:-2], m, 1, k))
    right = graph.reshape(turned, (*b.shape[:-2], 1, n, k))
    full = (*lead, m, n, k)
    product = binary(Op.MUL, broadcast(left, full), broadcast(right, full))
    total = graph.reshape(graph.reduce(Op.ADD, product, (len(full) - 1,)), full[:-1])
    return compare("ne", total, 0) if kind.is_bool else graph.cast(total, kind)
