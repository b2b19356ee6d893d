"""The meaning of the instructions of a program: on numpy scalars for one lane, else on arrays.

Values keep their dtype's width at every step: an f32 sum is an f32 sum. ``FMA`` of f32 is computed
in f64 and rounded to f32 (the product is exact; the sum may round twice), of f64 in the platform's
long double. f16 and bf16 are stored and converted, never computed with; a bf16 value is the
``uint16`` upper half of an f32. ``multiply`` and ``multiply_tiles`` are matrix units.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tunegrad.errors import InternalError
from tunegrad.ir.dtypes import BF16, DTYPES, F32, DType, buffer_dtype
from tunegrad.ir.expr import Op
from tunegrad.ir.interpret.numeric import (
    _TABLE,
    FOLDS,
    Array,
    _floor,
    compute,
    convert,
    to_compute,
    to_memory,
)
from tunegrad.ir.program import VType
from tunegrad.ir.target import MatrixUnit, TileUnit

Value = Any  # a numpy scalar or an array

_PLAIN: dict[Op, Callable[..., Value]] = {
    Op.NEG: operator.neg, Op.NOT: operator.invert, Op.ABS: operator.abs, Op.ADD: operator.add,
    Op.SUB: operator.sub, Op.MUL: operator.mul, Op.DIV: operator.truediv,
    Op.FLOORDIV: operator.floordiv, Op.MOD: operator.mod, Op.LT: operator.lt, Op.EQ: operator.eq,
    Op.NE: operator.ne, Op.AND: operator.and_, Op.OR: operator.or_, Op.XOR: operator.xor,
    Op.FLOOR: _floor,
}  # fmt: skip
"""Operators, which take a fraction of the time of numpy's functions: they are called millions of
times."""


def operation(op: Op, dtype: DType, lanes: int) -> Callable[..., Value]:
    """The function that computes ``op`` on values of ``dtype`` (the type of its last argument)."""
    if op in _PLAIN:
        return _PLAIN[op]
    match op:
        case Op.FMA:
            return _fused(dtype, lanes)
        case Op.WHERE:
            return np.where if lanes > 1 else lambda c, a, b: a if c else b
        case Op.RECIP:
            one = dtype.numpy.type(1)
            return lambda a: one / a
        case Op.PAIR:  # halves come as bf16 bit patterns or as f32
            return lambda *x: compute(
                op, *(to_compute(a, BF16) if a.dtype == BF16.numpy else a for a in x)
            )[()]
        case Op.DOT2:
            return lambda a, b: compute(op, a, b).astype(np.float32)[()]
        case Op.DOT2_ADD:
            return _dot2_add
        case Op.DOT4_ADD:
            return lambda p, q, c: compute(Op.DOT4, p, q)[()] + c
        case Op.DOT2I_ADD:
            return lambda p, q, c: compute(Op.DOT2I, p, q)[()] + c
    found = _TABLE[op]
    return found if isinstance(found, np.ufunc) else lambda *x: compute(op, *x)[()]


def _fused(dtype: DType, lanes: int) -> Callable[..., Value]:
    narrow = dtype.numpy.type
    if dtype == F32 and lanes == 1:
        return lambda a, b, c: narrow(float(a) * float(b) + float(c))
    wide: Any = np.float64 if dtype == F32 else np.longdouble
    return lambda a, b, c: (a.astype(wide) * b + c).astype(narrow)


def _dot2_add(a: Value, b: Value, c: Value) -> Value:
    total = c
    for half in (Op.HIGH, Op.LOW):
        x, y = (compute(half, v).astype(np.float64) for v in (a, b))
        total = (x * y + total).astype(np.float32)
    return total[()]


def constant(value: float | int | bool, dtype: DType) -> Value:
    """``value`` as a scalar of ``dtype``."""
    if dtype == BF16:
        return to_memory(np.array(value, np.float32), BF16)[()]
    return np.asarray(value).astype(dtype.numpy)[()]


def folder(op: Op, *, rows: bool = False) -> Callable[[Value], Value]:
    """The function that folds an array's lanes to a scalar of the same dtype; of ``rows``, the last
    axis to one element.
    """
    if op not in FOLDS:
        raise InternalError(f"fold {op}: lanes fold with {', '.join(FOLDS)}")
    reduce = FOLDS[op].reduce
    how: dict[str, Any] = {"axis": -1, "keepdims": True} if rows else {}
    return lambda a: reduce(a, dtype=a.dtype, **how)


def converter(source: DType, to: DType) -> Callable[[Value], Value]:
    """The function that converts values: float to int as ``numeric.convert``, to bool is ``!= 0``,
    floats round to nearest even.
    """
    if source == to:
        return lambda a: a
    if source == BF16:
        after = converter(F32, to)
        return lambda a: after(to_compute(a, BF16)[()])
    if to.is_bool:
        return lambda a: a != 0
    if to == BF16:
        return lambda a: to_memory(a.astype(np.float32), BF16)[()]
    kind = to.numpy
    if to.is_int and source.is_float:
        return lambda a: convert(a, to)[()]
    return lambda a: a.astype(kind)


# ---- matrices
#
# Products of matrix units: of the work-items of a warp, and of a thread's tile registers.
#
# registers of items  -->  A, B, C of each warp  -->  C + A @ B  -->  registers of items
# tiles A, B, C       -->  C + (even sums + odd sums of pairs), C + sums of products of bytes


_WARP, _ROW_BYTES = 32, 16
_TF32_BITS = np.uint32(0xFFFFE000)
"""Bits of an f32 that a unit reads as tf32."""


def load_matrices(offset: Array, count: int, vtype: VType, transposed: bool) -> Array:
    """The elements (item, matrix, lane) that items get, of the ``offset`` that each item gives."""
    width, held = _ROW_BYTES // vtype.dtype.itemsize, vtype.lanes
    rows = offset.reshape(-1, _WARP)[:, : 8 * count].reshape(-1, count, 8, 1)
    matrices = rows + np.arange(width)  # warp, matrix, row, column
    if transposed:
        matrices = matrices.transpose(0, 1, 3, 2)
    lies = matrices.reshape(-1, count, 8, width // held, held)
    made: Array = lies.reshape(-1, count, _WARP, held).transpose(0, 2, 1, 3)
    return made.reshape(-1, count, held)


def multiply(unit: MatrixUnit, a: Array, b: Array, c: Array) -> Array:
    """The results (item, register) of operands (item, register, packed) and sums (item, register).

    Products are exact in the type of the sums, which are added in some order. Of tf32 the unit
    reads 19 bits, whatever the others are.
    """
    warps, u = c.shape[0] // unit.items, unit
    lanes = (warps, u.rows, u.columns)
    taken = DTYPES[u.held]
    if u.rounds:
        a, b = ((x.view(np.uint32) & _TF32_BITS).view(np.float32) for x in (a, b))
    wide_a, wide_b = (to_compute(x, taken).astype(c.dtype, copy=False) for x in (a, b))
    rows = wide_a.reshape(*lanes, u.steps, u.highs, u.packed)
    columns = wide_b.reshape(*lanes, u.steps, u.packed)
    sums = c.reshape(*lanes, u.highs, u.pair)
    m, n, k = u.shape
    # A[high, row; step, column, packed], B[step, column, packed; row], C[high, row; column, pair]
    left = rows.transpose(0, 4, 1, 3, 2, 5).reshape(warps, m, k)
    right = columns.transpose(0, 3, 2, 4, 1).reshape(warps, k, n)
    held = sums.transpose(0, 3, 1, 2, 4).reshape(warps, m, n)
    made = held + np.matmul(left, right)
    back = made.reshape(warps, u.highs, u.rows, u.columns, u.pair).transpose(0, 2, 3, 1, 4)
    result: Array = back.reshape(c.shape)
    return result


def multiply_tiles(unit: TileUnit, a: Array, b: Array, c: Array) -> Array:
    """C + A * B of tiles of words: A (m, k), B (k, n), C (m, n) f32 of pairs, i32 of bytes.

    Sums of bytes wrap around. Of pairs, as hardware does it: the first numbers of pairs are added
    up along k by FMA, so are the second ones, then both sums are added, and that to C; a rounding
    each (Intel SDM, volume 2, TDPBF16PS). Subnormal numbers are kept.
    """
    if unit.takes_bytes:
        kinds = (buffer_dtype(name).numpy for name in unit.factors)
        left, right = (x.view(kind) for x, kind in zip((a, b), kinds, strict=True))
        sums = compute(Op.DOT4, left[:, :, None], right).sum(axis=1, dtype=np.int32)
        wrapped: Array = c + sums
        return wrapped
    halves = [np.zeros(c.shape, np.float32), np.zeros(c.shape, np.float32)]
    for at, half in enumerate((Op.LOW, Op.HIGH)):
        left, right = (compute(half, x).astype(np.float64) for x in (a, b))
        for k in range(unit.shape[2]):
            exact = left[:, k, None] * right[k]
            halves[at] = (exact + halves[at]).astype(np.float32)
    total: Array = c + (halves[0] + halves[1])
    return total
