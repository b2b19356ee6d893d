"""Operators on each element, those that make tensors, and those that fold dimensions, scan along
them, or sort.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from tunegrad.ir.dtypes import F32, DType

from ...creation import arange, eye, full, full_like, linspace, ones_like, zeros_like
from ...functions import where
from ...tensor import Tensor, lift
from .table import Operator, entries, overloads


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


def _filled(value: int) -> Operator:
    def make(size: Sequence[int], *, dtype: DType | None = None) -> Tensor:
        return full(tuple(size), value, F32 if dtype is None else dtype)

    return make


def _fill(x: Tensor, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.cast(x.dtype).expand(*x.shape)
    return full(x.shape, value, x.dtype)


def _scalar(value: Any, *, dtype: DType | None = None) -> Tensor:
    return full((), value, F32 if dtype is None else dtype)


def _eye(n: int, m: int | None = None, *, dtype: DType | None = None) -> Tensor:
    return eye(n, m, F32 if dtype is None else dtype)


def _linspace(start: float, end: float, steps: int, *, dtype: DType | None = None) -> Tensor:
    return linspace(start, end, steps, F32 if dtype is None else dtype)


CREATION: dict[str, Operator] = {
    **entries(full, "full.default"),
    **entries(_filled(0), "zeros.default", "empty.memory_format"),
    **entries(_filled(1), "ones.default"),
    **entries(zeros_like, "zeros_like.default", "empty_like.default"),
    **entries(ones_like, "ones_like.default"),
    **entries(Tensor.new_zeros, "new_zeros.default", "new_empty.default"),
    **entries(Tensor.new_ones, "new_ones.default"),
    **entries(Tensor.new_full, "new_full.default"),
    **entries(full_like, "full_like.default"),
    **entries(_fill, "fill.Scalar", "fill.Tensor"),
    **entries(arange, "arange.default", "arange.start", "arange.start_step"),
    **entries(_scalar, "scalar_tensor.default"),
    **entries(_eye, "eye.default", "eye.m"),
    **entries(_linspace, "linspace.default"),
}

Dims = Sequence[int] | int | None


def _axes(dim: Dims) -> Any:
    """PyTorch's empty list is all dimensions."""
    if dim is None or isinstance(dim, int):
        return dim
    return tuple(dim) or None


def _sum(
    x: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    return x.sum(_axes(dim), keepdim, dtype=dtype)


def _mean(
    x: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    return (x if dtype is None else x.cast(dtype)).mean(_axes(dim), keepdim)


def _folded(method: Operator) -> Operator:
    def fold(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
        found: Tensor = method(x, _axes(dim), keepdim)
        return found

    return fold


def _extreme(value: Operator, place: Operator) -> Operator:
    def fold(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        return value(x, dim, keepdim), place(x, dim, keepdim)

    return fold


def _prod(x: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    return (x if dtype is None else x.cast(dtype)).prod(dim, keepdim)


def _spread(method: Operator) -> Operator:
    """``correction`` is 1 unless given."""

    def fold(
        x: Tensor, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
    ) -> Any:
        less = 1.0 if correction is None else float(correction)
        return method(x, _axes(dim), True, keepdim, correction=less)

    return fold


def _spread_by_dim(method: Operator) -> Operator:
    def fold(x: Tensor, dim: Dims, unbiased: bool = True, keepdim: bool = False) -> Any:
        return method(x, _axes(dim), unbiased, keepdim)

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


def _median(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    found = x.median() if dim is None else x.median(dim, keepdim)
    return found if dim is None else tuple(found)


def _norm(
    x: Tensor, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    return x.norm(ord, _axes(dim), keepdim, dtype)


REDUCTIONS: dict[str, Operator] = {
    **entries(_sum, "sum.default", "sum.dim_IntList"),
    **entries(_mean, "mean.default", "mean.dim"),
    **entries(_folded(Tensor.amax), "amax.default", "max.default"),
    **entries(_folded(Tensor.amin), "amin.default", "min.default"),
    **entries(_folded(Tensor.any), "any.default", "any.dim", "any.dims"),
    **entries(_folded(Tensor.all), "all.default", "all.dim", "all.dims"),
    **entries(_folded(Tensor.argmax), "argmax.default"),
    **entries(_folded(Tensor.argmin), "argmin.default"),
    **entries(_folded(Tensor.logsumexp), "logsumexp.default"),
    **entries(_extreme(Tensor.amax, Tensor.argmax), "max.dim"),
    **entries(_extreme(Tensor.amin, Tensor.argmin), "min.dim"),
    **entries(Tensor.maximum, "max.other"),
    **entries(Tensor.minimum, "min.other"),
    **entries(_prod, "prod.default", "prod.dim_int"),
    **entries(_spread(Tensor.var), "var.correction"),
    **entries(_spread(Tensor.std), "std.correction"),
    **entries(_spread(Tensor.var_mean), "var_mean.correction"),
    **entries(_spread(Tensor.std_mean), "std_mean.correction"),
    **entries(_spread_by_dim(Tensor.var), "var.dim"),
    **entries(_spread_by_dim(Tensor.std), "std.dim"),
    **entries(_softmax(Tensor.softmax), "_softmax.default"),
    **entries(_softmax(Tensor.log_softmax), "_log_softmax.default"),
    **entries(Tensor.softmax, "softmax.int"),
    **entries(Tensor.log_softmax, "log_softmax.int"),
    **entries(_safe_softmax, "_safe_softmax.default"),
    **entries(_median, "median.default", "median.dim"),
    **entries(Tensor.cumsum, "cumsum.default"),
    **entries(Tensor.cumprod, "cumprod.default"),
    **overloads("default", Tensor.cummax, Tensor.cummin, Tensor.logcumsumexp),
    **entries(Tensor.sort, "sort.default", "sort.stable"),
    **overloads("default", Tensor.argsort, Tensor.topk),
    **entries(_norm, "linalg_vector_norm.default"),
}  # fmt: skip
