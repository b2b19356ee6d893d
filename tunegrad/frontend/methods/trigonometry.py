"""Trigonometric and hyperbolic functions, and their inverses, made of sine, exponential, logarithm
and one polynomial.

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
        return (self / ((1 - self) * (1 + self)).sqrt()).atan()

    @floating
    def acos(self) -> Tensor:
        """The angle whose cosine it is; NaN outside of -1 to 1."""
        return ((1 - self) / (1 + self)).sqrt().atan() * 2

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
        less = x.expm1()
        near = (less + less / (less + 1)) * 0.5
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
        return ((2 * x / (1 - x)).log1p() * 0.5).copysign(self)

    arcsin, arccos, arctan, arctan2 = asin, acos, atan, atan2
    arcsinh, arccosh, arctanh = asinh, acosh, atanh


_LARGE = {"f32": 64.0, "f64": 512.0}
"""From here on hyperbolic functions are half a power."""

_ATAN_P = (
    -8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1,
    -1.228866684490136173410e2, -6.485021904942025371773e1,
)  # fmt: skip
_ATAN_Q = (
    1.0, 2.485846490142306297962e1, 1.650270098316988542046e2, 4.328810604912902668951e2,
    4.853903996359136964868e2, 1.945506571482613964425e2,
)  # fmt: skip
