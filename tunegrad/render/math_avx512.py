"""exp and erf in f32 for AVX-512, sixteen lanes: tables of 16 and 32 numbers in registers shorten
the polynomials.

    exp(x)  n = x log2(e), rounded to a sixteenth;  r = x - n ln 2, at most 1/46
            2^floor(n) * T[16 n mod 16] * (1 + r + r^2/2 + r^3/6)                 T[j] = 2^(j/16)
    erf(x)  k = 8 |x|, rounded;  r = |x| - P[k], at most 1/16              P[k] next to k/8
            C0[k] + r C1[k] + ... + r^4 C4[k]                              a polynomial an interval
            |x| + |x| (C1[0] + x^2 C2[0] + ...)                            below 3/16

The places P are those where erf is nearly a number of f32 (S. Gal, "Computing elementary functions:
a new approach for achieving high accuracy and good performance", 1986): C0 is hardly rounded.

A permutation looks a number up in every lane at once, and ``scalef`` multiplies by 2^floor(n),
overflow and underflow included. Rounding is an addition of 1.5 * 2^23 / steps, which leaves the
position in the low bits of the sum: all that a permutation reads. Errors and special values:
docs/NUMERICS.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tunegrad.ir.math_coefficients import ERF_PLACES, ERF_TABLE

from .math_body import Body, Val, nearest_f32

LANES = 16

_EXP_STEPS, _ERF_STEPS = 16, 8
_EXP_MAGIC = 1.5 * 2**23 / _EXP_STEPS
_ERF_MAGIC = 1.5 * 2**23 / _ERF_STEPS
_SIGN = -(1 << 31)

# ln(2) in two parts: the upper has 12 bits, so that its product with n, of 12 bits, is exact.
_LN2_UPPER = round(math.log(2) * 2**12) / 2**12
_LN2_LOWER = math.log(2) - _LN2_UPPER

_EXP_EXACT = [2 ** (j / _EXP_STEPS) for j in range(_EXP_STEPS)]
_EXP_TABLE = [*map(nearest_f32, _EXP_EXACT)]
_EXP_REST = [exact / t - 1 for exact, t in zip(_EXP_EXACT, _EXP_TABLE, strict=True)]
"""Rounding errors of the table, relative to it."""

_LEAST, _MOST = -104.0, 89.0
"""Their exponentials round to zero and to infinity."""

_ERF_MOST = 3.93
"""erf rounds to 1 from 3.92 on, and the table ends at 3.9375."""

_VECTOR = f"<{LANES} x float>"
_INDEX = f"<{LANES} x i32>"


def exp(b: Body, x: Val) -> Val:
    """e^x, rounded to subnormal numbers too."""
    inside = b.at_most(x, _MOST)
    shifted = b.fma(inside, math.log2(math.e), _EXP_MAGIC)
    n = b.sub(shifted, _EXP_MAGIC)
    r = b.fma(n, -_LN2_LOWER, b.fma(n, -_LN2_UPPER, inside))
    step = _lookup(b, shifted, _EXP_TABLE)
    growth = b.fma(b.fma(b.fma(r, 1 / 6, 0.5), r, 1.0), r, _lookup(b, shifted, _EXP_REST))
    # a scale that underflows takes a hundred cycles on some processors, that of a zero none
    total = b.where(b.compare("olt", x, _LEAST), 0.0, b.fma(step, growth, step))
    return _scaled(b, total, n)


def erf(b: Body, x: Val) -> Val:
    """The error function, odd to the bit."""
    raw = b.cast("bitcast", x, "i32")
    sign = b.bits("and", raw, _SIGN)
    size = b.at_most(b.cast("bitcast", b.bits("and", raw, ~_SIGN), "float"), _ERF_MOST)
    shifted = b.add(size, _ERF_MAGIC)
    r = b.sub(size, _lookup(b, shifted, ERF_PLACES))
    first, *others, total = [_lookup(b, shifted, column) for column in ERF_TABLE]
    small = b.compare("olt", size, 3 / 16)
    t = b.where(small, b.mul(size, size), r)
    for c in reversed(others):
        total = b.fma(total, t, c)
    total = b.fma(total, r, b.where(small, size, first))
    return b.cast("bitcast", b.bits("or", b.cast("bitcast", total, "i32"), sign), "float")


def _lookup(b: Body, shifted: Val, numbers: Sequence[float]) -> Val:
    """Of 16 or 32 numbers, the one that the low bits of ``shifted`` say."""
    index = (_INDEX, b.cast("bitcast", shifted, "i32").text)
    halves = [(_VECTOR, b.vector(numbers[i : i + LANES])) for i in range(0, len(numbers), LANES)]
    if len(halves) == 1:
        return b.intrinsic("llvm.x86.avx512.permvar.sf.512", (*halves, index), "float")
    first, second = halves
    return b.intrinsic("llvm.x86.avx512.vpermi2var.ps.512", (first, index, second), "float")


def _scaled(b: Body, x: Val, n: Val) -> Val:
    """x * 2^floor(n)."""
    lanes = ((_VECTOR, x.text), (_VECTOR, n.text), (_VECTOR, "zeroinitializer"))
    return b.intrinsic(
        "llvm.x86.avx512.mask.scalef.ps.512", (*lanes, ("i16", "-1"), ("i32", "4")), "float"
    )
