"""Trigonometric and hyperbolic functions, and their inverses, made of sine, exponential, logarithm
and polynomials.

16-bit floats are computed in f32, integers as f32.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tunegrad.ir.expr import Op

from .. import elementwise as ew
from ..handle import TensorLike, floating, floats
from ..handle import where as select
from .arithmetic import polynomial
from .comparison import Comparison

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["Trigonometry"]


class Trigonometry(Comparison):
    """``cos``, ``atan2``, ``sinh`` and the like."""

    __slots__ = ()

    def sin(self) -> Tensor:
        """The sine of radians."""
        return self._with(ew.float_function(Op.SIN, self.node))

    def cos(self) -> Tensor:
        """The cosine of radians."""
        return self._with(ew.float_function(Op.COS, self.node))

    @floating
    def tan(self) -> Tensor:
        """The tangent of radians."""
        return self.sin() / self.cos()

    @floating
    def sinc(self) -> Tensor:
        """``sin(pi x) / (pi x)``, and 1 at zero."""
        x = self * math.pi
        return select(self == 0, 1.0, x.sin() / x)

    @floating
    def asin(self) -> Tensor:
        """The angle whose sine it is; NaN outside of -1 to 1."""
        near, size, root, more = self._arc()
        half, rest = _HALF_PI[self.dtype.name]
        # what is added to a quarter is small where the sum is
        far = ((half / 2 - root * 2) - (more * 2 - rest)) + half / 2
        return select(near, size + more, far).copysign(self)

    @floating
    def acos(self) -> Tensor:
        """The angle whose cosine it is; NaN outside of -1 to 1."""
        near, _, root, more = self._arc()
        half, rest = _HALF_PI[self.dtype.name]
        middle = half - (self - (rest - more.copysign(self)))
        left = (half - (root + (more - rest))) * 2
        return select(near, middle, select(self < 0, left, (root + more) * 2))

    def _arc(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """``asin(s) = s + more``: of the size s of self up to 1/2, beyond of the root s of
        ``(1 - size) / 2``, which is the sine of half the rest to a right angle.
        """
        size = self.abs()
        near = size <= 0.5
        square = select(near, size * size, (1 - size) * 0.5)
        root = square.sqrt()
        sine = select(near, size, root)
        return near, size, root, sine * square * polynomial(square, _ASIN[self.dtype.name])

    @floating
    def atan(self) -> Tensor:
        """The angle whose tangent it is (Moshier's rational function, Cephes)."""
        x = self.abs()
        far, middle = x > math.tan(3 * math.pi / 8), x > 0.66
        y = select(far, -1 / x, select(middle, (x - 1) / (x + 1), x))
        z = y * y
        odd = y + y * z * polynomial(z, _ATAN_P) / polynomial(z, _ATAN_Q)
        whole = select(far, odd + math.pi / 2, select(middle, odd + math.pi / 4, odd))
        return whole.copysign(self)

    def atan2(self, other: TensorLike) -> Tensor:
        """The angle of the point (other, self), from -pi to pi."""
        kind, (y, x) = floats("atan2", self, other)
        both = (x.abs() == math.inf) & (y.abs() == math.inf)
        ratio = select(both, 1.0, select(y == 0, 0.0, y.abs() / x.abs()))
        first = select((x == 0) & (y != 0), math.pi / 2, ratio.atan())
        angle = select(x.signbit(), math.pi - first, first).copysign(y)
        return select((x != x) | (y != y), math.nan, angle)._as(kind)

    @floating
    def sinh(self) -> Tensor:
        """The hyperbolic sine."""
        x = self.abs()
        less, power = x.expm1(), x.exp()
        near = select(x < 1, less + less / (less + 1), power - 1 / power) * 0.5
        return select(x < _LARGE[self.dtype.name], near, self._half_power(x)).copysign(self)

    @floating
    def cosh(self) -> Tensor:
        """The hyperbolic cosine."""
        x = self.abs()
        power = x.exp()
        near = power * 0.5 + 0.5 / power
        return select(x < _LARGE[self.dtype.name], near, self._half_power(x))

    def _half_power(self, x: Tensor) -> Tensor:
        """``exp(x) / 2``, which is a number where ``exp(x)`` no longer is."""
        from_ = _LARGE[self.dtype.name]
        return (x - from_).exp() * (math.exp(from_) / 2)

    def tanh(self) -> Tensor:
        """The hyperbolic tangent."""
        return self._with(ew.float_function(Op.TANH, self.node))

    @floating
    def asinh(self) -> Tensor:
        """The number whose hyperbolic sine it is."""
        x = self.abs()
        near = (x + x * x / ((x * x + 1).sqrt() + 1)).log1p()
        return select(x > 1e9, x.log() + math.log(2), near).copysign(self)

    @floating
    def acosh(self) -> Tensor:
        """The number whose hyperbolic cosine it is; NaN below 1."""
        t = self - 1
        near = (t + (t * 2 + t * t).sqrt()).log1p()
        found = select(self > 1e9, self.log() + math.log(2), near)
        return select(self < 1, math.nan, found)

    @floating
    def atanh(self) -> Tensor:
        """The number whose hyperbolic tangent it is; NaN outside of -1 to 1."""
        x = self.abs()
        double = x * 2
        found = (double + double * x / (1 - x)).log1p() * 0.5
        return select(x > 1, math.nan, found).copysign(self)

    arcsin, arccos, arctan, arctan2 = asin, acos, atan, atan2
    arcsinh, arccosh, arctanh = asinh, acosh, atanh


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
