"""Operators on each element, those that make tensors, fold dimensions, scan along them, or sort."""

from __future__ import annotations

import math
import operator
from functools import partial
from typing import Any

from tunegrad.ir.dtypes import F32, I64, DType

from ...creation import (
    arange,
    eye,
    full,
    full_like,
    linspace,
    ones,
    ones_like,
    scalar_tensor,
    tril_indices,
    triu_indices,
    zeros,
    zeros_like,
)  # fmt: skip
from ...functions import where
from ...ops.special import fma
from ...tensor import Tensor, lift
from .table import Operator, entries, overloads, unsupported


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


def _rrelu(
    x: Tensor, noise: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False,
    *_: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    if training:
        raise unsupported("rrelu_with_noise_functional", "training=True")
    return x.rrelu(lower, upper), noise


def _log_sigmoid_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.logsigmoid(), (-x.abs()).exp()


def _masked_fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    filled = value if isinstance(value, int | float) else lift(value, "masked_fill").cast(x.dtype)
    return x.masked_fill(mask, filled)


def _nan_to_num(
    x: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    return x.nan_to_num(0.0 if nan is None else nan, posinf, neginf)


def _fake_quantize(
    x: Tensor, scale: Any, zero_point: Any, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    """The values that steps of ``scale`` stand for, and whether they are inside of the range."""
    if isinstance(scale, float):
        scale = full((), scale, F32)
    step = (x * (1 / scale)).round() + zero_point
    inside = (step >= quant_min) & (step <= quant_max)
    return (step.clamp(quant_min, quant_max) - zero_point) * scale, inside


def _fake_quantize_if(
    x: Tensor, scale: Tensor, zero_point: Tensor, enabled: Tensor, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    made, inside = _fake_quantize(x, scale, zero_point, quant_min, quant_max)
    return where(enabled != 0, made, x), inside | (enabled == 0)


def _fake_quantize_channels(
    x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    shape = [scale.size if d == axis % x.ndim else 1 for d in range(x.ndim)]
    return _fake_quantize(x, scale.reshape(shape), zero_point.reshape(shape), quant_min, quant_max)


ELEMENTWISE: dict[str, Operator] = {
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
    **entries(Tensor.div, "true_divide.Tensor"),
    **entries(Tensor.neg, "_neg_view.default"),
    **entries(_fake_quantize, "fake_quantize_per_tensor_affine_cachemask.default"),
    **entries(
        _fake_quantize_if, "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default"
    ),
    **entries(_fake_quantize_channels, "fake_quantize_per_channel_affine_cachemask.default"),
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
    **entries(_rrelu, "rrelu_with_noise_functional.default"),
    **entries(_log_sigmoid_forward, "log_sigmoid_forward.default"),
    **entries(Tensor.sign, "sgn.default"),
    **entries(where, "where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar"),
    **entries(_masked_fill, "masked_fill.Scalar", "masked_fill.Tensor"),
    **entries(Tensor.softplus, "softplus.default"),
    **entries(Tensor.hardtanh, "hardtanh.default"),
    **entries(_nan_to_num, "nan_to_num.default"),
    **entries(fma, "prims.fma.default"),
}  # fmt: skip


def _maximum(x: Tensor, other: Any) -> Tensor:
    return x.maximum(other) if isinstance(other, Tensor) else x.clamp_min(other)


def _minimum(x: Tensor, other: Any) -> Tensor:
    return x.minimum(other) if isinstance(other, Tensor) else x.clamp_max(other)


def _vector_norm(x: Tensor, order: Any = 2) -> Tensor:
    return x.norm(order)


def _with_value(method: Operator) -> Operator:
    def run(x: Tensor, a: Tensor, b: Tensor, value: Any = 1) -> Any:
        return method(x, a, b, value=value)

    return run


def _each(function: Operator) -> Operator:
    """The same of each tensor of a list; a list beside it gives one argument to each."""

    def run(*args: Any, **options: Any) -> list[Any]:
        count = next(len(a) for a in args if isinstance(a, list))
        rows = zip(*(a if isinstance(a, list) else [a] * count for a in args), strict=True)
        return [function(*row, **options) for row in rows]

    return run


def _for_each(kinds: str, **operators: Operator) -> dict[str, Operator]:
    return {
        f"_foreach_{name}.{kind}": _each(operator)
        for name, operator in operators.items()
        for kind in kinds.split()
    }


FOR_EACH: dict[str, Operator] = {
    **_for_each(
        "default", abs=Tensor.abs, neg=Tensor.neg, exp=Tensor.exp, log=Tensor.log,
        sqrt=Tensor.sqrt, rsqrt=Tensor.rsqrt, reciprocal=Tensor.reciprocal, sign=Tensor.sign,
    ),
    **_for_each(
        "Scalar List ScalarList Tensor", add=operator.add, mul=operator.mul, div=operator.truediv
    ),
    **_for_each("Scalar List ScalarList", sub=operator.sub),
    **_for_each("List", add=Tensor.add, sub=Tensor.sub),
    **_for_each(
        "Scalar List ScalarList", maximum=_maximum, minimum=_minimum, clamp_max=_minimum,
        clamp_min=_maximum,
    ),
    **_for_each("Scalar List ScalarList ScalarAndTensor", pow=operator.pow),
    **_for_each("Scalar List ScalarList", lerp=Tensor.lerp),
    **_for_each(
        "Scalar ScalarList Tensor", addcmul=_with_value(Tensor.addcmul),
        addcdiv=_with_value(Tensor.addcdiv),
    ),
    **_for_each("Scalar", norm=_vector_norm),
}  # fmt: skip
"""Optimisers in their forms over lists of parameters."""


def _fill(x: Tensor, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.cast(x.dtype).expand(*x.shape)
    return full(x.shape, value, x.dtype)


def _new_strided(x: Tensor, size: Any, _: Any, dtype: DType | None = None) -> Tensor:
    """Strides are those that PyTorch's description has."""
    return zeros(tuple(size), dtype or x.dtype)


def _strided(size: Any, _: Any, dtype: DType = F32) -> Tensor:
    return zeros(tuple(size), dtype)


def _corner(indices: Operator, *sizes: int, dtype: DType = I64, **more: Any) -> Tensor:
    return indices(*sizes, **more).cast(dtype)  # type: ignore[no-any-return]


CREATION: dict[str, Operator] = {
    **entries(_new_strided, "new_empty_strided.default"),
    **entries(_strided, "empty_strided.default"),
    **entries(full, "full.default"),
    **entries(zeros, "zeros.default", "empty.memory_format"),
    **entries(ones, "ones.default"),
    **entries(zeros_like, "zeros_like.default", "empty_like.default"),
    **entries(ones_like, "ones_like.default"),
    **entries(Tensor.new_zeros, "new_zeros.default", "new_empty.default"),
    **entries(Tensor.new_ones, "new_ones.default"),
    **entries(Tensor.new_full, "new_full.default"),
    **entries(full_like, "full_like.default"),
    **entries(_fill, "fill.Scalar", "fill.Tensor"),
    **entries(arange, "arange.default", "arange.start", "arange.start_step"),
    **entries(scalar_tensor, "scalar_tensor.default"),
    **entries(eye, "eye.default", "eye.m"),
    **entries(linspace, "linspace.default"),
    **entries(partial(_corner, tril_indices), "tril_indices.default"),
    **entries(partial(_corner, triu_indices), "triu_indices.default"),
}


def _folds(kinds: str, *methods: Operator) -> dict[str, Operator]:
    """Folds over dimensions, of which PyTorch's empty list is all."""

    def of(method: Operator) -> Operator:
        def fold(x: Tensor, dim: Any = None, *args: Any, **options: Any) -> Any:
            over = (tuple(dim) or None) if isinstance(dim, list) else dim
            return method(x, over, *args, **options)

        return fold

    return {f"{m.__name__}.{kind}": of(m) for m in methods for kind in kinds.split()}


def _norm(x: Tensor, ord: float = 2, dim: Any = None, *args: Any, **options: Any) -> Tensor:
    return x.norm(ord, dim or None if isinstance(dim, list) else dim, *args, **options)


def _extreme(value: Operator, place: Operator) -> Operator:
    def fold(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        return value(x, dim, keepdim), place(x, dim, keepdim)

    return fold


def _softmax(method: Operator) -> Operator:
    def fold(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
        found: Tensor = method(x.cast(F32) if half_to_float else x, dim)
        return found

    return fold


def _safe_softmax(x: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    """Softmax; a row of nothing but minus infinity becomes 0."""
    nothing = (x == -math.inf).all(dim, True)
    return x.softmax(dim, dtype).masked_fill(nothing, 0.0)


REDUCTIONS: dict[str, Operator] = {
    **_folds("default dim_IntList", Tensor.sum),
    **_folds("default dim", Tensor.mean),
    **_folds("default dim dims", Tensor.any, Tensor.all),
    **_folds(
        "default", Tensor.amax, Tensor.amin, Tensor.argmax, Tensor.argmin, Tensor.logsumexp
    ),
    **entries(Tensor.amax, "max.default"),
    **entries(Tensor.amin, "min.default"),
    **entries(_extreme(Tensor.amax, Tensor.argmax), "max.dim"),
    **entries(_extreme(Tensor.amin, Tensor.argmin), "min.dim"),
    **entries(Tensor.maximum, "max.other"),
    **entries(Tensor.minimum, "min.other"),
    **overloads("default dim_int", Tensor.prod),
    **_folds("correction dim", Tensor.var, Tensor.std),
    **_folds("correction", Tensor.var_mean, Tensor.std_mean),
    **entries(_softmax(Tensor.softmax), "_softmax.default"),
    **entries(_softmax(Tensor.log_softmax), "_log_softmax.default"),
    **entries(Tensor.softmax, "softmax.int"),
    **entries(Tensor.log_softmax, "log_softmax.int"),
    **entries(_safe_softmax, "_safe_softmax.default"),
    **overloads("default dim", Tensor.median),
    **entries(Tensor.cumsum, "cumsum.default"),
    **entries(Tensor.cumprod, "cumprod.default"),
    **overloads("default", Tensor.cummax, Tensor.cummin, Tensor.logcumsumexp),
    **entries(Tensor.sort, "sort.default", "sort.stable"),
    **overloads("default", Tensor.argsort, Tensor.topk),
    **entries(_norm, "linalg_vector_norm.default"),
}  # fmt: skip
