"""Operators on each element."""

from __future__ import annotations

from typing import Any

from ...functions import where
from ...tensor import Tensor, lift
from .table import Operator, entries, methods

__all__ = ["TABLE"]


def _swapped_pow(base: Any, exponent: Tensor) -> Tensor:
    return base**exponent  # type: ignore[no-any-return]


def _elu(x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    if scale == 1 and input_scale == 1:
        return x.elu(alpha)
    return where(x > 0, x * scale, (x * input_scale).expm1() * (alpha * scale))


def _gelu(x: Tensor, *, approximate: Any = "none") -> Tensor:
    return x.gelu(approximate)


def _prelu(x: Tensor, weight: Tensor) -> Tensor:
    """The weight broadcasts as it is."""
    return where(x > 0, x, x * weight)


def _log_sigmoid_forward(x: Tensor) -> tuple[Tensor, None]:
    return x.logsigmoid(), None


def _sgn(x: Tensor) -> Tensor:
    return x.sign()


def _where(condition: Tensor, input: Any, other: Any) -> Tensor:
    return where(condition, input, other)


def _masked_fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    filled = value if isinstance(value, int | float) else lift(value, "masked_fill").cast(x.dtype)
    return x.masked_fill(mask, filled)


def _softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    return x.softplus(beta, threshold)


def _hardtanh(x: Tensor, min_val: float = -1, max_val: float = 1) -> Tensor:
    return x.hardtanh(min_val, max_val)


def _nan_to_num(
    x: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    return x.nan_to_num(0.0 if nan is None else nan, posinf, neginf)


TABLE: dict[str, Operator] = {
    **methods(
        "abs neg exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos "
        "atan sinh cosh tanh asinh acosh atanh erf erfc erfinv sigmoid relu relu6 ceil floor trunc "
        "frac sign isnan isinf isfinite isposinf isneginf signbit logical_not bitwise_not silu "
        "mish hardswish hardsigmoid selu square positive round logit leaky_relu glu threshold "
        "celu hardshrink softshrink maximum minimum fmax fmin atan2 logical_and logical_or "
        "logical_xor hypot clamp_min clamp_max clamp logaddexp logaddexp2 floor_divide heaviside "
        "addcmul addcdiv sinc deg2rad rad2deg prelu"
    ),
    **methods("add sub rsub mul", "Tensor Scalar"),
    **methods("div", "Tensor Scalar Tensor_mode Scalar_mode"),
    **methods("eq ne lt le gt ge fmod", "Tensor Scalar"),
    **methods("remainder", "Tensor Scalar"),
    **methods("bitwise_and bitwise_or bitwise_xor", "Tensor Scalar"),
    **methods("bitwise_left_shift bitwise_right_shift", "Tensor Tensor_Scalar"),
    **methods("pow", "Tensor_Tensor Tensor_Scalar"),
    **methods("clamp clamp_min clamp_max", "Tensor"),
    **methods("lerp", "Tensor Scalar"),
    **methods("xlogy", "Tensor Scalar_Other"),
    **methods("copysign", "Tensor Scalar"),
    **methods("round", "decimals"),
    **entries(Tensor.bitwise_left_shift, "__lshift__.Tensor", "__lshift__.Scalar"),
    **entries(Tensor.bitwise_right_shift, "__rshift__.Tensor", "__rshift__.Scalar"),
    **entries(_swapped_pow, "pow.Scalar"),
    **entries(_elu, "elu.default"),
    **entries(_gelu, "gelu.default"),
    **entries(_prelu, "_prelu_kernel.default"),
    **entries(Tensor.logsigmoid, "log_sigmoid.default"),
    **entries(_log_sigmoid_forward, "log_sigmoid_forward.default"),
    **entries(_sgn, "sgn.default"),
    **entries(_where, "where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar"),
    **entries(_masked_fill, "masked_fill.Scalar", "masked_fill.Tensor"),
    **entries(_softplus, "softplus.default"),
    **entries(_hardtanh, "hardtanh.default"),
    **entries(_nan_to_num, "nan_to_num.default"),
}
