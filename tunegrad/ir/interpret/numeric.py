"""The meaning of each scalar operation in numpy: the one table that every interpreter and constant
folder reads.

Arrays hold compute types (bool, integers, f32, f64, words); ``to_compute`` and ``to_memory``
convert f16 and bf16.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dtypes import BF16, DType
from ..expr import Op

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


def bits_of_bf16(value: Any) -> Array | None:
    """The bit patterns of an array of bf16 of another library, as ``ml_dtypes`` and PyTorch have
    them; None for anything else, and for a tensor that records gradients.
    """
    kind = getattr(value, "dtype", None)
    if getattr(kind, "name", "") == "bfloat16":
        return np.asarray(value).view(np.uint16)
    if str(kind) == "torch.bfloat16" and not value.requires_grad:
        return np.asarray(value.view(sys.modules["torch"].int16)).view(np.uint16)
    return None


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


def halves_of(words: Array) -> Array:
    """The two signed numbers of 16 bits in each i32: one more dimension, the last."""
    return np.ascontiguousarray(words).reshape(*words.shape, 1).view(np.int16)


def _even(x: Array, first: int = 0) -> Array:
    wide = bytes_of(x)[..., first::2].astype(np.int16)
    return np.asarray(np.ascontiguousarray(wide).view(np.int32)[..., 0])


def _odd(x: Array) -> Array:
    return _even(x, 1)


def _dot2i(p: Array, q: Array) -> Array:
    products = halves_of(p).astype(np.int32) * halves_of(q)
    return np.asarray(products.sum(axis=-1, dtype=np.int32))


def _tf32(x: Array) -> Array:
    """To 10 bits of a fraction, ties away from zero; infinities and NaN as they are."""
    bits = _bits(x)
    rounded = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    special = bits & np.uint32(0x7F800000) == np.uint32(0x7F800000)
    return np.asarray(np.where(special, bits, rounded).astype(np.uint32).view(np.float32))


def integer_power(a: Array, b: Array) -> Array:
    """``a ** b`` of integers, which wraps around; 0 for negative powers of all but 1 and -1."""
    if a.dtype.kind == "u":
        return np.asarray(np.power(a, b))
    odd = np.where(b & b.dtype.type(1) != 0, a, a * a)
    inverse = np.where((a == 1) | (a == a.dtype.type(-1)), odd, a - a)
    return np.asarray(np.where(b < 0, inverse, np.power(a, np.maximum(b, b.dtype.type(0)))))


def _power(a: Array, b: Array) -> Array:
    if a.dtype.kind != "f":
        return integer_power(a, b)
    # of one number 0.5 for all, which has no steps in memory, numpy takes roots: NaN of -inf
    return np.asarray(np.power(a, b + np.zeros_like(a)))


_TABLE: dict[Op, Callable[..., Any]] = {
    Op.NEG: np.negative, Op.EXP: np.exp, Op.LOG: np.log, Op.LOG2: np.log2, Op.LOG10: np.log10,
    Op.SQRT: np.sqrt, Op.RECIP: _recip,
    Op.TANH: np.tanh,
    Op.ERF: _erf, Op.SIN: np.sin, Op.COS: np.cos, Op.TAN: np.tan, Op.ABS: np.abs, Op.FLOOR: _floor,
    Op.ROUND: np.rint, Op.NOT: _not, Op.ADD: np.add,
    Op.SUB: np.subtract, Op.MUL: np.multiply, Op.DIV: np.divide, Op.FLOORDIV: np.floor_divide,
    Op.MOD: np.mod,
    Op.MAX: np.maximum, Op.MIN: np.minimum, Op.POW: _power, Op.LT: np.less, Op.EQ: np.equal,
    Op.NE: np.not_equal, Op.AND: np.bitwise_and, Op.OR: np.bitwise_or, Op.XOR: np.bitwise_xor,
    Op.SHL: np.left_shift, Op.SHR: np.right_shift,
    Op.WHERE: np.where, Op.FMA: _fma, Op.PAIR: _pair, Op.LOW: _low, Op.HIGH: _high, Op.DOT2: _dot2,
    Op.TF32: _tf32, Op.QUAD: _quad, Op.DOT4: _dot4, Op.EVEN: _even, Op.ODD: _odd,
    Op.DOT2I: _dot2i,
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
