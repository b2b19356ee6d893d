"""The meaning of each scalar operation in numpy: the one table that every interpreter and constant
folder reads.

Arrays hold compute types (bool, integers, f32, f64, words); ``to_compute`` and ``to_memory``
convert f16 and bf16. ``operation`` is the same for one value at a time, or lanes of a program, and
``multiply`` and ``multiply_tiles`` are matrix units.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tunegrad.errors import InternalError

from ..dtypes import BF16, DTYPES, F32, DType, buffer_dtype
from ..expr import Op

if TYPE_CHECKING:
    from ..program import VType
    from ..target import MatrixUnit, TileUnit

__all__ = [
    "FOLDS",
    "Array",
    "bytes_of",
    "compute",
    "constant",
    "convert",
    "converter",
    "folder",
    "integer_power",
    "load_matrices",
    "multiply",
    "multiply_tiles",
    "operation",
    "to_compute",
    "to_memory",
]

Array = NDArray[Any]

_ERF = np.frompyfunc(math.erf, 1, 1)


def _erf(x: Array) -> Array:
    return np.asarray(_ERF(x), dtype=x.dtype)


def _floor(x: Array) -> Array:
    return np.floor(x) if x.dtype.kind == "f" else x


def _not(x: Array) -> Array:
    return ~x


def _fma(a: Array, b: Array, c: Array) -> Array:
    """Rounded once, of f64 twice."""
    if np.result_type(a, b, c) == np.float32:
        return np.asarray(np.asarray(a, np.float64) * b + c, np.float32)
    return np.asarray(a * b + c)


def _recip(x: Array) -> Array:
    return np.asarray(np.ones((), x.dtype) / x)


def _bits(x: Array) -> Array:
    return np.asarray(x, np.float32).view(np.uint32)


def _pair(low: Array, high: Array) -> Array:
    return np.asarray((_bits(low) >> np.uint32(16)) | (_bits(high) & np.uint32(0xFFFF0000)))


def _low(x: Array) -> Array:
    return np.asarray(np.asarray(x << np.uint32(16), np.uint32).view(np.float32))


def _high(x: Array) -> Array:
    return np.asarray(np.asarray(x & np.uint32(0xFFFF0000), np.uint32).view(np.float32))


def _dot2(a: Array, b: Array) -> Array:
    """In f64, where products are exact: callers round once."""
    return np.asarray(_low(a).astype(np.float64) * _low(b) + _high(a).astype(np.float64) * _high(b))


def bytes_of(words: Array) -> Array:
    """The four bytes of each word, i8 or u8 as its sign says: one more dimension, the last."""
    one = np.int8 if words.dtype.kind == "i" else np.uint8
    return np.ascontiguousarray(words).reshape(*words.shape, 1).view(one)


def _quad(*numbers: Array) -> Array:
    word = np.int32 if numbers[0].dtype.kind == "i" else np.uint32
    together = np.stack(np.broadcast_arrays(*numbers), axis=-1)
    return np.asarray(together.view(word)[..., 0])


def _dot4(p: Array, q: Array) -> Array:
    products = bytes_of(p).astype(np.int32) * bytes_of(q)
    return np.asarray(products.sum(axis=-1, dtype=np.int32))


def _tf32(x: Array) -> Array:
    """To 10 bits of a fraction, ties away from zero; infinities and NaN as they are."""
    bits = _bits(x)
    rounded = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    special = bits & np.uint32(0x7F800000) == np.uint32(0x7F800000)
    return np.asarray(np.where(special, bits, rounded).astype(np.uint32).view(np.float32))


def integer_power(a: Array, b: Array) -> Array:
    """``a ** b`` of integers, which wraps around; 0 for negative powers of all but 1 and -1."""
    if a.dtype.kind in "fu":
        return np.asarray(np.power(a, b))
    odd = np.where(b & b.dtype.type(1) != 0, a, a * a)
    inverse = np.where((a == 1) | (a == a.dtype.type(-1)), odd, a - a)
    return np.asarray(np.where(b < 0, inverse, np.power(a, np.maximum(b, b.dtype.type(0)))))


_TABLE: dict[Op, Callable[..., Any]] = {
    Op.NEG: np.negative, Op.EXP: np.exp, Op.LOG: np.log, Op.LOG2: np.log2,
    Op.SQRT: np.sqrt, Op.RECIP: _recip,
    Op.TANH: np.tanh,
    Op.ERF: _erf, Op.SIN: np.sin, Op.COS: np.cos, Op.ABS: np.abs, Op.FLOOR: _floor,
    Op.ROUND: np.rint, Op.NOT: _not, Op.ADD: np.add,
    Op.SUB: np.subtract, Op.MUL: np.multiply, Op.DIV: np.divide, Op.FLOORDIV: np.floor_divide,
    Op.MOD: np.mod,
    Op.MAX: np.maximum, Op.MIN: np.minimum, Op.POW: integer_power, Op.LT: np.less, Op.EQ: np.equal,
    Op.NE: np.not_equal, Op.AND: np.bitwise_and, Op.OR: np.bitwise_or, Op.XOR: np.bitwise_xor,
    Op.SHL: np.left_shift, Op.SHR: np.right_shift,
    Op.WHERE: np.where, Op.FMA: _fma, Op.PAIR: _pair, Op.LOW: _low, Op.HIGH: _high, Op.DOT2: _dot2,
    Op.TF32: _tf32, Op.QUAD: _quad, Op.DOT4: _dot4,
}  # fmt: skip

FOLDS: dict[Op, np.ufunc] = {
    Op.ADD: np.add,
    Op.MUL: np.multiply,
    Op.MAX: np.maximum,
    Op.MIN: np.minimum,
    Op.AND: np.bitwise_and,
    Op.OR: np.bitwise_or,
    Op.XOR: np.bitwise_xor,
}
"""Operations that fold the lanes of a vector; reductions of kernels take the first four."""


def compute(op: Op, *args: Array) -> Array:
    """``op`` on arrays of compute types, with IEEE results and no warnings."""
    with np.errstate(all="ignore"):
        return np.asarray(_TABLE[op](*args))


def to_compute(array: Array, dtype: DType) -> Array:
    """Memory of type ``dtype`` as its compute type: f16 and bf16 become f32."""
    if dtype is BF16 or dtype == BF16:
        return np.asarray((array.astype(np.uint32) << 16).view(np.float32))
    return np.asarray(array.astype(dtype.compute.numpy, copy=False))


def to_memory(array: Array, dtype: DType) -> Array:
    """Values of the compute type of ``dtype`` as memory of ``dtype`` (rounded to nearest even)."""
    if dtype != BF16:
        with np.errstate(all="ignore"):
            return np.asarray(array.astype(dtype.numpy, copy=False))
    bits = np.asarray(array, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.asarray(np.where(np.isnan(array), np.uint32(0x7FC0), rounded).astype(np.uint16))


def convert(array: Array, dtype: DType) -> Array:
    """A cast between compute types, or to f16 or bf16 and straight back to f32: truncates to the
    nearest int there is (NaN to 0), ``!= 0`` to bool.
    """
    with np.errstate(all="ignore"):
        if dtype.is_bool:
            return np.asarray(array != 0)
        if dtype.is_half:
            single = np.asarray(array.astype(np.float32, copy=False))
            return to_compute(to_memory(single, dtype), dtype)
        if dtype.is_int and array.dtype.kind == "f":
            return _saturated(array, dtype)
        return np.asarray(array.astype(dtype.numpy, copy=False))


def _saturated(array: Array, dtype: DType) -> Array:
    """Floats as integers; the bounds are powers of two, which floats hold."""
    low, high = float(dtype.least), float(dtype.greatest + 1)
    inside = (array > low - 1) & (array < high)
    found = np.where(inside, array, 0).astype(dtype.numpy)
    return np.where(
        array >= high, dtype.numpy.type(dtype.greatest),
        np.where(array <= low, dtype.numpy.type(dtype.least), found),
    )  # fmt: skip


# ---- one value at a time
#
# The operations of a program: on numpy scalars for one lane, on arrays for several.
#
# Values keep their dtype's width at every step: an f32 sum is an f32 sum. ``FMA`` of f32 is
# computed in f64 and rounded to f32 (the product is exact; the sum may round twice), of f64 in the
# platform's long double. f16 and bf16 are stored and converted, never computed with; a bf16 value
# is the ``uint16`` upper half of an f32.


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
