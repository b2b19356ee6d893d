"""The bits of floats as integers and back, by arithmetic: the IR has no such operation.

    f32   -1.5  =  0xBFC00000:  sign 1, exponent 127, mantissa 0x400000

A NaN has one pattern, the quiet one; all else is exact, denormal numbers too.
"""

from __future__ import annotations

from tunegrad.ir.dtypes import DTYPES, DType

from ..functions import where
from ..tensor import Tensor

__all__ = ["bits_of", "of_bits", "onto_powers", "upto_one"]

_MANTISSA = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}


def onto_powers(size: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """A size and the exponent that takes it below 2: ``size = found * 2**exponent``; the exponent
    is a float, from 0 to ``most``, which is one less than a power of two.
    """
    exponent = size * 0.0
    step = (most + 1) // 2
    while step:
        large = size >= 2.0**step
        size = where(large, size * 2.0**-step, size)
        exponent = where(large, exponent + float(step), exponent)
        step //= 2
    return size, exponent


def upto_one(size: Tensor, exponent: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """As ``onto_powers``, of what is smaller than 1: to 1 at least, or by ``2**-most``."""
    step = (most + 1) // 2
    while step:
        small = size < 2.0 ** (1 - step)
        size = where(small, size * 2.0**step, size)
        exponent = where(small, exponent - float(step), exponent)
        step //= 2
    return size, exponent


def bits_of(x: Tensor) -> Tensor:
    """The bit patterns of f16, f32 or f64, as a signed integer of their width."""
    kind, wide = x.dtype, x.cast(x.dtype.compute)
    mantissa, integer = _MANTISSA[kind.name], DTYPES[f"i{kind.bits}"]
    bias = (1 << kind.bits - mantissa - 2) - 1
    finite = x.isfinite()
    size, exponent = onto_powers(where(finite, wide.abs(), 1.0), bias)
    size, exponent = upto_one(size, exponent, bias)
    place = (exponent + float(bias)).cast("i64")
    normal = place > 0
    part = where(normal, size - 1.0, size * 0.5) * 2.0**mantissa
    code = place * (1 << mantissa) + part.cast("i64")
    beyond = (2 * bias + 1) << mantissa
    code = where(x.isinf(), beyond, where(x.isnan(), beyond + (1 << mantissa - 1), code))
    least = -(1 << kind.bits - 1)
    return where(x.signbit().logical_and(x.eq(x)), code + least, code).cast(integer)


def of_bits(codes: Tensor, kind: DType) -> Tensor:
    """The floats that bit patterns of their width stand for."""
    mantissa, wide = _MANTISSA[kind.name], kind.compute
    bias = (1 << kind.bits - mantissa - 2) - 1
    code = codes.cast("i64")
    part = code.bitwise_and((1 << mantissa) - 1)
    place = code.bitwise_right_shift(mantissa).bitwise_and(2 * bias + 1)
    number = where(place > 0, part + (1 << mantissa), part).cast(wide)
    up = where(place > 0, place, 1) - (bias + mantissa)
    down = up.neg()
    for step in (1 << i for i in reversed(range(kind.bits - mantissa - 1))):
        if step < bias:
            number = where(_has(up, step), number * 2.0**step, number)
        number = where(_has(down, step), number * 2.0**-step, number)
    special = where(part.eq(0), float("inf"), float("nan"))
    number = where(place.eq(2 * bias + 1), special, number)
    negative = code.bitwise_right_shift(kind.bits - 1).bitwise_and(1).ne(0)
    return where(negative, number.neg(), number).cast(kind)


def _has(power: Tensor, step: int) -> Tensor:
    """True where a power that is positive has this bit."""
    return (power > 0).logical_and(power.bitwise_and(step).ne(0))
