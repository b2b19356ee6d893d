"""Exponentials, logarithms, trigonometric and hyperbolic functions, their inverses, and the error
function: made of sine, exponential, logarithm and polynomials.

16-bit floats are computed in f32, integers as f32.
"""

from __future__ import annotations

import math

from tunegrad.ir import graph
from tunegrad.ir.dtypes import F32, F64
from tunegrad.ir.expr import Op
from tunegrad.ir.math_coefficients import ATAN, EXP

from ..handle import Handle, TensorLike, floats, joined, lift, where
from ..nodes.elementwise import Scalar, broadcast, broadcast_shapes, constant, float_function
from ..operation import floating, operation
from ..vjp import custom_vjp
from .arithmetic import copysign, signbit

# Sums and products of floats together with what their rounding took away (Dekker 1971; Ogita, Rump
# and Oishi 2005).
#
#     s = a + b,  e = two_sum's second      s + e is a + b exactly
#     p = a * b,  e = two_product's second  p + e is a * b exactly, where FMA rounds once
#
# A device whose FMA rounds twice gives 0 as a product's second part: the result is then as exact as
# without it. A result that is not finite has no second part worth adding: see ``finite``.


def fma(a: Handle, b: Handle | Scalar, c: Handle | Scalar) -> Handle:
    """``a * b + c``, rounded once where the device can; floats of one dtype, broadcast."""
    given = [
        x.node if isinstance(x, Handle) else constant(x, (), a.dtype, "fma") for x in (a, b, c)
    ]
    shape = broadcast_shapes("fma", *(n.shape for n in given))
    node = graph.elementwise(Op.FMA, *(broadcast(n, shape) for n in given))
    return Handle.of(node, joined([x for x in (a, b, c) if isinstance(x, Handle)]))


def two_sum(a: Handle, b: Handle | Scalar) -> tuple[Handle, Handle]:
    """The sum, and what rounding took from it (Knuth)."""
    total = a + b
    second = total - a
    return total, (a - (total - second)) + (b - second)


def two_product(a: Handle, b: Handle | Scalar) -> tuple[Handle, Handle]:
    """The product, and what rounding took from it, where that is not below the least number."""
    product = a * b
    return product, fma(a, b, -product)


def finite(correction: Handle) -> Handle:
    """A correction, 0 where it is infinite or NaN."""
    return where(correction - correction == 0, correction, 0.0)


@operation
def float_power(input: Handle, exponent: TensorLike) -> Handle:
    """``input ** exponent`` in f64."""
    return input.cast("f64") ** lift(exponent, "float_power").cast("f64")


def _hypot_vjp(g: Handle, y: Handle, input: Handle, other: TensorLike) -> tuple[Handle, Handle]:
    """d(hypot(a, b)) = (a da + b db) / hypot(a, b), 0 at zero"""
    size = where(y == 0, 1.0, y)
    return where(y == 0, 0.0, g * (input / size)), where(y == 0, 0.0, g * (other / size))


@operation
@custom_vjp(_hypot_vjp)
def hypot(input: Handle, other: TensorLike) -> Handle:
    """``sqrt(input**2 + other**2)``, without overflow on the way; inf where one is, even beside
    NaN (C99, F.10.4.3).

    The remainders of the quotient, its square and the root are added before the only rounding
    that counts.
    """
    kind, (x, y) = floats("hypot", input, other)
    large, small = x.abs().maximum(y.abs()), x.abs().minimum(y.abs())
    ratio = where(large == 0, 0.0, small / large)
    left = fma(-ratio, large, small)
    share, rest = two_product(ratio, ratio)
    square = share + 1
    root = square.sqrt()
    missing = fma(-root, root, square) + ((share - (square - 1)) + rest)
    size = fma(large, root, (large * missing * 0.5 + ratio * left) / root)
    infinite = (x.abs() == math.inf) | (y.abs() == math.inf)
    return where(infinite, math.inf, size)._as(kind)


def _xlogy_vjp(g: Handle, _: Handle, input: Handle, other: TensorLike) -> tuple[Handle, Handle]:
    """d(a log b) = log(b) da, 0 where both are zero, + a db / b"""
    b = lift(other, "xlogy")
    hidden = (input == 0) & (b <= 0)
    return where(hidden, 0.0, g * where(hidden, 1.0, b).log()), g * input / b


@operation
@custom_vjp(_xlogy_vjp)
def xlogy(input: Handle, other: TensorLike) -> Handle:
    """``input * log(other)``; zero where input is, unless ``other`` is NaN."""
    kind, (x, y) = floats("xlogy", input, other)
    return where((x == 0) & (y == y), 0.0, x * y.log())._as(kind)


def _logaddexp_vjp(g: Handle, _: Handle, input: Handle, other: TensorLike) -> tuple[Handle, Handle]:
    """d(log(e^a + e^b)) = (e^a da + e^b db) / (e^a + e^b), by the gap: the result is rounded"""
    b = lift(other, "logaddexp")
    top = input.maximum(b)
    first, second = (input - top).exp(), (b - top).exp()
    return g * (first / (first + second)), g * (second / (first + second))


@operation
@custom_vjp(_logaddexp_vjp)
def logaddexp(input: Handle, other: TensorLike) -> Handle:
    """``log(exp(input) + exp(other))``, without overflow on the way."""
    kind, (x, y) = floats("logaddexp", input, other)
    top, gap = x.maximum(y), (x - y).abs()
    same = (x == y) & (top.abs() == math.inf)  # whose gap is no number
    return where(same, top, top + log1p((-gap).exp()))._as(kind)


def _logaddexp2_vjp(
    g: Handle, y: Handle, input: Handle, other: TensorLike
) -> tuple[Handle, Handle]:
    """d(log2(2^a + 2^b)) = (2^a da + 2^b db) / (2^a + 2^b)"""
    gap = (input - lift(other, "logaddexp2")) * math.log(2)
    return _logaddexp_vjp(g, y, gap, 0.0)


@operation
@custom_vjp(_logaddexp2_vjp)
def logaddexp2(input: Handle, other: TensorLike) -> Handle:
    """``log2(2**input + 2**other)``, without overflow on the way."""
    kind, (x, y) = floats("logaddexp2", input, other)
    ln2 = math.log(2)
    return (logaddexp(x * ln2, y * ln2) * (1 / ln2))._as(kind)


@operation
@floating
def rsqrt(input: Handle) -> Handle:
    """1 / sqrt."""
    return input.sqrt().reciprocal()


@operation
@floating
def exp2(input: Handle) -> Handle:
    """2 to this power."""
    return 2.0**input


def _expm1_vjp(g: Handle, y: Handle, _: Handle) -> Handle:
    """d(e^x - 1) = (y + 1) dx"""
    return g * (y + 1)


@operation
@floating
@custom_vjp(_expm1_vjp)
def expm1(input: Handle) -> Handle:
    """``exp(input) - 1``, near zero with what rounding took from the power: its logarithm tells
    that (as Higham 2002, section 1.14.1, by a sum in place of a quotient).
    """
    power = input.exp()
    less = power - 1
    near = where(less == 0, input, less + power * (input - power.log()))
    return where((input > -0.35) & (input < 1), near, less)


def _power(x: Handle) -> tuple[Handle, Handle, Handle]:
    """e^x in f64 as ``scale * (1 + high + tail)``, off by 2^-57 of it: a power of two, at most half
    of ln(2), and the rest of the series.
    """
    whole = (x * math.log2(math.e)).round()
    high, low = two_sum(fma(whole, -_LN2[0], x), whole * -_LN2[1])
    return 2.0**whole, high, high * high * polynomial(high, _EXP_DOUBLE) + low * (high + 1)


def _power_less_one(x: Handle) -> tuple[Handle, Handle]:
    """e^x - 1 in f64 as a sum of two numbers."""
    scale, high, tail = _power(x)
    most, rest = two_sum(scale - 1, scale * high)
    return two_sum(most, rest + scale * tail)


def _log10_double_vjp(g: Handle, _: Handle, input: Handle) -> Handle:
    """d(log10 x) = dx / (x log 10)"""
    return g / (input * math.log(10))


@custom_vjp(_log10_double_vjp)
def _log10_double(input: Handle) -> Handle:
    """The logarithm, with what its power tells of its error, times 1 / log(10) as a sum of two."""
    found = input.log()
    scale, high, tail = _power(-found)
    number = input * scale
    product, product_rest = two_product(number, high)
    left = (number - 1 + product) + (product_rest + number * tail)
    most, rest = two_product(found, _LOG10_E[0])
    return most + finite(rest + (found * _LOG10_E[1] + finite(left) * _LOG10_E[0]))


@operation
def log10(input: Handle) -> Handle:
    """The logarithm to base 10."""
    double = input.dtype == F64
    return _log10_double(input) if double else input._unary(float_function, Op.LOG10)


def _tanh_double_vjp(g: Handle, y: Handle, _: Handle) -> Handle:
    """d(tanh x) = (1 - tanh(x)^2) dx"""
    return g * (1 - y * y)


@custom_vjp(_tanh_double_vjp)
def _tanh_double(input: Handle) -> Handle:
    """``less / (less + 2)`` of ``less = 1 - e^-2x``, a quotient of sums of two numbers."""
    less, rest = _power_less_one(input.abs().minimum(20.0) * -2)  # beyond it is 1
    below, below_rest = two_sum(less, 2.0)
    found = less / below
    left = fma(-found, below, less) + (rest - found * (below_rest + rest))
    return copysign(found + left / below, input)


@operation
def tanh(input: Handle) -> Handle:
    """The hyperbolic tangent."""
    double = input.dtype == F64
    return _tanh_double(input) if double else input._unary(float_function, Op.TANH)


def _log1p_vjp(g: Handle, _: Handle, input: Handle) -> Handle:
    """d(log(1 + x)) = dx / (1 + x)"""
    return g / (input + 1)


@operation
@floating
@custom_vjp(_log1p_vjp)
def log1p(input: Handle) -> Handle:
    """``log(1 + input)``, with what rounding took from the sum (Higham 2002, section 1.14.1); in
    f32 a polynomial up to 0.5.
    """
    more = input + 1
    found = more.log()
    near = found + (input - (more - 1)) / more
    far = where(found.abs() == math.inf, found, near)
    single, square = input.dtype.bits == 32, input * input
    bent = square * (polynomial(input, _LOG1P) if single else 0.5)
    return where(input.abs() < (0.5 if single else 2.0**-27), input - bent, far)


@operation
@floating
def logit(input: Handle, eps: float | None = None) -> Handle:
    """``log(input / (1 - input))``, of input kept ``eps`` away from 0 and 1."""
    x = input if eps is None else input.clamp(eps, 1 - eps)
    return (x / (1 - x)).log()


def _erfc_vjp(g: Handle, _: Handle, input: Handle) -> Handle:
    """d(erfc x) = -2 / sqrt(pi) e^(-x^2) dx"""
    return g * (-input * input).exp() * (-2 / math.sqrt(math.pi))


@operation
@floating
@custom_vjp(_erfc_vjp)
def erfc(input: Handle) -> Handle:
    """``1 - erf(input)``, with its own digits where erf is nearly 1."""
    z = input.abs()
    scale, most, rest = _erfc_tail(z)
    tail = fma(scale, most, scale * rest)
    far = where(input < 0, 2 - tail, tail)
    return where(z < 0.5, 1 - input.erf(), far)


def _erfinv_vjp(g: Handle, y: Handle, _: Handle) -> Handle:
    """d(erfinv x) = sqrt(pi) / 2 e^(y^2) dx"""
    return g * (y * y).exp() * (math.sqrt(math.pi) / 2)


@operation
@floating
@custom_vjp(_erfinv_vjp)
def erfinv(input: Handle) -> Handle:
    """The inverse of ``erf`` on (-1, 1): near 0 a polynomial, whose first coefficient is two
    numbers; beyond steps of Halley's method from a guess (Giles 2012; in f64 towards 1 the first
    terms of erfc's asymptotic series).
    """
    double, size = input.dtype == F64, input.abs()
    w = -((1 - size) * (1 + size)).log()
    far = w + math.log(2)
    far = (
        (far - (far * math.pi).log() * 0.5).sqrt()
        if double
        else (polynomial(w.sqrt() - 3, _GILES_FAR) * size)
    )
    guess = where(w < 5, polynomial(w - 2.5, _GILES_NEAR) * size, far)
    for _ in range(2 if double else 1):
        scale, most, rest = _erfc_tail(guess)
        over = fma(scale, most, size - 1) + scale * rest
        step = over * (guess * guess).exp() * (math.sqrt(math.pi) / 2)
        guess = guess + step / (1 - guess * step)
        guess = guess.contiguous() if double else guess  # a kernel a step
    last, upper, lower, curve = _ERFINV[input.dtype.name]
    square = size * size
    near = fma(size, upper, size * (square * polynomial(square, curve) + lower))
    guess = copysign(where(size < last, near, guess), input)
    return where(size < 1, guess, where(size == 1, input * math.inf, math.nan))


@operation
def deg2rad(input: Handle) -> Handle:
    """Degrees as radians."""
    return input * (math.pi / 180)


@operation
def rad2deg(input: Handle) -> Handle:
    """Radians as degrees."""
    return input * (180 / math.pi)


def polynomial(x: Handle, coefficients: tuple[float, ...]) -> Handle:
    """Horner's rule, the highest power first."""
    result = fma(x, coefficients[0], coefficients[1])
    for c in coefficients[2:]:
        result = fma(result, x, c)
    return result


_GILES_NEAR = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip

_GILES_FAR = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
    -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip

_LOG1P = (
    -0.167945505, 0.169976096, -0.0578070672, 0.0719092587, -0.116467994, 0.128910257, -0.142448045,
    0.166427387, -0.200013191, 0.25000528, -0.333333213, 0.499999981,
)  # fmt: skip
"""(x - log(1 + x)) / x^2 from -0.5 to 0.5, as a polynomial of x (highest power first): fitted at
Chebyshev's points. The sum's logarithm is off by up to 1.31 ulps there, this by 1.01.
"""

_ERFINV = {
    "f32": (0.7, 0.8862269520759583, -2.6623200403e-08, (
        2.7892831189975418, -7.852357419856187, 10.031439401791111, -7.284717179610016,
        3.3863847512517187, -0.9591422400887597, 0.23344464164203978, 0.028924663624437248,
        0.06655296736013773, 0.08649507490146152, 0.1275569704923276, 0.2320136647092409,
    )),
    "f64": (0.525, 0.886226925452758, -3.8332932499128993e-17, (
        0.1355866734107182, -0.12139093642447935, 0.10475545048366162, -0.008505152818719955,
        0.03269051863968883, 0.02667778221087097, 0.031843146890739464, 0.03645332333119998,
        0.042837416198991854, 0.05173125723896491, 0.06495961827072269, 0.08655212923574697,
        0.1275561753056231, 0.23201366653465447,
    )),
}  # fmt: skip
"""Up to where it is a polynomial; sqrt(pi) / 2 as a sum of two numbers; and (erfinv(x) / x -
sqrt(pi) / 2) / x^2 as a polynomial of x^2 (highest power first), fitted at Chebyshev's points of up
to 0.8 and 0.53, to 2e-9 and 9e-18 of the quotient.
"""

_ERFC_SCALED = (
    -4.68535613421286e-06, 3.6591595323828943e-06, 9.462293570737807e-05, 6.239005940173721e-05,
    -0.001708184375841335, -0.008886417164443097, -0.022000246820482933, -0.023040885496582633,
    0.03699651053863397, 0.024798580958794312,
)  # fmt: skip
"""erfc(z) exp(z^2) (z + 1/2) - 39/64 from 1/2 to 10.25, as a polynomial (highest power first) of
(49.5 - 21 z) / (13 z + 32.5): fitted at Chebyshev's points, to 1e-9.
"""


def _erfc_tail(z: Handle) -> tuple[Handle, Handle, Handle]:
    """erfc from 0.47 on, as ``scale * (found + rest)``: ``exp(-z^2) K(z) / (z + 1/2)``, where K is
    39/64 and at most 0.035 more or less.

    In f32 the power is that of a number next to a multiple of ln(2), which any exp rounds well,
    times a sum of two numbers; the product with K and the divisor are such sums, too.
    """
    single = z.dtype == F32
    z = z.minimum(10.2 if single else 27.5)  # beyond it is zero
    square, square_rest = two_product(z, z)
    if single:
        whole = (square * math.log2(math.e) + 0.5).floor() * math.log(2) + 2.0**-16
        scale, high = (-whole).exp(), whole - square
        curved = high * high * polynomial(high, EXP[::-1])
    else:
        scale, high, curved = _power(-square)
    power = high + 1
    tail = ((1 - power) + high) + (curved - square_rest * (power + curved))
    below = z + 0.5
    inverse = below.reciprocal()
    if single:
        more = polynomial((49.5 - z * 21) / (z * 13 + 32.5), _ERFC_SCALED)
    else:
        more = polynomial((125.5 - z * 35) / (z * 27 + 94.5), _ERFC_DOUBLE)
    most, rest = two_product(power, 39 / 64)
    over, over_rest = two_sum(most, rest + ((power + tail) * more + tail * (39 / 64)))
    found = over * inverse
    left = fma(-found, below, over) + (over_rest - found * (0.5 - (below - z)))
    return scale, found, left * inverse


_EXP_DOUBLE = tuple(1 / math.factorial(k) for k in range(14, 1, -1))
"""``EXP`` in f64, by its series."""

_LN2 = (
    round(math.log(2) * 2**42) / 2**42,
    math.log(2) - round(math.log(2) * 2**42) / 2**42 + 2.3190468138462996e-17,
)
"""ln(2) as a sum of two numbers: the first has 42 bits, so products with exponents are exact."""

_LOG10_E = (0.4342944819032518, 1.098319650216765e-17)
"""1 / log(10) as a sum of two numbers."""

_ERFC_DOUBLE = (
    -1.723157787069881e-11, 6.8524251331654465e-12, 2.648992008778055e-10,
    -1.0932523434029652e-10, -2.940280511932792e-09, 5.091565723984382e-10,
    3.237115606318641e-08, 1.8237046048555765e-08, -3.5973028241457336e-07,
    -7.472697003666664e-07, 3.2092406356928537e-06, 1.8101093768439985e-05,
    1.0188497918413919e-05, -0.00024146361779244898, -0.0013952404700635023,
    -0.004625807921285411, -0.010860904993031122, -0.018531284967889215, -0.020377590994789044,
    -0.0020664859768431748, 0.05343157748292457, 0.01095210549708247,
)  # fmt: skip
"""erfc(z) exp(z^2) (z + 1/2) - 39/64 from 1/2 to 27.5, as a polynomial (highest power first) of
(125.5 - 35 z) / (27 z + 94.5): fitted at Chebyshev's points in 40 digits, to 1e-18.
"""


@operation
def tan(input: Handle) -> Handle:
    """The tangent of radians."""
    return input._unary(float_function, Op.TAN)


def _sinc_vjp(g: Handle, y: Handle, input: Handle) -> Handle:
    """d(sinc x) = (cos(pi x) - y) / x dx, 0 at zero"""
    x = where(input == 0, 1.0, input)
    return g * where(input == 0, 0.0, ((input * math.pi).cos() - y) / x)


@operation
@floating
@custom_vjp(_sinc_vjp)
def sinc(input: Handle) -> Handle:
    """``sin(pi x) / (pi x)``, and 1 at zero."""
    x = input * math.pi
    return where(input == 0, 1.0, x.sin() / x)


def _asin_vjp(g: Handle, _: Handle, input: Handle) -> Handle:
    """d(asin x) = dx / sqrt(1 - x^2)"""
    return g / ((1 - input) * (1 + input)).sqrt()


@operation
@floating
@custom_vjp(_asin_vjp)
def asin(input: Handle) -> Handle:
    """The angle whose sine it is; NaN outside of -1 to 1."""
    near, size, root, more = _arc(input)
    half, rest = _HALF_PI[input.dtype.name]
    # what is added to a quarter is small where the sum is
    far = ((half / 2 - root * 2) - (more * 2 - rest)) + half / 2
    return copysign(where(near, size + more, far), input)


def _acos_vjp(g: Handle, _: Handle, input: Handle) -> Handle:
    """d(acos x) = -dx / sqrt(1 - x^2)"""
    return -g / ((1 - input) * (1 + input)).sqrt()


@operation
@floating
@custom_vjp(_acos_vjp)
def acos(input: Handle) -> Handle:
    """The angle whose cosine it is; NaN outside of -1 to 1."""
    near, _, root, more = _arc(input)
    half, rest = _HALF_PI[input.dtype.name]
    middle = half - (input - (rest - copysign(more, input)))
    left = (half - (root + (more - rest))) * 2
    return where(near, middle, where(input < 0, left, (root + more) * 2))


def _arc(input: Handle) -> tuple[Handle, Handle, Handle, Handle]:
    """``asin(s) = s + more``: of the size s of input up to 1/2, beyond of the root s of
    ``(1 - size) / 2``, which is the sine of half the rest to a right angle.
    """
    size = input.abs()
    near = size <= 0.5
    square = where(near, size * size, (1 - size) * 0.5)
    root = square.sqrt()
    sine = where(near, size, root)
    return near, size, root, sine * square * polynomial(square, _ASIN[input.dtype.name])


def _atan_vjp(g: Handle, _: Handle, input: Handle) -> Handle:
    """d(atan x) = dx / (1 + x^2)"""
    return g / (input * input + 1)


@operation
@floating
@custom_vjp(_atan_vjp)
def atan(input: Handle) -> Handle:
    """The angle whose tangent it is: in f32 a polynomial up to 1, beyond of the reciprocal, with
    what rounding took from that; in f64 Moshier's rational function (Cephes) of a quotient, with
    what rounding took from that.
    """
    x = input.abs()
    if x.dtype == F32:
        x = x.minimum(2.0**100)  # whose reciprocal is no subnormal number
        far = x > 1
        y = where(far, x.reciprocal(), x)
        z = y * y
        more, curve = y * z, polynomial(z, ATAN[::-1])
        half, rest = _HALF_PI["f32"]
        left = fma(-y, x, 1.0) * y * (1 - z * 0.5) - rest
        near = fma(more, curve, y)
        return copysign(where(far, half - (y + fma(more, curve, left)), near), input)
    far, middle = x > math.tan(3 * math.pi / 8), x > 0.66
    over = where(far, -1.0, where(middle, x - 1, x))
    under = where(far, x, where(middle, x + 1, 1.0))
    y, under_rest = over / under, where(middle & ~far, x - (under - 1), 0.0)
    z = y * y
    left = finite((fma(-y, under, over) - y * under_rest) / under)
    odd = y * z * polynomial(z, _ATAN_P) / polynomial(z, _ATAN_Q) + left * (1 - z)
    (half, rest), turns = _HALF_PI["f64"], where(far, 1.0, where(middle, 0.5, 0.0)).cast(F64)
    whole, lost = two_sum(turns * half, y)
    return copysign(whole + (lost + (odd + turns * rest)), input)


def _atan2_vjp(g: Handle, _: Handle, input: Handle, other: TensorLike) -> tuple[Handle, Handle]:
    """d(atan2(y, x)) = (x dy - y dx) / (x^2 + y^2), 0 at zero"""
    x = lift(other, "atan2")
    size = input * input + x * x
    part = where(size == 0, 0.0, g / where(size == 0, 1.0, size))
    return part * x, -part * input


@operation
@custom_vjp(_atan2_vjp)
def atan2(input: Handle, other: TensorLike) -> Handle:
    """The angle of the point (other, input), from -pi to pi."""
    kind, (y, x) = floats("atan2", input, other)
    both = (x.abs() == math.inf) & (y.abs() == math.inf)
    ratio = where(both, 1.0, where(y == 0, 0.0, y.abs() / x.abs()))
    first = where((x == 0) & (y != 0), math.pi / 2, atan(ratio))
    angle = copysign(where(signbit(x), math.pi - first, first), y)
    return where((x != x) | (y != y), math.nan, angle)._as(kind)


def _sinh_vjp(g: Handle, _: Handle, input: Handle) -> Handle:
    """d(sinh x) = cosh(x) dx"""
    return g * cosh(input)


@operation
@floating
@custom_vjp(_sinh_vjp)
def sinh(input: Handle) -> Handle:
    """The hyperbolic sine."""
    x = input.abs()
    if x.dtype == F32:
        less, power = expm1(x), x.exp()
        near = where(x < 1, less + less / (less + 1), power - 1 / power) * 0.5
    else:
        (most, rest), (other, other_rest) = _power_less_one(x), _power_less_one(-x)
        total, left = two_sum(most, -other)
        near = (total + (left + (rest - other_rest))) * 0.5
    return copysign(where(x < _LARGE[input.dtype.name], near, _half_power(input, x)), input)


def _cosh_vjp(g: Handle, _: Handle, input: Handle) -> Handle:
    """d(cosh x) = sinh(x) dx"""
    return g * sinh(input)


@operation
@floating
@custom_vjp(_cosh_vjp)
def cosh(input: Handle) -> Handle:
    """The hyperbolic cosine."""
    x = input.abs()
    power = x.exp()
    near = power * 0.5 + 0.5 / power
    return where(x < _LARGE[input.dtype.name], near, _half_power(input, x))


def _half_power(input: Handle, x: Handle) -> Handle:
    """``exp(x) / 2``, which is a number where ``exp(x)`` no longer is."""
    from_ = _LARGE[input.dtype.name]
    return (x - from_).exp() * (math.exp(from_) / 2)


def _asinh_vjp(g: Handle, _: Handle, input: Handle) -> Handle:
    """d(asinh x) = dx / sqrt(x^2 + 1)"""
    return g / (input * input + 1).sqrt()


@operation
@floating
@custom_vjp(_asinh_vjp)
def asinh(input: Handle) -> Handle:
    """The number whose hyperbolic sine it is."""
    x = input.abs()
    near = log1p(x + x * x / ((x * x + 1).sqrt() + 1))
    return copysign(where(x > 1e9, x.log() + math.log(2), near), input)


def _acosh_vjp(g: Handle, _: Handle, input: Handle) -> Handle:
    """d(acosh x) = dx / sqrt(x^2 - 1)"""
    return g / ((input - 1) * (input + 1)).sqrt()


@operation
@floating
@custom_vjp(_acosh_vjp)
def acosh(input: Handle) -> Handle:
    """The number whose hyperbolic cosine it is; NaN below 1."""
    t = input - 1
    near = log1p(t + (t * 2 + t * t).sqrt())
    found = where(input > 1e9, input.log() + math.log(2), near)
    return where(input < 1, math.nan, found)


def _atanh_vjp(g: Handle, _: Handle, input: Handle) -> Handle:
    """d(atanh x) = dx / (1 - x^2)"""
    return g / ((1 - input) * (1 + input))


@operation
@floating
@custom_vjp(_atanh_vjp)
def atanh(input: Handle) -> Handle:
    """The number whose hyperbolic tangent it is; NaN outside of -1 to 1. In f64 with a step of
    Newton's method by ``(e^2y - 1) (1 - x) = 2x``.
    """
    x = input.abs()
    double = x * 2
    found = log1p(double + double * x / (1 - x)) * 0.5
    if x.dtype == F64:
        most, rest = _power_less_one(found * 2)
        below, below_rest = two_sum(-x, 1.0)
        product, left = two_product(most, below)
        off = (product - double) + (left + (most * below_rest + rest * below))
        found = found - finite(off / (double + 2))
    return copysign(where(x > 1, math.nan, found), input)


_LARGE = {"f32": 88.0320816040039, "f64": 709.0895667149406}
"""From here on hyperbolic functions are half a power. That of each is nearly a number of
its dtype, and little more than a power of two, so a product with it moves no error to larger ulps.
"""

_HALF_PI = {
    "f32": (1.57079637050628662109375, -4.371139000186243e-08),
    "f64": (1.5707963267948966, 6.123233995736766e-17),
}
"""A right angle, and what rounding took from it."""

_ASIN = {
    "f32": (
        0.03369084745645523, 0.017149237915873528, 0.031100662425160408, 0.04459940269589424,
        0.07500094175338745, 0.1666666567325592,
    ),
    "f64": (
        0.0496328699277025, -0.046128659736464496, 0.03788964802370373, -0.002246496013813719,
        0.012157745878583752, 0.011191033632198822, 0.014001301179724696, 0.0173503371202047,
        0.0223722608517715, 0.03038194198325319, 0.04464285717160332, 0.07499999999990194,
        0.16666666666666657,
    ),
}  # fmt: skip
"""``(asin(s) / s - 1) / s^2`` up to 1/2 as a polynomial of s^2 (highest power first), fitted at
Chebyshev's points, to 1e-9 and 1e-16 of asin.
"""

_ATAN_P = (
    -8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1,
    -1.228866684490136173410e2, -6.485021904942025371773e1,
)  # fmt: skip

_ATAN_Q = (
    1.0, 2.485846490142306297962e1, 1.650270098316988542046e2, 4.328810604912902668951e2,
    4.853903996359136964868e2, 1.945506571482613964425e2,
)  # fmt: skip
