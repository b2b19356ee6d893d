"""Tensors made of nothing: numbers everywhere, ranges, grids, windows.

Shapes are given as one list or as several numbers; ``f(2, 3)`` and ``f((2, 3))`` are the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from tunegrad.errors import ShapeError
from tunegrad.ir import graph
from tunegrad.ir.dtypes import F32, I64, dtype_of
from tunegrad.ir.expr import Op

from .handle import TensorLike
from .nodes import elementwise as ew
from .nodes import movement
from .nodes.arrays import DTypeLike
from .nodes.elementwise import Scalar
from .spelling import spelled
from .tensor import Tensor, lift, where

__all__ = [
    "arange", "as_tensor", "asarray", "empty", "empty_like", "eye", "from_numpy", "full",
    "full_like", "linspace", "logspace", "meshgrid", "ones", "ones_like", "scalar_tensor",
    "tensor", "tril_indices", "triu_indices", "zeros", "zeros_like",
]  # fmt: skip

Extents = int | Sequence[int]


def tensor(data: Any, dtype: DTypeLike | None = None, requires_grad: bool = False) -> Tensor:
    """A tensor of a copy of an array, list or number."""
    return Tensor(data, dtype, requires_grad)


def as_tensor(data: Any, dtype: DTypeLike | None = None) -> Tensor:
    """A tensor itself, where it has that dtype; or one of an array, list or number."""
    if isinstance(data, Tensor):
        return data if dtype is None else data.cast(dtype)
    return Tensor(data, dtype)


def asarray(obj: Any, dtype: DTypeLike | None = None, copy: bool | None = None) -> Tensor:
    """A tensor of an array, list or number.

    ``copy``: True takes a copy in every case, None of what may be written to. False shares the
    memory of an array of numpy, or of any library on the CPU that speaks DLPack: a result is of
    what it holds when the result is computed. Raises ValueError where that needs a copy.
    """
    if copy:
        return Tensor(np.array(obj) if isinstance(obj, np.ndarray) else obj, dtype)
    if copy is None:
        return as_tensor(obj, dtype)
    if isinstance(obj, Tensor):
        made = as_tensor(obj, dtype)
        if made is not obj:
            raise ValueError(
                f"asarray: a Tensor of {obj.dtype} as {made.dtype} needs a copy, and copy is False"
            )
        return made
    return Tensor._sharing(obj, dtype)


def from_numpy(ndarray: np.ndarray[Any, Any]) -> Tensor:
    """A tensor of what a numpy array holds now.

    A read-only array is taken as it is; of one that may be written, the tensor has a copy, since
    values are computed when they are asked for, and must not depend on when that is.
    ``asarray(ndarray, copy=False)`` shares its memory.
    """
    return Tensor(ndarray)


def scalar_tensor(s: Scalar, dtype: DTypeLike | None = None) -> Tensor:
    """One number as a tensor of shape ()."""
    return full((), s, dtype)


@spelled
def full(size: Extents, fill_value: Scalar, dtype: DTypeLike | None = None) -> Tensor:
    """``fill_value`` everywhere; the dtype is that of the value (f32 for floats) unless given."""
    kind = ew.result_type(fill_value) if dtype is None else dtype_of(dtype)
    return Tensor.of(ew.constant(fill_value, movement.extents("full", size), kind))


def _of(value: Scalar, size: tuple[object, ...], dtype: DTypeLike) -> Tensor:
    """A shape as one list or as several numbers; a dtype may follow it by place."""
    listed = list(size)
    if len(listed) > 1 and not isinstance(listed[-1], int | np.integer):
        dtype = cast("DTypeLike", listed.pop())
    if len(listed) == 1 and isinstance(listed[0], Sequence | int):
        return full(cast("Extents", listed[0]), value, dtype)
    return full(cast("Sequence[int]", listed), value, dtype)


@spelled
def zeros(*size: Any, dtype: DTypeLike = F32) -> Tensor:
    """Zero everywhere."""
    return _of(0, size, dtype)


@spelled
def ones(*size: Any, dtype: DTypeLike = F32) -> Tensor:
    """One everywhere."""
    return _of(1, size, dtype)


@spelled
def empty(*size: Any, dtype: DTypeLike = F32) -> Tensor:
    """Zero everywhere: there is no memory without values."""
    return _of(0, size, dtype)


@spelled
def full_like(input: TensorLike, fill_value: Scalar, dtype: DTypeLike | None = None) -> Tensor:
    """``fill_value`` in the shape of a tensor (and its dtype, unless given)."""
    like = lift(input, "full_like")
    kind = like.dtype if dtype is None else dtype_of(dtype)
    return Tensor.of(ew.constant(fill_value, like.shape, kind, "full_like"))


def zeros_like(input: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """Zeros in the shape of a tensor (and its dtype, unless given)."""
    return full_like(input, 0, dtype)


def ones_like(input: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """Ones in the shape of a tensor (and its dtype, unless given)."""
    return full_like(input, 1, dtype)


def empty_like(input: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """Zeros in the shape of a tensor (and its dtype, unless given)."""
    return full_like(input, 0, dtype)


@spelled
def arange(
    start: int | float,
    end: int | float | None = None,
    step: int | float = 1,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """start, start + step, ... below end; ``arange(n)`` counts from zero. i64 for ints, f32
    otherwise.

    Of integers, start and step are rounded towards zero first, as PyTorch does; of i64 end is, too.

    Raises:
        ShapeError: a step of zero.
    """
    first, last = (0, start) if end is None else (start, end)
    whole = all(isinstance(v, int) for v in (first, last, step))
    kind = (I64 if whole else F32) if dtype is None else dtype_of(dtype)
    asked = step
    if kind == I64:
        first, last, step = int(first), int(last), int(step)
    if step == 0:
        raise ShapeError(f"arange: from {first} to {last} with a step of {asked} never ends")
    count = max(0, math.ceil((last - first) / step))
    if kind.is_int:
        first, step = int(first), int(step)
    work = kind.compute if kind.is_float else I64
    position = graph.cast(graph.iota((count,), 0), work)
    value = position if step == 1 else ew.binary(Op.MUL, position, step)
    return Tensor.of(graph.cast(value if first == 0 else ew.binary(Op.ADD, value, first), kind))


@spelled
def linspace(start: float, end: float, steps: int, dtype: DTypeLike = F32) -> Tensor:
    """``steps`` numbers from start to end, both included, equally far apart."""
    count = movement.integer("linspace", "steps", steps, 0)
    kind = dtype_of(dtype)
    work = kind.compute if kind.is_float else dtype_of("f64")
    step = (end - start) / (count - 1) if count > 1 else 0.0
    place = Tensor.of(graph.cast(graph.iota((count,), 0), work))
    front, back = place * step + start, (place - (count - 1)) * step + end
    return where(place < count / 2, front, back).cast(kind)  # both ends exact


@spelled
def logspace(
    start: float, end: float, steps: int, base: float = 10.0, dtype: DTypeLike = F32
) -> Tensor:
    """Powers of ``base``, whose exponents are equally far apart."""
    return (float(base) ** linspace(start, end, steps, "f64")).cast(dtype)


def eye(n: int, m: int | None = None, dtype: DTypeLike = F32) -> Tensor:
    """Ones on the diagonal of a matrix of n rows and m columns (n unless given)."""
    rows = movement.integer("eye", "n", n, 0)
    columns = rows if m is None else movement.integer("eye", "m", m, 0)
    shape = (rows, columns)
    return (Tensor.of(graph.iota(shape, 0)) == Tensor.of(graph.iota(shape, 1))).cast(dtype)


def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Vectors repeated to a grid that all span; ``"xy"`` exchanges the first two dimensions."""
    listed = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], Sequence) else tensors
    vectors = [lift(t, "meshgrid").reshape(-1) for t in listed]
    if indexing not in ("ij", "xy"):
        raise ShapeError(f"meshgrid: indexing={indexing!r} is not 'ij' or 'xy'")
    swap = indexing == "xy" and len(vectors) > 1
    if swap:
        vectors[:2] = vectors[1::-1]
    shape = tuple(v.shape[0] for v in vectors)
    grids = [
        v.reshape(*(-1 if i == d else 1 for i in range(len(shape)))).expand(shape)
        for d, v in enumerate(vectors)
    ]
    if swap:
        grids[:2] = grids[1::-1]
    return tuple(grids)


def _places(keep: np.ndarray[Any, Any]) -> Tensor:
    return Tensor.constant(np.stack(np.nonzero(keep)).astype(np.int64))


def tril_indices(row: int, col: int, offset: int = 0) -> Tensor:
    """Rows and columns of the places at and below a diagonal, (2, n)."""
    return _places(np.tri(row, col, offset, dtype=bool))


def triu_indices(row: int, col: int, offset: int = 0) -> Tensor:
    """Rows and columns of the places at and above a diagonal, (2, n)."""
    return _places(~np.tri(row, col, offset - 1, dtype=bool))
