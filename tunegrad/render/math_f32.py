"""The elementary functions in f32, as straight-line vector code.

Errors and special values: docs/NUMERICS.md.

Range reductions are the classical ones: exp and sin subtract a multiple of a constant that is split
into parts whose products are exact (W. Cody, W. Waite, "Software Manual for the Elementary
Functions", 1980); log splits off the exponent so that the rest lies in [2/3, 4/3). Rounding to an
integer is an addition of 1.5 * 2^23 (1.5 * 2^52 in f64), which leaves the integer in the low bits
of the sum.
"""

from __future__ import annotations

import math

from .math_body import Body, Val
from .math_coefficients import (
    ERF_LARGE,
    ERF_SMALL,
    ERF_SPLIT,
    EXP,
    EXP2,
    LOG,
    POW_EXP2,
    POW_LOG2,
    SIN,
    TANH,
    TANH_SPLIT,
)

__all__ = ["SIN_LIMIT", "erf", "exp", "log", "power", "sin", "tanh"]

SIN_LIMIT = float(1 << 27)
"""sin gives NaN from here on: f32 values lie 16 apart, and the reduction has used up the digits
of f64.
"""

_MAGIC = 1.5 * 2**23
_MAGIC_F64 = 1.5 * 2**52
_SIGN = -(1 << 31)

# ln(2) in two parts: the upper has 16 bits, so that its product with an exponent is exact even
# without FMA.
_LN2_UPPER = round(math.log(2) * 2**16) / 2**16
_LN2_LOWER = math.log(2) - _LN2_UPPER

# pi in three parts of 27, 27 and 53 bits. math.pi alone holds 53 bits; the rest of pi after it is
# 1.2246...e-16.
_PI_1 = round(math.pi * 2**25) / 2**25
_PI_2 = round((math.pi - _PI_1) * 2**52) / 2**52
_PI_3 = (math.pi - _PI_1 - _PI_2) + 1.2246467991473532e-16

_TWO_THIRDS_BITS = 0x3F2AAAAB

# The f32 numbers next to -126 ln(2) and 128 ln(2) whose exponentials are normal; the next ones out
# have none.
_EXP_LEAST = -87.33654022216797
_EXP_MOST = 88.72283172607422


def exp(b: Body, x: Val) -> Val:
    """e^x.

    Results below 2^-126 are zero: what the exponent can not hold is replaced, so no scale is
    multiplied in.
    """
    shifted = b.fma(x, math.log2(math.e), _MAGIC)
    n = b.sub(shifted, _MAGIC)
    r = b.fma(n, -_LN2_LOWER, b.fma(n, -_LN2_UPPER, x))
    mantissa = b.add(b.fma(b.mul(r, r), b.polynomial(r, EXP), r), 1.0)
    # The integer goes straight into the exponent; shifting throws the bits of _MAGIC out at the
    # top.
    scale = b.bits("shl", b.cast("bitcast", shifted, "i32"), 23)
    raw = b.add(b.cast("bitcast", mantissa, "i32"), scale)
    value = b.cast("bitcast", b.where(b.compare("olt", x, _EXP_LEAST), 0, raw, "i32"), "float")
    # x + inf is inf beyond, and NaN for NaN.
    return b.where(b.compare("oge", b.literal(_EXP_MOST, "float"), x), value, b.add(x, math.inf))


def log(b: Body, x: Val) -> Val:
    """The natural logarithm, of subnormal arguments too."""
    z, exponent = _split(b, x)
    e = b.cast("sitofp", exponent, "float")
    square = b.mul(z, z)
    tail = b.mul(b.mul(square, z), b.polynomial(z, LOG))
    tail = b.fma(e, _LN2_LOWER, tail)
    tail = b.fma(square, -0.5, tail)
    result = b.fma(e, _LN2_UPPER, b.add(z, tail))
    result = b.where(b.compare("oeq", x, math.inf), math.inf, result)
    edge = b.where(b.compare("oeq", x, 0.0), -math.inf, math.nan)
    return b.where(b.compare("ogt", x, 0.0), result, edge)


def tanh(b: Body, x: Val) -> Val:
    """x + x^3 p(x^2) near zero and for NaN, 1 - 2 / (e^2x + 1) beyond, on |x|."""
    size, sign = _magnitude(b, x)
    square = b.mul(size, size)
    small = b.fma(b.mul(size, square), b.polynomial(square, TANH), size)
    # From 9.02 on the result is 1 in f32.
    growth = _exp2_normal(b, b.mul(b.at_most(size, 10.0), 2 * math.log2(math.e)))
    large = b.sub(b.literal(1.0, "float"), b.div(2.0, b.add(growth, 1.0)))
    return _signed(b, b.where(b.compare("oge", size, TANH_SPLIT), large, small), sign)


def erf(b: Body, x: Val) -> Val:
    """x + x p(x^2) near zero and for NaN, 1 - 2^q(x) beyond, on |x|."""
    size, sign = _magnitude(b, x)
    square = b.mul(size, size)
    small = b.fma(size, b.polynomial(square, ERF_SMALL), size)
    # From 3.92 on the result is 1 in f32.
    decay = _exp2_normal(b, b.polynomial(b.at_most(size, 4.0), ERF_LARGE))
    large = b.sub(b.literal(1.0, "float"), decay)
    return _signed(b, b.where(b.compare("oge", size, ERF_SPLIT), large, small), sign)


def sin(b: Body, x: Val) -> Val:
    """sin(x) = (-1)^n sin(x - n pi).

    The reduction is in f64 and exact up to SIN_LIMIT; NaN beyond.
    """
    size, sign = _magnitude(b, x)
    wide = b.cast("fpext", size, "double")
    k = b.fma(wide, 1 / math.pi, _MAGIC_F64)
    n = b.sub(k, _MAGIC_F64)
    rest = b.fma(n, -_PI_3, b.fma(n, -_PI_2, b.fma(n, -_PI_1, wide)))
    r = b.cast("fptrunc", rest, "float")
    square = b.mul(r, r)
    value = b.fma(b.mul(r, square), b.polynomial(square, SIN), r)
    odd = b.bits("shl", b.cast("trunc", b.cast("bitcast", k, "i64"), "i32"), 31)
    flipped = b.bits("xor", b.bits("xor", b.cast("bitcast", value, "i32"), odd), sign)
    return b.where(b.compare("olt", size, SIN_LIMIT), b.cast("bitcast", flipped, "float"), math.nan)


def power(b: Body, x: Val, y: Val) -> Val:
    """x^y with C's special values: 2^(y log2 |x|) in f64, then the sign and the cases."""
    size, sign = _magnitude(b, x)
    exponent = b.mul(b.cast("fpext", y, "double"), _log2(b, size))
    # log2(1) * inf is NaN, but 1 to any power is 1.
    exponent = b.where(b.compare("oeq", size, 1.0), 0.0, exponent)
    value = b.cast("fptrunc", _exp2(b, exponent), "float")
    whole, odd = _parity(b, y)
    negative = b.bits("and", sign, b.where(odd, -1, 0, "i32"))
    value = _signed(b, value, negative)
    finite_below_zero = b.bits("and", b.compare("olt", x, 0.0), b.compare("ogt", x, -math.inf))
    undefined = b.bits("and", finite_below_zero, b.bits("xor", whole, 1))
    undefined = b.bits("or", undefined, b.compare("uno", x, y))
    value = b.where(undefined, math.nan, value)
    return b.where(b.bits("or", b.compare("oeq", x, 1.0), b.compare("oeq", y, 0.0)), 1.0, value)


def _exp2_normal(b: Body, x: Val) -> Val:
    """2^x for |x| <= 120, where the scale is a normal number; anything for NaN."""
    shifted = b.add(x, _MAGIC)
    r = b.sub(x, b.sub(shifted, _MAGIC))
    mantissa = b.fma(r, b.polynomial(r, EXP2), 1.0)
    # The integer goes straight into the exponent; shifting throws the bits of _MAGIC out at the
    # top.
    scale = b.bits("shl", b.cast("bitcast", shifted, "i32"), 23)
    return b.cast("bitcast", b.add(b.cast("bitcast", mantissa, "i32"), scale), "float")


def _split(b: Body, x: Val) -> tuple[Val, Val]:
    """(z, e) with x = (1 + z) * 2^e and 1 + z in [2/3, 4/3), for positive finite x."""
    tiny = b.compare("olt", x, 2.0**-126)
    raw = b.cast("bitcast", b.where(tiny, b.mul(x, 2.0**23), x), "i32")
    over = b.sub(raw, _TWO_THIRDS_BITS)
    e = b.bits("ashr", over, 23)
    z = b.sub(b.cast("bitcast", b.sub(raw, b.bits("shl", e, 23)), "float"), 1.0)
    return z, b.add(e, b.where(tiny, -23, 0, "i32"))


def _magnitude(b: Body, x: Val) -> tuple[Val, Val]:
    """(|x|, the sign bit of x)."""
    raw = b.cast("bitcast", x, "i32")
    return b.cast("bitcast", b.bits("and", raw, ~_SIGN), "float"), b.bits("and", raw, _SIGN)


def _signed(b: Body, size: Val, sign: Val) -> Val:
    """``size``, which is not negative, with a sign bit."""
    return b.cast("bitcast", b.bits("or", b.cast("bitcast", size, "i32"), sign), "float")


def _log2(b: Body, size: Val) -> Val:
    """log2 of a number that is not negative, in f64, to about 2^-37 of itself."""
    z, e = _split(b, size)
    wide = b.cast("fpext", z, "double")
    value = b.fma(wide, b.polynomial(wide, POW_LOG2), b.cast("sitofp", e, "double"))
    value = b.where(b.compare("oeq", size, math.inf), math.inf, value)
    return b.where(b.compare("oeq", size, 0.0), -math.inf, value)


def _exp2(b: Body, x: Val) -> Val:
    """2^x in f64 to about 2^-34 of itself, for what an f32 can hold: the bounds give inf and zero
    there.
    """
    x = b.at_least(b.at_most(x, 200.0), -200.0)
    k = b.add(x, _MAGIC_F64)
    r = b.sub(x, b.sub(k, _MAGIC_F64))
    raw = b.bits("shl", b.add(b.cast("bitcast", k, "i64"), 1023), 52)
    return b.mul(b.polynomial(r, POW_EXP2), b.cast("bitcast", raw, "double"))


def _parity(b: Body, y: Val) -> tuple[Val, Val]:
    """Whether y is an integer, and whether it is an odd one; infinities are even."""
    wide = b.cast("fpext", y, "double")
    half = b.mul(wide, 0.5)
    small, _ = _magnitude(b, y)
    big = b.compare("oge", small, 2.0**24)
    whole = b.bits("or", b.compare("oeq", _rounded(b, wide), wide), big)
    uneven = b.bits("and", b.compare("one", _rounded(b, half), half), b.bits("xor", big, 1))
    return whole, b.bits("and", whole, uneven)


def _rounded(b: Body, x: Val) -> Val:
    return b.sub(b.add(x, _MAGIC_F64), _MAGIC_F64)
