"""What each scalar operation means on numpy arrays: the one table that every interpreter and constant folder reads.

Arrays hold compute types (bool, i32, i64, f32, f64); ``to_compute`` and ``to_memory`` convert f16 and bf16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .dtypes import BF16, DType
from .expr import Op

__all__ = ["FOLDS", "Array", "compute", "convert", "to_compute", "to_memory"]

Array = NDArray[Any]


def _erf(x: Array) -> Array:
    from scipy.special import erf

    return np.asarray(erf(x), dtype=x.dtype)


def _floor(x: Array) -> Array:
    return np.floor(x) if x.dtype.kind == "f" else x


def _not(x: Array) -> Array:
    return ~x


def _fma(a: Array, b: Array, c: Array) -> Array:
    return np.asarray(a * b + c)


def _recip(x: Array) -> Array:
    return np.asarray(np.ones((), x.dtype) / x)


_TABLE: dict[Op, Callable[..., Any]] = {
    Op.NEG: np.negative, Op.EXP: np.exp, Op.LOG: np.log, Op.SQRT: np.sqrt, Op.RECIP: _recip, Op.TANH: np.tanh,
    Op.ERF: _erf, Op.SIN: np.sin, Op.ABS: np.abs, Op.FLOOR: _floor, Op.NOT: _not, Op.ADD: np.add,
    Op.SUB: np.subtract, Op.MUL: np.multiply, Op.DIV: np.divide, Op.FLOORDIV: np.floor_divide, Op.MOD: np.mod,
    Op.MAX: np.maximum, Op.MIN: np.minimum, Op.POW: np.power, Op.LT: np.less, Op.EQ: np.equal,
    Op.NE: np.not_equal, Op.AND: np.bitwise_and, Op.OR: np.bitwise_or, Op.XOR: np.bitwise_xor,
    Op.WHERE: np.where, Op.FMA: _fma,
}  # fmt: skip

FOLDS: dict[Op, np.ufunc] = {Op.ADD: np.add, Op.MUL: np.multiply, Op.MAX: np.maximum, Op.MIN: np.minimum}


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
    """A cast between compute types, or to f16 or bf16 and straight back to f32: truncates to int, ``!= 0`` to bool."""
    with np.errstate(all="ignore"):
        if dtype.is_bool:
            return np.asarray(array != 0)
        if dtype.bits == 16:
            single = np.asarray(array.astype(np.float32, copy=False))
            return to_compute(to_memory(single, dtype), dtype)
        return np.asarray(array.astype(dtype.numpy, copy=False))
