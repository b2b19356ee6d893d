"""Order along a dimension: cumulative folds, sorting, the largest few, medians and quantiles.

Sorting is stable, and NaN comes after all numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple

import numpy as np

from tunegrad.errors import ShapeError
from tunegrad.ir import graph
from tunegrad.ir.dtypes import F32
from tunegrad.ir.graph import Node
from tunegrad.ir.math_coefficients import LOG

from ..handle import Handle, TensorLike, as_if, lift, where
from ..nodes import folds
from ..nodes.arrays import DTypeLike
from ..nodes.movement import axis_of, integer
from ..operation import T, along, floating, operation
from ..vjp import custom_vjp
from .arithmetic import isnan, masked_fill
from .indexing import gather, take_known
from .movement import diagonal, movedim, pad
from .reduction import argmax
from .special import finite, fma, log1p, polynomial, two_product, two_sum


def _cumsum_vjp(
    g: Handle, _: Handle, input: Handle, dim: int, *, dtype: DTypeLike | None = None
) -> Handle:
    """dx[i] = sum of dy from i on"""
    del input, dtype
    return cumsum(g.flip(dim), dim).flip(dim)


@operation
@along
@custom_vjp(_cumsum_vjp)
def cumsum(input: Handle, dim: int, *, dtype: DTypeLike | None = None) -> Handle:
    """The sum of all elements up to each one along ``dim``; of integers and bools i64."""
    return _folded("sum", _corrected_sum, input, dim, dtype)


def _cumprod_vjp(
    g: Handle, _: Handle, input: Handle, dim: int, *, dtype: DTypeLike | None = None
) -> Handle:
    """dx[i] = (product before i) r[i],  r[i] = dy[i] + x[i + 1] r[i + 1]"""
    x = input if dtype is None else input.cast(dtype)
    if not x.size:
        return g
    at = axis_of("cumprod", dim, x.shape)
    return _shifted(cumprod(x, at), at, 1, 1.0) * _recurrence(_shifted(x, at, -1), g, at)


@operation
@along
@custom_vjp(_cumprod_vjp)
def cumprod(input: Handle, dim: int, *, dtype: DTypeLike | None = None) -> Handle:
    """The product of all elements up to each one along ``dim``; of integers and bools i64."""
    return _folded("prod", _corrected_product, input, dim, dtype)


@operation
@along
def cummax(input: T, dim: int) -> Found[T]:
    """The largest up to each element along ``dim``, and the last place of it."""
    return _picked(input, dim, *folds.cumulative_extremum("max", input.node, dim))


@operation
@along
def cummin(input: T, dim: int) -> Found[T]:
    """The smallest up to each element along ``dim``, and the last place of it."""
    return _picked(input, dim, *folds.cumulative_extremum("min", input.node, dim))


def _logcumsumexp_vjp(g: Handle, y: Handle, input: Handle, dim: int) -> Handle:
    """dx[i] = e^(x[i] - y[i]) r[i],  r[i] = dy[i] + e^(y[i] - y[i + 1]) r[i + 1]"""
    if not input.size:
        return g
    at = axis_of("logcumsumexp", dim, input.shape)
    falls = _shifted(_share(_shifted(y, at, 1), y), at, -1)
    return _share(input, y) * _recurrence(falls, g, at)


@operation
@along
@floating
@custom_vjp(_logcumsumexp_vjp)
def logcumsumexp(input: Handle, dim: int) -> Handle:
    """``log(cumsum(exp(input)))``, each sum shifted by the largest of its own elements.

    A block of 8 elements is a triangle of maxima and of sums of shares of them; what the
    blocks before one come to is a shorter row of the same kind.
    """
    at = axis_of("logcumsumexp", dim, input.shape)
    if not input.size:
        return input
    return movedim(_log_of(*_log_scan(movedim(input, at, -1))), -1, at)


@operation
@along
def sort(input: T, dim: int = -1, descending: bool = False, stable: bool = True) -> Found[T]:
    """The elements in order along ``dim``, and their places."""
    del stable
    return Found(*map(input._with, folds.sort(input.node, dim, descending)))


@operation
@along
def argsort(input: Handle, dim: int = -1, descending: bool = False, stable: bool = True) -> Handle:
    """The places of the elements in order along ``dim``."""
    del stable
    return input._with(folds.argsort(input.node, dim, descending))


@operation
def msort(input: Handle) -> Handle:
    """The elements in order along the first dimension."""
    return sort(input, 0).values


@operation
@along
def topk(input: T, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Found[T]:
    """The ``k`` largest or smallest along ``dim`` in order, and their places."""
    del sorted
    return Found(*map(input._with, folds.topk(input.node, k, dim, largest)))


@operation
@along
def kthvalue(input: T, k: int, dim: int = -1, keepdim: bool = False) -> Found[T]:
    """The k-th smallest along ``dim``, counted from 1, and its place."""
    at = axis_of("kthvalue", dim, input.shape)
    extent = input.shape[at]
    if not 1 <= integer("kthvalue", "k", k) <= extent:
        raise ShapeError(f"kthvalue: k={k} is not one of {extent} elements of {input.shape}")
    return _nth(input, k - 1, at, keepdim)


def _nth(input: T, n: int, at: int, keepdim: bool) -> Found[T]:
    found = (t.narrow(at, n, 1) for t in sort(input, at))
    return Found(*(t if keepdim else t.squeeze(at) for t in found))


@operation
def median(input: T, dim: int | None = None, keepdim: bool = False) -> T | Found[T]:
    """The middle element, the smaller of two, NaN where one is; with its place along ``dim``,
    where that is given.
    """
    x = input.ravel() if dim is None or not input.shape else input
    at = axis_of("median", -1 if dim is None else dim, x.shape)
    extent = x.shape[at]
    if not extent:
        raise ShapeError(f"median: shape {input.shape} has no elements")
    values, places = _nth(x, (extent - 1) // 2, at, keepdim)
    if not input.shape:
        values, places = values.reshape(()), places.reshape(())
    elif x.dtype.is_float:
        unknown = isnan(x)
        any_nan = unknown.any(at, keepdim)
        values = masked_fill(values, any_nan, math.nan)
        places = masked_fill(places, any_nan, argmax(unknown.cast("i32"), at, keepdim))
    if dim is not None:
        return Found(values, places)
    if not x.dtype.is_float:
        return values

    def equal() -> Handle:
        hit = x == values
        share = where(hit, x, 0.0)._wide().sum() / hit.sum()
        return share._as(x.dtype)

    return as_if(values, equal)


@operation
def nanmedian(input: T, dim: int | None = None, keepdim: bool = False) -> T | Found[T]:
    """``median`` of what is not NaN; NaN where all are."""
    x = input.ravel() if dim is None or not input.shape else input
    at = axis_of("nanmedian", -1 if dim is None else dim, x.shape)
    if not x.shape[at]:
        raise ShapeError(f"nanmedian: shape {input.shape} has no elements")
    known = (x == x).cast("i64").sum(at, keepdim=True)
    last = (known - 1).clamp(0) // 2
    values, places = (gather(t, at, last) for t in sort(x, at))  # NaN are last
    if not input.shape:
        values, places = values.reshape(()), places.reshape(())
    elif not keepdim or dim is None:
        values, places = values.squeeze(at), places.squeeze(at)
    return values if dim is None else Found(values, places)


@operation
@floating
def quantile(
    input: Handle, q: float | Sequence[float], dim: int | None = None, keepdim: bool = False,
    *, interpolation: str = "linear",
) -> Handle:  # fmt: skip
    """Values that a part ``q`` of the elements lies below, between neighbours by linear
    interpolation; several parts stand in a new first dimension.

    Raises ShapeError for parts outside of 0 to 1, or another interpolation.
    """
    if interpolation not in ("linear", "lower", "higher", "nearest"):
        raise ShapeError(f"quantile: interpolation={interpolation!r} is not supported")
    parts = np.atleast_1d(np.asarray(q, np.float64))
    if parts.ndim != 1 or not ((parts >= 0) & (parts <= 1)).all():
        raise ShapeError(f"quantile: q={q!r} must lie from 0 to 1")
    x = input.ravel() if dim is None or not input.shape else input
    at = axis_of("quantile", -1 if dim is None else dim, x.shape)
    ordered = movedim(sort(x, at).values, at, 0)
    place = parts * (x.shape[at] - 1)
    low, high = np.floor(place).astype(np.int64), np.ceil(place).astype(np.int64)
    rest = (place - low).astype(x.dtype.numpy).reshape(-1, *(1,) * (ordered.ndim - 1))
    below, above = take_known(ordered, 0, low), take_known(ordered, 0, high)
    if interpolation == "linear":
        found = below + (above - below) * Handle.of(graph.const(rest, x.dtype))
    elif interpolation == "nearest":
        found = take_known(ordered, 0, np.round(place).astype(np.int64))
    else:
        found = below if interpolation == "lower" else above
    any_nan = isnan(x).any(at)
    found = where(any_nan, math.nan, found)._as(input.dtype)
    if keepdim:
        rows = dim is None or not input.shape
        found = found.reshape(-1, *(1,) * input.ndim) if rows else found.unsqueeze(at + 1)
    return found.squeeze(0) if np.ndim(q) == 0 else found


@operation
def searchsorted(input: Handle, values: TensorLike, *, right: bool = False) -> Handle:
    """Positions where values would go into these ascending rows (i64): before equal ones, or
    after them.

    Raises ShapeError for rows that do not fit.
    """
    v = lift(values, "searchsorted")
    if input.ndim != 1 and input.shape[:-1] != v.shape[:-1]:
        raise ShapeError(f"searchsorted: rows {input.shape} and values {v.shape} do not fit")
    edges = input if input.ndim == 1 else input.unsqueeze(-2)
    spread = v.unsqueeze(-1)
    return (edges <= spread if right else edges < spread).sum(-1)


@operation
def bucketize(input: Handle, boundaries: TensorLike, *, right: bool = False) -> Handle:
    """The numbers of the intervals between ascending boundaries that the elements lie in."""
    return searchsorted(lift(boundaries, "bucketize"), input, right=right)


@operation
def diff(input: Handle, n: int = 1, dim: int = -1) -> Handle:
    """Differences of neighbours along ``dim``, ``n`` times."""
    x = input
    at = axis_of("diff", dim, input.shape)
    for _ in range(integer("diff", "n", n, 0)):
        extent = max(0, x.shape[at] - 1)
        after, before = x.narrow(at, x.shape[at] - extent, extent), x.narrow(at, 0, extent)
        x = after ^ before if x.dtype.is_bool else after - before
    return x


@operation
def cov(input: Handle, *, correction: int = 1) -> Handle:
    """The covariances of variables in rows, observed in columns."""
    x = (input.reshape(1, -1) if input.ndim < 2 else input)._wide()
    x = x - x.mean(1, True)
    x = x - x.mean(1, True)  # what the first one is rounded by
    found = (x @ x.T) / float(max(0, x.shape[1] - correction))
    return (found if input.ndim > 1 else found.reshape(()))._as(input.float_type)


@operation
def corrcoef(input: Handle) -> Handle:
    """The correlations of variables in rows."""
    c = cov(input._wide())
    if not c.shape:
        return c / c
    size = diagonal(c).sqrt()
    return (c / size.unsqueeze(0) / size.unsqueeze(1)).clamp(-1, 1)._as(input.float_type)


class Found(NamedTuple, Generic[T]):
    """Elements and where they stand along the dimension (i64)."""

    values: T
    indices: T


_BLOCK = 8
_SMALL = 2.0**-40
_UP = 2.0**60


def _shifted(x: Handle, at: int, by: int, fill: float = 0.0) -> Handle:
    """Each element ``by`` places further along a dimension, ``fill`` where none comes to."""
    ends = [(0, 0)] * x.ndim
    ends[at] = (by, -by)
    return pad(x, ends, fill)


def _folded(
    kind: folds.Fold, corrected: Callable[[Handle, int], Handle], input: Handle, dim: int,
    dtype: DTypeLike | None,
) -> Handle:  # fmt: skip
    """All elements up to each one folded; of f32 by a function that corrects its roundings."""
    x = input if dtype is None else input.cast(dtype)
    exact = x.dtype != F32 or not x.size
    found = x._with(folds.cumulative(kind, x.node, dim)) if exact else corrected(x, dim)
    return found if dtype is None else found.cast(dtype)


def _corrected_sum(x: Handle, dim: int) -> Handle:
    """Sums that are rounded once: the sum of the roundings of all steps is added at the end.

    However ``found`` was rounded, its differences less the elements are those roundings, exactly.
    """
    at = axis_of("cumsum", dim, x.shape)
    found = x._with(folds.cumulative("sum", x.node, dim)).contiguous()
    step, rest = two_sum(found, -_shifted(found, at, 1))
    missing = finite((x - step) - rest)
    return found + x._with(folds.cumulative("sum", missing.node, dim))


def _corrected_product(x: Handle, dim: int) -> Handle:
    """As ``_corrected_sum``: each step's rounding is a share of the product."""
    at = axis_of("cumprod", dim, x.shape)
    found = x._with(folds.cumulative("prod", x.node, dim)).contiguous()
    scale = where(found.abs() < _SMALL, _UP, 1.0)  # exact, and the product's rest is a number
    product, rest = two_product(_shifted(found, at, 1, 1.0) * scale, x)
    scaled = found * scale
    missing = finite(((product - scaled) + rest) / scaled)
    share = x._with(folds.cumulative("sum", missing.node, dim))
    return found + finite(found * fma(share * 0.5, share, share))  # that is found * e^share


def _log_scan(x: Handle, more: Handle | None = None) -> tuple[Handle, Handle]:
    """The largest ``m`` up to each one along the last dimension, and the sum of ``(1 + more) *
    exp(x - m)`` of all up to there less 1, which is the largest one's own share; ``more`` is 0 by
    default. So only the last step takes a logarithm, and what is kept has the digits that the 1
    would take.
    """
    *rows, n = x.shape
    if n <= _BLOCK:
        square = x.unsqueeze(-2).expand(*rows, n, n)
        to, from_ = (Handle.of(graph.iota((n, n), axis)) for axis in (0, 1))
        top = where(from_ <= to, square, -math.inf).amax(-1)
        share = where(from_ <= to, _share(square, top.unsqueeze(-1)), 0.0)
        if more is not None:  # 0 by the NaN of a later block is none of this one's
            share = fma(share, where(from_ <= to, more.unsqueeze(-2), 0.0), share)
        return top, (share - (from_ == 0)).sum(-1)
    count = -(-n // _BLOCK)
    widths, blocked = [(0, 0)] * len(rows), (*rows, count, _BLOCK)
    after = [*widths, (0, count * _BLOCK - n)]
    x = pad(x, after, -math.inf).reshape(blocked)
    more = None if more is None else pad(more, after, -1.0).reshape(blocked)
    top, total = (t.contiguous() for t in _log_scan(x, more))
    before, beside = _log_scan(top.select(-1, -1), total.select(-1, -1))
    ends = [*widths, (1, -1)]
    before = pad(before, ends, -math.inf).unsqueeze(-1)
    beside = pad(beside, ends, -1.0).unsqueeze(-1)
    share = _share(top.minimum(before), both := top.maximum(before))
    first = before <= top
    less = where(first, beside, total)
    total = where(first, total, beside) + fma(share, less, share)
    whole = (*rows, count * _BLOCK)
    return both.reshape(whole).narrow(-1, 0, n), total.reshape(whole).narrow(-1, 0, n)


def _log_of(top: Handle, more: Handle) -> Handle:
    """``top + log(1 + more)``; in f32 rounded about once.

    The sum is ``scale * (1 + z + rest)`` with z from -1/3 to 1/3 and a power of two, whose
    logarithm is a sum of two numbers.
    """
    if top.dtype != F32:
        return top + log1p(more)
    total, left = two_sum(more, 1.0)
    power = (total.log2() + math.log2(1.5)).floor()
    scale = (1 << power.cast("i32")).cast("f32")
    z, rest = total / scale - 1, left / scale
    upper = 0.693359375
    found, lost = two_sum(top, power * upper)
    found, more = two_sum(found, z)
    curve = z * z * fma(z, polynomial(z, LOG[::-1]), -0.5)
    return found + finite(more + lost + fma(power, math.log(2) - upper, curve + rest * (1 - z)))


def _share(x: Handle, top: Handle) -> Handle:
    """``exp(x - top)``, 1 where they are one infinity."""
    return where(x == top, 0.0, x - top).exp()


def _picked(x: T, dim: int, values: Node, indices: Node) -> Found[T]:
    """Elements and their places, with the gradient of reading them."""
    found = Found(x._with(values), x._with(indices))
    return Found(as_if(found.values, lambda: gather(x, dim, found.indices)), found.indices)


def _recurrence(a: Handle, b: Handle, at: int) -> Handle:
    """``r[i] = b[i] + a[i] * r[i + 1]`` along a dimension, by doubling: log2 passes."""
    step = 1
    while step < a.shape[at]:
        b = b + a * _shifted(b, at, -step)
        a = a * _shifted(a, at, -step)
        step *= 2
    return b
