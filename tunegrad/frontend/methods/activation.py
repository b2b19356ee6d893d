"""Activations of ``torch.nn.functional``: 16-bit floats are computed in f32 and rounded once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from tunegrad.errors import DTypeError, ShapeError
from tunegrad.ir import graph

from .. import indexing
from ..handle import Handle, TensorLike, apply, floating, lift
from ..handle import where as select
from ..movement import axis_of, integer
from .ordering import Ordering

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["Activation"]


class Activation(Ordering):
    """``relu``, ``gelu``, ``softplus`` and the like."""

    __slots__ = ()

    def relu(self) -> Tensor:
        """The larger of self and zero; NaN stays NaN."""
        return self.maximum(0)

    def relu6(self) -> Tensor:
        """self between 0 and 6."""
        return self.clamp(0, 6)

    @floating
    def sigmoid(self) -> Tensor:
        """1 / (1 + exp(-self))."""
        return ((-self).exp() + 1).reciprocal()

    @floating
    def logsigmoid(self) -> Tensor:
        """log(sigmoid(self)), without overflow on the way."""
        return self.minimum(0) - (-self.abs()).exp().log1p()

    @floating
    def silu(self) -> Tensor:
        """self * sigmoid(self)."""
        return self * self.sigmoid()

    swish = silu

    @floating
    def gelu(self, approximate: Literal["none", "tanh"] = "none") -> Tensor:
        """self * P(Z <= self) of a standard normal Z: by erf, or by the tanh formula of Hendrycks
        and Gimpel 2016.
        """
        x = self._same()
        if approximate == "none":
            return x * 0.5 * ((x * math.sqrt(0.5)).erf() + 1)
        if approximate == "tanh":
            return x * 0.5 * (((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)).tanh() + 1)
        raise ShapeError(f"gelu: approximate={approximate!r} is not one of 'none', 'tanh'")

    @floating
    def leaky_relu(self, negative_slope: float = 0.01) -> Tensor:
        """self where positive, else negative_slope * self."""
        return select(self > 0, self, self * negative_slope)

    @floating
    def prelu(self, weight: TensorLike) -> Tensor:
        """self where positive, else weight * self, one weight for all channels (axis 1) or each."""
        w = lift(weight, "prelu")._wide()
        if w.ndim == 1 and w.shape[0] != 1 and self.ndim > 1:
            if w.shape[0] != self.shape[1]:
                raise ShapeError(f"prelu: weight {w.shape} for the channels of {self.shape}")
            w = w.reshape(-1, *(1 for _ in self.shape[2:]))
        return select(self > 0, self, self * w)

    @floating
    def rrelu(self, lower: float = 1 / 8, upper: float = 1 / 3) -> Tensor:
        """self where positive, else self by the mean of the two slopes, as in inference."""
        return select(self >= 0, self, self * ((lower + upper) / 2))

    @floating
    def elu(self, alpha: float = 1.0) -> Tensor:
        """self where positive, else alpha * (exp(self) - 1)."""
        return select(self > 0, self, self.minimum(0).expm1() * alpha)

    @floating
    def selu(self) -> Tensor:
        """``elu``, scaled so that means and variances stay (Klambauer et al. 2017)."""
        return self.elu(1.6732632423543772) * 1.0507009873554805

    @floating
    def celu(self, alpha: float = 1.0) -> Tensor:
        """self where positive, else alpha * (exp(self / alpha) - 1)."""
        return select(self > 0, self, (self.minimum(0) / alpha).expm1() * alpha)

    @floating
    def softplus(self, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
        """log(1 + exp(beta * self)) / beta; self where beta * self is beyond the threshold."""
        x = self * beta
        return select(x > threshold, self, (x.maximum(0) + (-x.abs()).exp().log1p()) / beta)

    @floating
    def softsign(self) -> Tensor:
        """self / (1 + |self|)."""
        return self / (self.abs() + 1)

    @floating
    def mish(self) -> Tensor:
        """self * tanh(softplus(self))."""
        return self * self.softplus().tanh()

    def hardtanh(self, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
        """self between two bounds."""
        return self.clamp(min_val, max_val)

    @floating
    def hardsigmoid(self) -> Tensor:
        """(self + 3) / 6, between 0 and 1."""
        return (self + 3).clamp(0, 6) * (1 / 6)

    @floating
    def hardswish(self) -> Tensor:
        """self * hardsigmoid(self)."""
        return self * (self + 3).clamp(0, 6) * (1 / 6)

    def hardshrink(self, lambd: float = 0.5) -> Tensor:
        """self beyond ``lambd`` on either side, else zero."""
        return select((self >= -lambd) & (self <= lambd), 0, self)

    def softshrink(self, lambd: float = 0.5) -> Tensor:
        """Elements beyond ``lambd`` on either side, moved towards zero by it; else zero."""
        return select(self > lambd, self - lambd, select(self < -lambd, self + lambd, self * 0))

    @floating
    def tanhshrink(self) -> Tensor:
        """self - tanh(self)."""
        return self - self.tanh()

    def threshold(self, threshold: float, value: float) -> Tensor:
        """self where it is beyond the threshold, else ``value``."""
        return select(self > threshold, self, value)

    def glu(self, dim: int = -1) -> Tensor:
        """The first half along ``dim`` by the sigmoid of the second.

        Raises ShapeError for an odd extent.
        """
        at = axis_of("glu", dim, self.shape)
        if self.shape[at] % 2:
            raise ShapeError(
                f"glu: extent {self.shape[at]} of dimension {at} of {self.shape} is odd"
            )
        a, b = self._wide().chunk(2, at)
        return (a * b.sigmoid())._as(self.float_type)

    def one_hot(self, num_classes: int) -> Tensor:
        """i64 ones at the positions that it holds, along a new last dimension.

        Raises DTypeError for positions that are no integers, IndexOutOfRange for those that are not
        from 0 to ``num_classes`` - 1.
        """
        if not self.dtype.is_int:
            raise DTypeError(
                f"one_hot: positions of shape {self.shape} are {self.dtype}, they must be integers"
            )
        count = integer("one_hot", "num_classes", num_classes, 0)
        positions = Handle.of(graph.iota((count,), 0, self.dtype))
        held = apply("one_hot", lambda n: indexing.within("one_hot", n, 0, count), self)
        return (held.unsqueeze(-1) == positions).cast("i64")
