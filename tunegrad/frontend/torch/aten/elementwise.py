"""Operators on each element."""

from __future__ import annotations

import operator
from typing import Any

from ...functions import where
from ...tensor import Tensor, lift
from .table import Operator, entries, overloads

__all__ = ["TABLE"]


def _elu(x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    if scale == 1 and input_scale == 1:
        return x.elu(alpha)
    return where(x > 0, x * scale, (x * input_scale).expm1() * (alpha * scale))


def _rsub(x: Tensor, other: Any, alpha: Any = 1) -> Tensor:
    """ATen has ``alpha`` by its place here."""
    return x.rsub(other, alpha=alpha)


def _prelu(x: Tensor, weight: Tensor) -> Tensor:
    """The weight broadcasts as it is."""
    return where(x > 0, x, x * weight)


def _log_sigmoid_forward(x: Tensor) -> tuple[Tensor, None]:
    return x.logsigmoid(), None


def _masked_fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    filled = value if isinstance(value, int | float) else lift(value, "masked_fill").cast(x.dtype)
    return x.masked_fill(mask, filled)


def _nan_to_num(
    x: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    return x.nan_to_num(0.0 if nan is None else nan, posinf, neginf)


TABLE: dict[str, Operator] = {
    **overloads(
        "default", Tensor.abs, Tensor.neg, Tensor.exp, Tensor.exp2, Tensor.expm1, Tensor.log,
        Tensor.log2, Tensor.log10, Tensor.log1p, Tensor.sqrt, Tensor.rsqrt, Tensor.reciprocal,
        Tensor.sin, Tensor.cos, Tensor.tan, Tensor.asin, Tensor.acos, Tensor.atan, Tensor.sinh,
        Tensor.cosh, Tensor.tanh, Tensor.asinh, Tensor.acosh, Tensor.atanh, Tensor.erf,
        Tensor.erfc, Tensor.erfinv, Tensor.sigmoid, Tensor.relu, Tensor.relu6, Tensor.ceil,
        Tensor.floor, Tensor.trunc, Tensor.frac, Tensor.sign, Tensor.isnan, Tensor.isinf,
        Tensor.isfinite, Tensor.isposinf, Tensor.isneginf, Tensor.signbit, Tensor.logical_not,
        Tensor.bitwise_not, Tensor.silu, Tensor.mish, Tensor.hardswish, Tensor.hardsigmoid,
        Tensor.selu, Tensor.square, Tensor.positive, Tensor.round, Tensor.logit,
        Tensor.leaky_relu, Tensor.glu, Tensor.threshold, Tensor.celu, Tensor.hardshrink,
        Tensor.softshrink, Tensor.maximum, Tensor.minimum, Tensor.fmax, Tensor.fmin,
        Tensor.atan2, Tensor.logical_and, Tensor.logical_or, Tensor.logical_xor, Tensor.hypot,
        Tensor.clamp_min, Tensor.clamp_max, Tensor.clamp, Tensor.logaddexp, Tensor.logaddexp2,
        Tensor.floor_divide, Tensor.heaviside, Tensor.addcmul, Tensor.addcdiv, Tensor.sinc,
        Tensor.deg2rad, Tensor.rad2deg, Tensor.prelu,
    ),
    **overloads("Tensor Scalar", Tensor.add, Tensor.sub, Tensor.mul),
    **overloads("Tensor", Tensor.rsub),
    **entries(_rsub, "rsub.Scalar"),
    **overloads("Tensor Scalar Tensor_mode Scalar_mode", Tensor.div),
    **overloads(
        "Tensor Scalar", Tensor.eq, Tensor.ne, Tensor.lt, Tensor.le, Tensor.gt, Tensor.ge,
        Tensor.fmod,
    ),
    **overloads("Tensor Scalar", Tensor.remainder),
    **overloads("Tensor Scalar", Tensor.bitwise_and, Tensor.bitwise_or, Tensor.bitwise_xor),
    **overloads("Tensor Tensor_Scalar", Tensor.bitwise_left_shift, Tensor.bitwise_right_shift),
    **overloads("Tensor_Tensor Tensor_Scalar", Tensor.pow),
    **overloads("Tensor", Tensor.clamp, Tensor.clamp_min, Tensor.clamp_max),
    **overloads("Tensor Scalar", Tensor.lerp),
    **overloads("Tensor Scalar_Other", Tensor.xlogy),
    **overloads("Tensor Scalar", Tensor.copysign),
    **overloads("decimals", Tensor.round),
    **entries(Tensor.bitwise_left_shift, "__lshift__.Tensor", "__lshift__.Scalar"),
    **entries(Tensor.bitwise_right_shift, "__rshift__.Tensor", "__rshift__.Scalar"),
    **entries(operator.pow, "pow.Scalar"),
    **entries(operator.mod, "remainder.Scalar_Tensor"),
    **entries(_elu, "elu.default"),
    **entries(Tensor.gelu, "gelu.default"),
    **entries(_prelu, "_prelu_kernel.default"),
    **entries(Tensor.logsigmoid, "log_sigmoid.default"),
    **entries(_log_sigmoid_forward, "log_sigmoid_forward.default"),
    **entries(Tensor.sign, "sgn.default"),
    **entries(where, "where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar"),
    **entries(_masked_fill, "masked_fill.Scalar", "masked_fill.Tensor"),
    **entries(Tensor.softplus, "softplus.default"),
    **entries(Tensor.hardtanh, "hardtanh.default"),
    **entries(_nan_to_num, "nan_to_num.default"),
}  # fmt: skip
