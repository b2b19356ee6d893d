"""Comparisons and logic by name, and what kind of number an element is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tunegrad.ir import graph
from tunegrad.ir.expr import Op

from ..handle import TensorLike, beside, lift
from ..handle import where as select
from .arithmetic import Arithmetic
from .operators import bitwise, compare, shifted

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["Comparison"]


class Comparison(Arithmetic):
    """``eq``, ``isnan``, ``logical_and`` and the like."""

    __slots__ = ()

    def eq(self, other: TensorLike) -> Tensor:
        """True where an element equals the other's."""
        return compare("eq", self, other)

    def ne(self, other: TensorLike) -> Tensor:
        """True where an element differs from the other's."""
        return compare("ne", self, other)

    def lt(self, other: TensorLike) -> Tensor:
        """True where an element is less."""
        return compare("lt", self, other)

    def le(self, other: TensorLike) -> Tensor:
        """True where an element is less or equal."""
        return compare("le", self, other)

    def gt(self, other: TensorLike) -> Tensor:
        """True where an element is greater."""
        return compare("gt", self, other)

    def ge(self, other: TensorLike) -> Tensor:
        """True where an element is greater or equal."""
        return compare("ge", self, other)

    less, less_equal, greater, greater_equal, not_equal = lt, le, gt, ge, ne

    def equal(self, other: TensorLike) -> bool:
        """True if shapes and all values are equal, computed now."""
        y = lift(other, "equal")
        return self.shape == y.shape and bool((self == y).all().item())

    def isclose(
        self, other: TensorLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> Tensor:
        """True where ``|self - other| <= atol + rtol * |other|``; infinities are close to
        themselves alone, and NaN to nothing unless ``equal_nan``.
        """
        x, y = self._wide(), beside(self, other, "isclose")._wide()
        near = ((x - y).abs() <= y.abs() * rtol + atol) & (y.abs() != math.inf)
        close = (x == y) | near
        return close | ((x != x) & (y != y)) if equal_nan else close

    def allclose(
        self, other: TensorLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> bool:
        """True if all elements are close, computed now."""
        return bool(self.isclose(other, rtol, atol, equal_nan).all().item())

    def isnan(self) -> Tensor:
        """True where an element is no number."""
        return self != self

    def isinf(self) -> Tensor:
        """True where an element is infinite, of either sign."""
        return self._float_or_zero().abs() == math.inf

    def isposinf(self) -> Tensor:
        """True where an element is plus infinity."""
        return self._float_or_zero() == math.inf

    def isneginf(self) -> Tensor:
        """True where an element is minus infinity."""
        return self._float_or_zero() == -math.inf

    def isfinite(self) -> Tensor:
        """True where an element is a number and not infinite."""
        return self._float_or_zero().abs() < math.inf

    def signbit(self) -> Tensor:
        """True where an element has a minus sign; zeros have one, too."""
        if not self.dtype.is_float:
            return self < 0 if self.dtype.is_int else self & False
        return (self < 0) | ((self == 0) & (self._wide().reciprocal() < 0))

    def heaviside(self, values: TensorLike) -> Tensor:
        """0 below zero, 1 above, ``values`` at zero; NaN stays."""
        x, at_zero = self._same(), beside(self, values, "heaviside")
        step = select(x != x, x, (x > 0).cast(x.dtype)) if self.dtype.is_float else (x > 0)
        return select(x == 0, at_zero, step.cast(x.dtype))

    def logical_and(self, other: TensorLike) -> Tensor:
        """True where both are other than zero."""
        return self._truth() & lift(other, "logical_and")._truth()

    def logical_or(self, other: TensorLike) -> Tensor:
        """True where at least one is other than zero."""
        return self._truth() | lift(other, "logical_or")._truth()

    def logical_xor(self, other: TensorLike) -> Tensor:
        """True where exactly one is other than zero."""
        return self._truth() ^ lift(other, "logical_xor")._truth()

    def logical_not(self) -> Tensor:
        """True where an element is zero."""
        return ~self._truth()

    def bitwise_and(self, other: TensorLike) -> Tensor:
        """``self & other``."""
        return bitwise(Op.AND, self, other)

    def bitwise_or(self, other: TensorLike) -> Tensor:
        """``self | other``."""
        return bitwise(Op.OR, self, other)

    def bitwise_xor(self, other: TensorLike) -> Tensor:
        """``self ^ other``."""
        return bitwise(Op.XOR, self, other)

    def bitwise_left_shift(self, other: TensorLike) -> Tensor:
        """``self << other``."""
        return shifted(Op.SHL, self, other)

    def bitwise_right_shift(self, other: TensorLike) -> Tensor:
        """``self >> other``."""
        return shifted(Op.SHR, self, other)

    def bitwise_not(self) -> Tensor:
        """``~self``."""
        return ~self

    def _truth(self) -> Tensor:
        return self.cast("bool")

    def _float_or_zero(self) -> Tensor:
        """self, or zeros where its type has no infinities."""
        if self.dtype.is_float:
            return self._same()
        return self._with(graph.full(0.0, self.shape, self.float_type))
