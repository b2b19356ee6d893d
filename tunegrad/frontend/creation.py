"""Tensors made of nothing, and functions of several tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tunegrad.errors import ShapeError
from tunegrad.ir import graph
from tunegrad.ir.dtypes import F32, I64, dtype_of
from tunegrad.ir.expr import Op
from tunegrad.ir.graph import Node

from . import elementwise as ew
from . import movement
from .arrays import DTypeLike
from .elementwise import Scalar
from .tensor import Tensor, TensorLike, apply

__all__ = ["arange", "cat", "full", "maximum", "minimum", "ones", "stack", "where", "zeros"]


def full(shape: int | Sequence[int], value: Scalar, dtype: DTypeLike | None = None) -> Tensor:
    """``value`` everywhere; the dtype is that of the value (f32 for floats) unless given."""
    kind = ew.result_type(value) if dtype is None else dtype_of(dtype)
    return Tensor.of(ew.constant(value, movement.extents("full", shape), kind))


def zeros(shape: int | Sequence[int], dtype: DTypeLike = F32) -> Tensor:
    """Zero everywhere."""
    return full(shape, 0, dtype)


def ones(shape: int | Sequence[int], dtype: DTypeLike = F32) -> Tensor:
    """One everywhere."""
    return full(shape, 1, dtype)


def arange(
    start: int | float,
    stop: int | float | None = None,
    step: int | float = 1,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """start, start + step, ... below stop; ``arange(n)`` counts from zero. i64 for ints, f32
    otherwise.

    Raises:
        ShapeError: a step of zero.
    """
    first, last = (0, start) if stop is None else (start, stop)
    if step == 0:
        raise ShapeError(f"arange: from {first} to {last} with a step of 0 never ends")
    whole = all(isinstance(v, int) for v in (first, last, step))
    kind = (I64 if whole else F32) if dtype is None else dtype_of(dtype)
    count = max(0, math.ceil((last - first) / step))
    work = kind.compute if kind.is_float else I64
    position = graph.cast(graph.iota((count,), 0), work)
    value = position if step == 1 else ew.binary(Op.MUL, position, step)
    return Tensor.of(graph.cast(value if first == 0 else ew.binary(Op.ADD, value, first), kind))


def where(condition: TensorLike, a: TensorLike, b: TensorLike) -> Tensor:
    """``a`` where the bool condition holds, else ``b``."""
    return apply("where", ew.where, condition, a, b)


def maximum(a: TensorLike, b: TensorLike) -> Tensor:
    """The larger one; NaN where either is NaN."""
    return apply("max", lambda x, y: ew.binary(Op.MAX, x, y), a, b)


def minimum(a: TensorLike, b: TensorLike) -> Tensor:
    """The smaller one; NaN where either is NaN."""
    return apply("min", lambda x, y: ew.binary(Op.MIN, x, y), a, b)


def cat(tensors: Sequence[TensorLike], axis: int = 0) -> Tensor:
    """Tensors joined along an axis; dtypes are promoted."""
    return _joined("cat", tensors, axis)


def stack(tensors: Sequence[TensorLike], axis: int = 0) -> Tensor:
    """Tensors of one shape joined along a new axis."""
    return _joined("stack", tensors, axis)


def _joined(op: str, tensors: Sequence[TensorLike], axis: int) -> Tensor:
    if not tensors:
        raise ShapeError(f"{op}: at least one tensor is needed")
    function = movement.cat if op == "cat" else movement.stack

    def nodes(*operands: Node | Scalar) -> Node:
        return function(
            [x if isinstance(x, Node) else ew.constant(x, (), ew.result_type(x)) for x in operands],
            axis,
        )

    return apply(op, nodes, *tensors)
