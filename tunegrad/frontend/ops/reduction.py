"""Folds of dimensions: statistics, norms, softmax, places of extremes.

``axis=`` and ``keepdims=`` are taken for ``dim=`` and ``keepdim=`` everywhere.
"""

from __future__ import annotations

import math
from typing import Literal

from tunegrad.errors import ShapeError
from tunegrad.ir.dtypes import dtype_of
from tunegrad.ir.expr import Op

from ..handle import Handle, TensorLike, where
from ..nodes import folds
from ..nodes.arrays import DTypeLike
from ..nodes.movement import Axes, axes_of, axis_of
from ..operation import T, along, floating, operation
from ..vjp import custom_vjp
from .arithmetic import isfinite

Order = float | Literal["fro", "nuc"] | None


@operation
def nansum(input: Handle, dim: Axes = None, keepdim: bool = False) -> Handle:
    """Sums over ``dim``, NaN counted as zero."""
    return where(input != input, 0, input).sum(dim, keepdim)


@operation
def aminmax(input: T, *, dim: int | None = None, keepdim: bool = False) -> tuple[T, T]:
    """The smallest and the largest over ``dim``."""
    return input.amin(dim, keepdim), input.amax(dim, keepdim)


@operation
def nanmean(input: Handle, dim: Axes = None, keepdim: bool = False) -> Handle:
    """The average over ``dim`` of what is a number."""
    x = input._wide()
    numbers = (x == x).cast(x.dtype).sum(dim, keepdim)
    return (nansum(x, dim, keepdim) / numbers)._as(input.float_type)


def _variance_vjp(g: Handle, _: Handle, x: Handle, axes: tuple[int, ...], freedom: float) -> Handle:
    """d(sum of (x - mean)^2) = 2 (x - mean) dx"""
    return (x - x.mean(axes, True)) * (g * (2 / freedom))


@custom_vjp(_variance_vjp)
def _variance(x: Handle, axes: tuple[int, ...], freedom: float) -> Handle:
    """The sum of squared distances from the mean over the degrees of freedom, in two passes of f64:
    far from zero it is as exact as around it. The mean is one of distances from a first element: of
    equal numbers it is theirs, and the variance 0.
    """
    first = x
    for axis in axes:
        first = first.narrow(axis, 0, min(1, x.shape[axis]))
    wide = x.cast("f64") - first.cast("f64")
    distance = wide - wide.mean(axes, True)
    return ((distance * distance).sum(axes, True) / freedom).cast(x.dtype)


@operation
def var(
    input: Handle,
    dim: Axes = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Handle:
    """The variance over ``dim``: squared distances from the mean over ``count - correction``, added
    up in f64.

    ``correction`` is 1, the sample's, or 0, the population's (numpy's default), where
    ``unbiased`` is false.
    """
    axes = axes_of("var", dim, input.shape)
    count = _count(input, axes)
    less = float(unbiased) if correction is None else float(correction)
    freedom = max(0.0, count - less) if count else math.nan
    found = _variance(input._wide(), axes, freedom)
    return (found if keepdim else found.squeeze(axes))._as(input.float_type)


def _root_vjp(g: Handle, y: Handle, _: Handle) -> Handle:
    """d(sqrt x) = dx / (2 y), 0 at zero"""
    return where(y == 0, 0.0, g / where(y == 0, 1.0, y * 2))


@custom_vjp(_root_vjp)
def _root(x: Handle) -> Handle:
    """The square root of sums of squares."""
    return x.sqrt()


@operation
def std(
    input: Handle,
    dim: Axes = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Handle:
    """The square root of the variance."""
    x = var(input._wide(), dim, unbiased, keepdim, correction=correction)
    return _root(x)._as(input.float_type)


@operation
def var_mean(
    input: T, dim: Axes = None, unbiased: bool = True, keepdim: bool = False,
    *, correction: float | None = None,
) -> tuple[T, T]:  # fmt: skip
    """The variance and the mean."""
    return var(input, dim, unbiased, keepdim, correction=correction), input.mean(dim, keepdim)


@operation
def std_mean(
    input: T, dim: Axes = None, unbiased: bool = True, keepdim: bool = False,
    *, correction: float | None = None,
) -> tuple[T, T]:  # fmt: skip
    """The standard deviation and the mean."""
    return std(input, dim, unbiased, keepdim, correction=correction), input.mean(dim, keepdim)


def _logsumexp_vjp(
    g: Handle, y: Handle, input: Handle, dim: Axes = None, keepdim: bool = False
) -> Handle:
    """dx = e^(x - y) dy"""
    del keepdim
    kept = _kept(input, dim)
    top = where(y == -math.inf, 0.0, y).reshape(kept)
    return g.reshape(kept) * (input - top).exp()


@operation
@custom_vjp(_logsumexp_vjp)
def logsumexp(input: Handle, dim: Axes = None, keepdim: bool = False) -> Handle:
    """``log(sum(exp(input)))`` over ``dim``, shifted so that nothing overflows."""
    axes = axes_of("logsumexp", dim, input.shape)
    x = input._wide()
    if not _count(x, axes):
        return x.sum(axes, keepdim).log()._as(input.float_type)
    top = x.amax(axes, True)
    shift = where(isfinite(top), top, 0.0)
    total = (x - shift).exp().sum(axes, True).log() + shift
    return (total if keepdim else total.squeeze(axes))._as(input.float_type)


def _powers_vjp(
    g: Handle, y: Handle, size: Handle, order: float, dim: Axes, keepdim: bool
) -> Handle:
    """d((sum of x^p)^(1/p)) = (x / y)^(p - 1) dx, 0 where y is zero"""
    del keepdim
    kept = _kept(size, dim)
    total = where(y == 0, 1.0, y).reshape(kept)
    flat = (y == 0).reshape(kept)
    flat = flat if order >= 1 else flat | (size == 0)
    x = where(flat, 1.0, size)
    if 1 < order < 2:  # the slope of a zero is infinite, and no share of the total's
        slopes = x ** (order - 1) * total ** (1 - order)
    else:
        slopes = (x / total) ** (order - 1)
    return where(flat, 0.0, g.reshape(kept) * slopes)


@custom_vjp(_powers_vjp)
def _powers(size: Handle, order: float, dim: Axes, keepdim: bool) -> Handle:
    """The norm of sizes."""
    return (size**order).sum(dim, keepdim) ** (1 / order)


@operation
def norm(
    input: Handle, p: Order = "fro", dim: Axes = None, keepdim: bool = False,
    dtype: DTypeLike | None = None,
) -> Handle:  # fmt: skip
    """The p-norm of all elements along ``dim``: 2 unless told, ``math.inf`` the largest size, 0
    how many are other than zero.

    Raises ShapeError for a ``p`` that is no number; the nuclear norm needs singular values.
    """
    kind = input.float_type if dtype is None else dtype_of(dtype)
    x = input._wide().cast(kind.compute)
    size = x.abs()
    order = 2.0 if p in ("fro", None) else p
    if isinstance(order, str):
        raise ShapeError(f"norm: p={p!r} of shape {input.shape} is neither a number nor 'fro'")
    if order == math.inf:
        found = size.amax(dim, keepdim)
    elif order == -math.inf:
        found = size.amin(dim, keepdim)
    elif order == 0:
        found = (x != 0).cast(x.dtype).sum(dim, keepdim)
    elif order == 1:
        found = size.sum(dim, keepdim)
    elif order == 2:
        found = _root((x * x).sum(dim, keepdim))
    else:
        found = _powers(size, order, dim, keepdim)
    return found._as(kind)


@operation
def dist(input: Handle, other: TensorLike, p: float = 2) -> Handle:
    """The ``p``-norm of what two tensors are apart."""
    apart: Handle = norm((input - other).ravel(), p)
    return apart


@operation
def count_nonzero(input: Handle, dim: Axes = None) -> Handle:
    """Number of elements over ``dim`` that are other than zero, i64."""
    return input.cast("bool").sum(dim)


def _softmax_vjp(g: Handle, y: Handle, _: Handle, dim: int | None = -1) -> Handle:
    """dx = y (dy - sum(y dy))"""
    at = axis_of("softmax", -1 if dim is None else dim, y.shape)
    return (g - (g * y).sum(at, True)) * y


@operation
@along
def softmax(input: Handle, dim: int | None = -1, dtype: DTypeLike | None = None) -> Handle:
    """exp(input) over its sum along ``dim``, shifted so that nothing overflows."""
    return _softmax(input if dtype is None else input.cast(dtype), dim)


@floating
@custom_vjp(_softmax_vjp)
def _softmax(input: Handle, dim: int | None) -> Handle:
    at = axis_of("softmax", -1 if dim is None else dim, input.shape)
    if 0 in input.shape:
        return input
    powers = (input - input.amax(at, True)).exp()
    return powers * powers.sum(at, True).reciprocal()


@operation
@custom_vjp(_softmax_vjp)
def masked_softmax(input: Handle) -> Handle:
    """softmax of floats along the last dimension, zeros in a row of -inf alone: attention's."""
    if 0 in input.shape:
        return input
    least, tiny = _BOUNDS[input.dtype.name]
    powers = (input - input.amax(-1, True).maximum(least)).exp()
    # a sum is at least 1 where an element is a number
    return powers * powers.sum(-1, True).maximum(tiny).reciprocal()


def _log_softmax_vjp(g: Handle, y: Handle, _: Handle, dim: int | None) -> Handle:
    """dx = dy - e^y sum(dy)"""
    at = axis_of("log_softmax", -1 if dim is None else dim, y.shape)
    return g - y.exp() * g.sum(at, True)


@operation
@along
def log_softmax(input: Handle, dim: int | None = -1, dtype: DTypeLike | None = None) -> Handle:
    """The logarithm of softmax, computed without it."""
    return _log_softmax(input if dtype is None else input.cast(dtype), dim)


@floating
@custom_vjp(_log_softmax_vjp)
def _log_softmax(input: Handle, dim: int | None) -> Handle:
    at = axis_of("log_softmax", -1 if dim is None else dim, input.shape)
    if 0 in input.shape:
        return input
    shifted = input - input.amax(at, True)
    return shifted - shifted.exp().sum(at, True).log()


@operation
def softmin(input: Handle, dim: int | None = -1) -> Handle:
    """``softmax`` of the negated elements."""
    return softmax(-input, dim)


@operation
def normalize(input: Handle, p: float = 2.0, dim: Axes = 1, eps: float = 1e-12) -> Handle:
    """Divided by the p-norm along ``dim``, which counts as ``eps`` at least."""
    x = input._wide()
    return (x / norm(x, p, dim, True).clamp(eps))._as(input.float_type)


@operation
@along
def argmax(input: Handle, dim: int | None = None, keepdim: bool = False) -> Handle:
    """The first place of the largest along ``dim``, i64; in the row of all without one."""
    return _arg(input, "max", dim, keepdim)


@operation
@along
def argmin(input: Handle, dim: int | None = None, keepdim: bool = False) -> Handle:
    """The first place of the smallest along ``dim``, i64; in the row of all without one."""
    return _arg(input, "min", dim, keepdim)


def _arg(input: Handle, name: Literal["max", "min"], dim: int | None, keepdim: bool) -> Handle:
    op = Op.MAX if name == "max" else Op.MIN
    found = input._with(folds.argextremum(op, input.node, dim, keepdim and dim is not None))
    return found.reshape((1,) * input.ndim) if keepdim and dim is None else found


@operation
def position_of(input: Handle, name: Literal["max", "min"], dim: int, keepdim: bool) -> Handle:
    """The first place of the largest or smallest along ``dim``, i64; of NaN, where there is
    one.
    """
    return _arg(input, name, dim, keepdim)


_BOUNDS = {"f32": (-3.4028234663852886e38, 2.0**-100), "f64": (-1.7976931348623157e308, 2.0**-900)}
"""The least finite number, and one below any sum of powers that has a largest one."""


def _count(x: Handle, axes: tuple[int, ...]) -> int:
    return math.prod(x.shape[a] for a in axes)


def _kept(x: Handle, dim: Axes) -> tuple[int, ...]:
    """The shape of a fold of ``x`` that keeps its dimensions."""
    axes = axes_of("fold", dim, x.shape)
    return tuple(1 if d in axes else s for d, s in enumerate(x.shape))
