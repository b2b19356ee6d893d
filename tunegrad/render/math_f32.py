"""The elementary functions in f32, as vector code without calls, straight but for a rare branch.

Errors and special values: docs/NUMERICS.md.

Range reductions are the classical ones: exp and sin subtract a multiple of a constant that is split
into parts whose products are exact (W. Cody, W. Waite, "Software Manual for the Elementary
Functions", 1980); log splits off the exponent so that the rest lies in [2/3, 4/3). Rounding to an
integer is an addition of 1.5 * 2^23 (1.5 * 2^52 in f64), which leaves the integer in the low bits
of the sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tunegrad.ir.math_coefficients import (
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

from .math_body import Body, Val, nearest_f32

FAR = float(1 << 25)
"""From here on sin and cos are reduced by the digits of 1 / pi: those of f64 are used up."""

_MAGIC = 1.5 * 2**23
_MAGIC_F64 = 1.5 * 2**52
_SIGN = -(1 << 31)

# The binary digits of 1 / pi, 32 a word.
_INVERSE_PI = (
    0x517CC1B7, 0x27220A94, 0xFE13ABE8, 0xFA9A6EE0, 0x6DB14ACC, 0x9E21C820, 0xFF28B1D5, 0xEF5DE2B0,
)  # fmt: skip

# ln(2) in two parts: the upper has 16 bits, so that its product with an exponent is exact even
# without FMA.
_LN2_UPPER = round(math.log(2) * 2**16) / 2**16
_LN2_LOWER = math.log(2) - _LN2_UPPER

# The logarithms of e and of 2 to a base, each in two parts: the upper has 12 bits, so that its
# product with as many bits is exact.
_LOGARITHMS = {
    base: [
        (round(value * 2**places) / 2**places, value - round(value * 2**places) / 2**places)
        for value in (1 / math.log(base), math.log(2) / math.log(base))
    ]
    for base, places in ((2, 11), (10, 13))
}
_UPPER_BITS = ~0xFFF

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
    return _ended(b, x, b.fma(e, _LN2_UPPER, b.add(z, tail)))


def log2(b: Body, x: Val) -> Val:
    """The logarithm to base 2, of subnormal arguments too."""
    return _to_base(b, x, 2)


def log10(b: Body, x: Val) -> Val:
    """The logarithm to base 10, of subnormal arguments too."""
    return _to_base(b, x, 10)


def _to_base(b: Body, x: Val, base: int) -> Val:
    """The logarithm to base 2 or 10.

    Its largest part is added without a loss: the exponent times 12 bits of the logarithm of 2, and
    12 bits of z times 12 of that of e.
    """
    z, exponent = _split(b, x)
    e = b.cast("sitofp", exponent, "float")
    square = b.mul(z, z)
    tail = b.mul(b.mul(square, z), b.polynomial(z, LOG))
    upper = b.cast("bitcast", b.bits("and", b.cast("bitcast", z, "i32"), _UPPER_BITS), "float")
    (of_e, of_e_less), (of_two, of_two_less) = _LOGARITHMS[base]
    most = b.mul(upper, of_e)
    whole = of_e + of_e_less
    less = b.fma(square, -whole / 2, b.fma(tail, whole, b.mul(z, of_e_less)))
    less = b.fma(b.sub(z, upper), of_e, less)
    if base != 2:
        less, e = b.fma(e, of_two_less, less), b.mul(e, of_two)
    total = b.add(e, most)
    rest = b.add(b.sub(e, total), most)  # e is 0 or the larger one
    return _ended(b, x, b.add(total, b.add(rest, less)))


def _ended(b: Body, x: Val, result: Val) -> Val:
    """A logarithm with its special values."""
    result = b.where(b.compare("oeq", x, math.inf), math.inf, result)
    edge = b.where(b.compare("oeq", x, 0.0), -math.inf, math.nan)
    return b.where(b.compare("ogt", x, 0.0), result, edge)


def tanh(b: Body, x: Val) -> Val:
    """x + x^3 p(x^2) near zero and for NaN, 1 - 2 / (e^2x + 1) beyond, on |x|."""
    size, sign = _magnitude(b, x)
    square = b.mul(size, size)
    small = b.fma(b.mul(size, square), b.polynomial(square, TANH), size)
    # From 9.02 on the result is 1 in f32.
    growth = _exp2_normal(b, b.at_most(size, 10.0), 2 * math.log2(math.e))
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
    """sin(x) = (-1)^n sin(x - n pi)."""
    return _turned(b, x, 0, _sine)


def cos(b: Body, x: Val) -> Val:
    """cos(x) = -(-1)^n sin(x - (n + 1/2) pi)."""
    return _turned(b, x, 1, _sine)


def tan(b: Body, x: Val) -> Val:
    """tan(x) = tan(x - n pi / 2), of an odd n its reciprocal, negated."""
    return _turned(b, x, 0, _tangent)


_Rest = Callable[[Body, Val, Val, Val], Val]
"""A function of an angle's rest, the number of units that were taken off, and a sign bit."""


def _turned(b: Body, x: Val, quarters: int, made: _Rest) -> Val:
    """sin(x + quarters * pi / 2), for 0 and 1 of them, or tan(x).

    The unit of sines is pi, that of tangents half of it. The reduction is in f64 and exact below
    FAR; beyond, it is by the digits of 1 / pi.
    """
    size, sign = _magnitude(b, x)
    wide = b.cast("fpext", size, "double")
    if quarters:
        k = b.add(b.fma(wide, 1 / math.pi, -0.5), _MAGIC_F64)
        n = b.add(b.sub(k, _MAGIC_F64), 0.5)
    else:
        halves = made is _tangent
        k = b.fma(wide, (1 + halves) / math.pi, _MAGIC_F64)
        n = b.sub(k, _MAGIC_F64)
        n = b.mul(n, 0.5) if halves else n
    rest = b.fma(n, -_PI_3, b.fma(n, -_PI_2, b.fma(n, -_PI_1, wide)))
    odd = b.cast("trunc", b.cast("bitcast", k, "i64"), "i32")
    odd = b.bits("xor", odd, 1) if quarters else odd
    signed = b.literal(0, "i32") if quarters else sign
    value = made(b, rest, odd, signed)
    far = b.compare("oge", size, FAR)
    return b.rarely(far, lambda: _far(b, size, signed, quarters, made), value)


def _sine(b: Body, rest: Val, odd: Val, sign: Val) -> Val:
    """sin of an angle of at most pi / 2 in f64, rounded once; negated where the lowest bit of
    ``odd`` is set, and by a sign bit.
    """
    square = b.mul(rest, rest)
    wide = b.fma(b.mul(rest, square), b.polynomial(square, SIN), rest)
    value = b.cast("fptrunc", wide, "float")
    flipped = b.bits("xor", b.cast("bitcast", value, "i32"), b.bits("shl", odd, 31))
    return b.cast("bitcast", b.bits("xor", flipped, sign), "float")


def _tangent(b: Body, rest: Val, odd: Val, sign: Val) -> Val:
    """tan of an angle of at most pi / 4 in f64, rounded once: J. Lambert's continued fraction x /
    (1 - x^2 / (3 - x^2 / (5 - ...))) up to 11, which is off by 2^-33 of itself.

    Of an odd number of quarters the negated reciprocal.
    """
    square = b.mul(rest, rest)
    over = b.mul(rest, b.polynomial(square, (10395.0, -1260.0, 21.0)))
    under = b.polynomial(square, (10395.0, -4725.0, 210.0, -1.0))
    flip = b.bits("shl", odd, 31)
    turned = b.compare("slt", flip, 0)
    ratio = b.div(b.where(turned, under, over), b.where(turned, over, under))
    raw = b.cast("bitcast", b.cast("fptrunc", ratio, "float"), "i32")
    return b.cast("bitcast", b.bits("xor", b.bits("xor", raw, flip), sign), "float")


def _far(b: Body, size: Val, sign: Val, quarters: int, made: _Rest) -> Val:
    """As ``_turned``, for sizes from FAR on (M. Payne, R. Hanek, "Radian reduction for
    trigonometric functions", 1983).

    size is m 2^e, m whole. Of 1 / pi only the 96 binary digits that follow 2^-e, and the last one
    before, are read: those above make even multiples of pi, those below less than 2^-70.
    """
    raw = b.cast("bitcast", size, "i32")
    m = b.cast("zext", b.bits("or", b.bits("and", raw, 0x7FFFFF), 0x800000), "i64")
    at = b.sub(b.bits("lshr", raw, 23), 151)  # digits in front of the first one that is read
    words = [b.literal(w, "i64") for w in _INVERSE_PI]
    second, third, fourth = (b.compare("slt", at, 32 * i) for i in (1, 2, 3))

    def word(i: int) -> Val:
        """Word ``i`` of those that are read."""
        later = b.where(fourth, words[i + 2], words[i + 3])
        return b.where(second, words[i], b.where(third, words[i + 1], later))

    parts = [word(i) for i in range(4)]
    shift = b.cast("zext", b.bits("and", at, 31), "i64")
    back = b.sub(b.literal(32, "i64"), shift)
    pairs = [b.bits("or", b.bits("shl", parts[i], 32), parts[i + 1]) for i in range(3)]
    moved = [b.bits("and", b.bits("lshr", p, back), 0xFFFFFFFF) for p in pairs]
    upper = b.bits("or", b.bits("shl", moved[0], 32), moved[1])
    turns = b.add(b.bits("mul", m, upper), b.bits("lshr", b.bits("mul", m, moved[2]), 32))
    turns = b.add(turns, quarters << 62)  # of pi, 63 binary digits behind the point
    unit = 62 if made is _tangent else 63
    odd = b.bits("lshr", b.add(turns, 1 << (unit - 1)), unit)
    rest = b.cast("sitofp", b.sub(turns, b.bits("shl", odd, unit)), "double")
    value = made(b, b.mul(rest, math.pi * 2.0**-63), b.cast("trunc", odd, "i32"), sign)
    return b.where(b.compare("olt", size, math.inf), value, math.nan)


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


def _exp2_normal(b: Body, x: Val, by: float = 1.0) -> Val:
    """2^(by x) for |by x| <= 120, where the scale is a normal number; anything for NaN."""
    shifted = b.add(x, _MAGIC) if by == 1 else b.fma(x, by, _MAGIC)
    less = b.sub(b.literal(_MAGIC, "float"), shifted)
    rest = by - nearest_f32(by)
    r = b.add(x, less) if by == 1 else b.fma(x, rest, b.fma(x, by, less))
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
    """2^x in f64 to about 2^-34 of itself, for f32: past its bounds inf and zero."""
    x = b.at_least(b.at_most(x, 200.0), -200.0)
    k = b.add(x, _MAGIC_F64)
    r = b.sub(x, b.sub(k, _MAGIC_F64))
    raw = b.bits("shl", b.add(b.cast("bitcast", k, "i64"), 1023), 52)
    return b.mul(b.polynomial(r, POW_EXP2), b.cast("bitcast", raw, "double"))


def _parity(b: Body, y: Val) -> tuple[Val, Val]:
    """Masks: y is an integer, and y is an odd one; infinities are even."""
    wide = b.cast("fpext", y, "double")
    half = b.mul(wide, 0.5)
    small, _ = _magnitude(b, y)
    big = b.compare("oge", small, 2.0**24)
    whole = b.bits("or", b.compare("oeq", _rounded(b, wide), wide), big)
    uneven = b.bits("and", b.compare("one", _rounded(b, half), half), b.bits("xor", big, 1))
    return whole, b.bits("and", whole, uneven)


def _rounded(b: Body, x: Val) -> Val:
    return b.sub(b.add(x, _MAGIC_F64), _MAGIC_F64)
