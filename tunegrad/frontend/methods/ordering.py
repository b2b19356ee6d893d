"""Order along a dimension: cumulative folds, sorting, the largest few, medians and quantiles.

Sorting is stable, and NaN comes after all numbers.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tunegrad.errors import ShapeError
from tunegrad.ir import graph
from tunegrad.ir.dtypes import F32

from .. import scans, sorting
from ..arrays import DTypeLike
from ..error_free import finite, fma, two_product, two_sum
from ..handle import Handle, TensorLike, along, floating, lift
from ..handle import where as select
from ..movement import axis_of, integer
from .reduction import Reduction

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["Found", "Ordering"]


class Found(NamedTuple):
    """Elements and where they stand along the dimension (i64)."""

    values: Tensor
    indices: Tensor


class Ordering(Reduction):
    """``cumsum``, ``sort``, ``topk``, ``median`` and the like."""

    __slots__ = ()

    @along
    def cumsum(self, dim: int, *, dtype: DTypeLike | None = None) -> Tensor:
        """The sum of all elements up to each one along ``dim``; of integers and bools i64."""
        x = self._same() if dtype is None else self.cast(dtype)
        found = (
            _corrected_sum(x, dim)
            if x.dtype == F32 and x.size
            else x._with(scans.cumulative("sum", x.node, dim))
        )
        return found if dtype is None else found.cast(dtype)

    @along
    def cumprod(self, dim: int, *, dtype: DTypeLike | None = None) -> Tensor:
        """The product of all elements up to each one along ``dim``; of integers and bools i64."""
        x = self._same() if dtype is None else self.cast(dtype)
        found = (
            _corrected_product(x, dim)
            if x.dtype == F32 and x.size
            else x._with(scans.cumulative("prod", x.node, dim))
        )
        return found if dtype is None else found.cast(dtype)

    @along
    def cummax(self, dim: int) -> Found:
        """The largest up to each element along ``dim``, and the last place of it."""
        return Found(*map(self._with, scans.cumulative_extremum("max", self.node, dim)))

    @along
    def cummin(self, dim: int) -> Found:
        """The smallest up to each element along ``dim``, and the last place of it."""
        return Found(*map(self._with, scans.cumulative_extremum("min", self.node, dim)))

    @along
    @floating
    def logcumsumexp(self, dim: int) -> Tensor:
        """``log(cumsum(exp(self)))``, each sum shifted by the largest of its own elements.

        A block of 16 elements is a triangle of maxima and of sums of shares of them; what the
        blocks before one come to is a shorter row of the same kind.
        """
        at = axis_of("logcumsumexp", dim, self.shape)
        if not self.size:
            return self._same()
        return _log_of(*_log_scan(self.movedim(at, -1))).movedim(-1, at)

    @along
    def sort(self, dim: int = -1, descending: bool = False, stable: bool = True) -> Found:
        """The elements in order along ``dim``, and their places."""
        del stable
        return Found(*map(self._with, sorting.sort(self.node, dim, descending)))

    @along
    def argsort(self, dim: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
        """The places of the elements in order along ``dim``."""
        del stable
        return self._with(sorting.argsort(self.node, dim, descending))

    def msort(self) -> Tensor:
        """The elements in order along the first dimension."""
        return self.sort(0).values

    @along
    def topk(self, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Found:
        """The ``k`` largest or smallest along ``dim`` in order, and their places."""
        del sorted
        return Found(*map(self._with, sorting.topk(self.node, k, dim, largest)))

    @along
    def kthvalue(self, k: int, dim: int = -1, keepdim: bool = False) -> Found:
        """The k-th smallest along ``dim``, counted from 1, and its place."""
        at = axis_of("kthvalue", dim, self.shape)
        extent = self.shape[at]
        if not 1 <= integer("kthvalue", "k", k) <= extent:
            raise ShapeError(f"kthvalue: k={k} is not one of {extent} elements of {self.shape}")
        return self._nth(k - 1, at, keepdim)

    def _nth(self, n: int, at: int, keepdim: bool) -> Found:
        found = (t.narrow(at, n, 1) for t in self.sort(at))
        return Found(*(t if keepdim else t.squeeze(at) for t in found))

    def median(self, dim: int | None = None, keepdim: bool = False) -> Tensor | Found:
        """The middle element, the smaller of two, NaN where one is; with its place along ``dim``,
        where that is given.
        """
        x = self.ravel() if dim is None or not self.shape else self._same()
        at = axis_of("median", -1 if dim is None else dim, x.shape)
        extent = x.shape[at]
        if not extent:
            raise ShapeError(f"median: shape {self.shape} has no elements")
        values, places = x._nth((extent - 1) // 2, at, keepdim)
        if not self.shape:
            values, places = values.reshape(()), places.reshape(())
        elif x.dtype.is_float:
            unknown = x.isnan()
            any_nan = unknown.any(at, keepdim)
            values = select(any_nan, math.nan, values)._as(self.dtype)
            places = select(any_nan, unknown.cast("i32").argmax(at, keepdim), places)
        return values if dim is None else Found(values, places)

    @floating
    def quantile(
        self, q: float | Sequence[float], dim: int | None = None, keepdim: bool = False,
        *, interpolation: str = "linear",
    ) -> Tensor:  # fmt: skip
        """Values that a part ``q`` of the elements lies below, between neighbours by linear
        interpolation; several parts stand in a new first dimension.

        Raises ShapeError for parts outside of 0 to 1, or another interpolation.
        """
        if interpolation not in ("linear", "lower", "higher", "nearest"):
            raise ShapeError(f"quantile: interpolation={interpolation!r} is not there")
        parts = np.atleast_1d(np.asarray(q, np.float64))
        if parts.ndim != 1 or not ((parts >= 0) & (parts <= 1)).all():
            raise ShapeError(f"quantile: q={q!r} must lie from 0 to 1")
        x = self.ravel() if dim is None or not self.shape else self._same()
        at = axis_of("quantile", -1 if dim is None else dim, x.shape)
        ordered = x.sort(at).values.movedim(at, 0)
        place = parts * (x.shape[at] - 1)
        low, high = np.floor(place).astype(np.int64), np.ceil(place).astype(np.int64)
        rest = (place - low).astype(x.dtype.numpy).reshape(-1, *(1,) * (ordered.ndim - 1))
        below, above = ordered[low], ordered[high]
        if interpolation == "linear":
            found = below + (above - below) * Handle.of(graph.const(rest, x.dtype))
        elif interpolation == "nearest":
            found = ordered[np.round(place).astype(np.int64)]
        else:
            found = below if interpolation == "lower" else above
        any_nan = x.isnan().any(at)
        found = select(any_nan, math.nan, found)._as(self.dtype)
        if keepdim:
            rows = dim is None or not self.shape
            found = found.reshape(-1, *(1,) * self.ndim) if rows else found.unsqueeze(at + 1)
        return found.squeeze(0) if np.ndim(q) == 0 else found

    def searchsorted(self, values: TensorLike, *, right: bool = False) -> Tensor:
        """Positions where values would go into these ascending rows (i64): before equal ones, or
        after them.

        Raises ShapeError for rows that do not fit.
        """
        v = lift(values, "searchsorted")
        if self.ndim != 1 and self.shape[:-1] != v.shape[:-1]:
            raise ShapeError(f"searchsorted: rows {self.shape} and values {v.shape} do not fit")
        edges = self._same() if self.ndim == 1 else self.unsqueeze(-2)
        spread = v.unsqueeze(-1)
        return (edges <= spread if right else edges < spread).sum(-1)

    def bucketize(self, boundaries: TensorLike, *, right: bool = False) -> Tensor:
        """The numbers of the intervals between ascending boundaries that the elements lie in."""
        return lift(boundaries, "bucketize").searchsorted(self, right=right)

    def diff(self, n: int = 1, dim: int = -1) -> Tensor:
        """Differences of neighbours along ``dim``, ``n`` times."""
        x = self._same()
        at = axis_of("diff", dim, self.shape)
        for _ in range(integer("diff", "n", n, 0)):
            extent = max(0, x.shape[at] - 1)
            after, before = x.narrow(at, x.shape[at] - extent, extent), x.narrow(at, 0, extent)
            x = after ^ before if x.dtype.is_bool else after - before
        return x

    def cov(self, *, correction: int = 1) -> Tensor:
        """The covariances of variables in rows, observed in columns."""
        x = (self.reshape(1, -1) if self.ndim < 2 else self._same())._wide()
        x = x - x.mean(1, True)
        found = (x @ x.T) / float(max(0, x.shape[1] - correction))
        return (found if self.ndim > 1 else found.reshape(()))._as(self.float_type)

    def corrcoef(self) -> Tensor:
        """The correlations of variables in rows."""
        c = self._wide().cov()
        if not c.shape:
            return c / c
        size = c.diagonal().sqrt()
        return (c / size.unsqueeze(0) / size.unsqueeze(1)).clamp(-1, 1)._as(self.float_type)


_BLOCK = 8
_SMALL = 2.0**-40
_UP = 2.0**60


def _before(x: Tensor, at: int, first: float) -> Tensor:
    """The element before each one along a dimension, ``first`` before the first one."""
    ends = [(0, 0)] * x.ndim
    ends[at] = (1, -1)
    return x.pad(ends, first)


def _corrected_sum(x: Tensor, dim: int) -> Tensor:
    """Sums that are rounded once: the sum of the roundings of all steps is added at the end.

    However ``found`` was rounded, its differences less the elements are those roundings, exactly.
    """
    at = axis_of("cumsum", dim, x.shape)
    found = x._with(scans.cumulative("sum", x.node, dim)).contiguous()
    step, rest = two_sum(found, -_before(found, at, 0.0))
    missing = finite((x - step) - rest)
    return found + x._with(scans.cumulative("sum", missing.node, dim))


def _corrected_product(x: Tensor, dim: int) -> Tensor:
    """As ``_corrected_sum``: each step's rounding is a share of the product, of which all together
    are about a power of e.
    """
    at = axis_of("cumprod", dim, x.shape)
    found = x._with(scans.cumulative("prod", x.node, dim)).contiguous()
    scale = select(found.abs() < _SMALL, _UP, 1.0)  # exact, and the product's rest is a number
    product, rest = two_product(_before(found, at, 1.0) * scale, x)
    scaled = found * scale
    missing = finite(((product - scaled) + rest) / scaled)
    share = x._with(scans.cumulative("sum", missing.node, dim))
    return found + finite(found * fma(share * 0.5, share, share))  # that is found * e^share


def _log_scan(x: Tensor, size: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The largest ``m`` up to each one along the last dimension, and the sum of ``size * exp(x -
    m)`` of all up to there; sizes are 1 by default. So only the last step takes a logarithm.
    """
    *rows, n = x.shape
    if n <= _BLOCK:
        square = x.unsqueeze(-2).expand(*rows, n, n)
        given = operator.ge(*(Handle.of(graph.iota((n, n), axis)) for axis in (0, 1)))
        top = select(given, square, -math.inf).amax(-1)
        share = select(given, _share(square, top.unsqueeze(-1)), 0.0)
        return top, (share if size is None else share * size.unsqueeze(-2)).sum(-1)
    count = -(-n // _BLOCK)
    widths, blocked = [(0, 0)] * len(rows), (*rows, count, _BLOCK)
    x = x.pad([*widths, (0, count * _BLOCK - n)], -math.inf).reshape(blocked)
    size = None if size is None else size.pad([*widths, (0, count * _BLOCK - n)]).reshape(blocked)
    top, total = (t.contiguous() for t in _log_scan(x, size))
    before, sizes = _log_scan(top[..., -1], total[..., -1])
    ends = [*widths, (1, -1)]
    before, sizes = before.pad(ends, -math.inf).unsqueeze(-1), sizes.pad(ends).unsqueeze(-1)
    both = top.maximum(before)
    total = total * _share(top, both) + sizes * _share(before, both)
    whole = (*rows, count * _BLOCK)
    return both.reshape(whole)[..., :n], total.reshape(whole)[..., :n]


def _log_of(top: Tensor, total: Tensor) -> Tensor:
    """``top + log(total)``, with what rounding took from the logarithm and from the sum."""
    power = total.log()
    found, rest = two_sum(top, power)
    return found + finite(rest + fma(total, (-power).exp(), -1.0))


def _share(x: Tensor, top: Tensor) -> Tensor:
    """``exp(x - top)``, 1 where they are one infinity."""
    return select(x == top, 0.0, x - top).exp()
