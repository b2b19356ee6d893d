"""Folding dimensions: sums, extremes, statistics, norms, truth of all or any.

``axis=`` and ``keepdims=`` are taken for ``dim=`` and ``keepdim=`` everywhere. The largest or
smallest along one dimension comes with its position, as PyTorch has it: a tensor of the values that
unpacks into values and indices.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tunegrad.errors import ShapeError
from tunegrad.ir import graph
from tunegrad.ir.dtypes import dtype_of
from tunegrad.ir.expr import Op

from .. import reduction, sorting
from ..arrays import DTypeLike
from ..handle import Handle, TensorLike, along, floating
from ..handle import where as select
from ..movement import Axes, axes_of, axis_of
from ..reduction import accumulator
from .indexing import Indexing

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["Reduction"]

Order = float | Literal["fro", "nuc"] | None


class Reduction(Indexing):
    """``sum``, ``max``, ``var``, ``logsumexp``, ``any`` and the like."""

    __slots__ = ()

    def sum(
        self,
        dim: Axes = None,
        keepdim: bool = False,
        accumulate: DTypeLike | None = None,
        *,
        dtype: DTypeLike | None = None,
    ) -> Tensor:
        """Sums over ``dim``; None is all dimensions.

        Integers and bools give i64, or what they accumulate in. ``dtype``: converted to it first.
        """
        x = self._same() if dtype is None else self.cast(dtype)
        total = x._with(reduction.fold(Op.ADD, x.node, dim, keepdim, accumulate))
        return total if dtype is None else total.cast(dtype)

    def nansum(self, dim: Axes = None, keepdim: bool = False) -> Tensor:
        """Sums over ``dim``, NaN counted as zero."""
        return select(self != self, 0, self).sum(dim, keepdim)

    def prod(
        self, dim: Axes = None, keepdim: bool = False, *, dtype: DTypeLike | None = None
    ) -> Tensor:
        """Products over ``dim``. Integers and bools give i64."""
        x = self._same() if dtype is None else self.cast(dtype)
        found = x._with(reduction.fold(Op.MUL, x.node, dim, keepdim))
        return found if dtype is None else found.cast(dtype)

    def amax(self, dim: Axes = None, keepdim: bool = False) -> Tensor:
        """The largest over ``dim``; NaN if one is."""
        return self._with(reduction.fold(Op.MAX, self.node, dim, keepdim))

    def amin(self, dim: Axes = None, keepdim: bool = False) -> Tensor:
        """The smallest over ``dim``; NaN if one is."""
        return self._with(reduction.fold(Op.MIN, self.node, dim, keepdim))

    def max(
        self, dim: Axes | TensorLike = None, keepdim: bool = False, *, axis: Any = ...
    ) -> Tensor:
        """The largest over ``dim``; NaN if one is. Over one dimension it unpacks into values and
        indices (``values, indices = x.max(1)``); with ``axis=`` it does not, as in numpy. Of two
        tensors, the larger one of each place.
        """
        return self._extreme("max", dim, keepdim, axis)

    def min(
        self, dim: Axes | TensorLike = None, keepdim: bool = False, *, axis: Any = ...
    ) -> Tensor:
        """The smallest over ``dim``; the rest as in ``max``."""
        return self._extreme("min", dim, keepdim, axis)

    def _extreme(self, name: str, dim: Any, keepdim: bool, axis: Any) -> Tensor:
        fold = self.amax if name == "max" else self.amin
        if isinstance(dim, Handle | np.ndarray | float):
            return self.maximum(dim) if name == "max" else self.minimum(dim)
        if axis is not ...:
            return fold(axis, keepdim)
        values = fold(dim, keepdim)
        if dim is None or isinstance(dim, list | tuple):
            return values
        found = object.__new__(_extreme_class())
        for slot, value in (("node", values.node), ("bindings", values.bindings),
                            ("source", self), ("place", (name, dim, keepdim))):  # fmt: skip
            object.__setattr__(found, slot, value)
        extreme: Tensor = found
        return extreme

    def aminmax(self, *, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        """The smallest and the largest over ``dim``."""
        return self.amin(dim, keepdim), self.amax(dim, keepdim)

    def mean(
        self,
        dim: Axes = None,
        keepdim: bool = False,
        accumulate: DTypeLike | None = None,
        *,
        dtype: DTypeLike | None = None,
    ) -> Tensor:
        """The average over ``dim``; NaN of no elements. Integers and bools give f32."""
        x = self._same() if dtype is None else self.cast(dtype)
        axes = axes_of("mean", dim, x.shape)
        wide = x.cast(accumulator("mean", x.float_type, accumulate))
        return (wide.sum(axes, keepdim) / float(_count(x, axes)))._as(x.float_type)

    def nanmean(self, dim: Axes = None, keepdim: bool = False) -> Tensor:
        """The average over ``dim`` of what is a number."""
        x = self._wide()
        numbers = (x == x).cast(x.dtype).sum(dim, keepdim)
        return (x.nansum(dim, keepdim) / numbers)._as(self.float_type)

    def var(
        self,
        dim: Axes = None,
        unbiased: bool = True,
        keepdim: bool = False,
        *,
        correction: float | None = None,
    ) -> Tensor:
        """The variance over ``dim``, in two passes: squared distances from the mean over ``count -
        correction``, corrected for how far the mean was rounded (Chan, Golub and LeVeque 1983).

        ``correction`` is 1, the sample's, or 0, the population's (numpy's default), where
        ``unbiased`` is false.
        """
        axes = axes_of("var", dim, self.shape)
        x = self._wide()
        distance = x - x.mean(axes, True)
        squares, total = (distance * distance).sum(axes, True), distance.sum(axes, True)
        count = _count(self, axes)
        # for numbers around 1e7, the mean's rounding is large
        around = (squares - total * (total / float(count or 1))).clamp(0)
        less = float(unbiased) if correction is None else float(correction)
        freedom = max(0.0, count - less) if count else math.nan
        found = around if keepdim else around.squeeze(axes)
        return (found / freedom)._as(self.float_type)

    def std(
        self,
        dim: Axes = None,
        unbiased: bool = True,
        keepdim: bool = False,
        *,
        correction: float | None = None,
    ) -> Tensor:
        """The square root of the variance."""
        x = self._wide().var(dim, unbiased, keepdim, correction=correction)
        return x.sqrt()._as(self.float_type)

    def var_mean(
        self, dim: Axes = None, unbiased: bool = True, keepdim: bool = False,
        *, correction: float | None = None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """The variance and the mean."""
        return self.var(dim, unbiased, keepdim, correction=correction), self.mean(dim, keepdim)

    def std_mean(
        self, dim: Axes = None, unbiased: bool = True, keepdim: bool = False,
        *, correction: float | None = None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """The standard deviation and the mean."""
        return self.std(dim, unbiased, keepdim, correction=correction), self.mean(dim, keepdim)

    def logsumexp(self, dim: Axes = None, keepdim: bool = False) -> Tensor:
        """``log(sum(exp(self)))`` over ``dim``, shifted so that nothing overflows."""
        axes = axes_of("logsumexp", dim, self.shape)
        x = self._wide()
        if not _count(x, axes):
            return x.sum(axes, keepdim).log()._as(self.float_type)
        top = x.amax(axes, True)
        shift = select(top.isfinite(), top, 0.0)
        total = (x - shift).exp().sum(axes, True).log() + shift
        return (total if keepdim else total.squeeze(axes))._as(self.float_type)

    def norm(
        self, p: Order = "fro", dim: Axes = None, keepdim: bool = False,
        dtype: DTypeLike | None = None,
    ) -> Tensor:  # fmt: skip
        """The p-norm of all elements along ``dim``: 2 unless told, ``math.inf`` the largest size, 0
        how many are other than zero.

        Raises ShapeError for a ``p`` that is no number; the nuclear norm needs singular values.
        """
        kind = self.float_type if dtype is None else dtype_of(dtype)
        x = self._wide().cast(kind.compute).abs()
        order = 2.0 if p in ("fro", None) else p
        if isinstance(order, str):
            raise ShapeError(f"norm: p={p!r} of shape {self.shape} is neither a number nor 'fro'")
        if order == math.inf:
            found = x.amax(dim, keepdim)
        elif order == -math.inf:
            found = x.amin(dim, keepdim)
        elif order == 0:
            found = (x != 0).cast(x.dtype).sum(dim, keepdim)
        elif order == 1:
            found = x.sum(dim, keepdim)
        elif order == 2:
            found = (x * x).sum(dim, keepdim).sqrt()
        else:
            found = (x**order).sum(dim, keepdim) ** (1 / order)
        return found._as(kind)

    def all(self, dim: Axes = None, keepdim: bool = False) -> Tensor:
        """True where all over ``dim`` are other than zero; of none, true."""
        return self._truth_of(Op.MIN, dim, keepdim)

    def any(self, dim: Axes = None, keepdim: bool = False) -> Tensor:
        """True where one over ``dim`` is other than zero; of none, false."""
        return self._truth_of(Op.MAX, dim, keepdim)

    def _truth_of(self, op: Op, dim: Axes, keepdim: bool) -> Tensor:
        name = "all" if op is Op.MIN else "any"
        axes = axes_of(name, dim, self.shape)
        truth = self.cast("bool")
        if not _count(self, axes):
            shape = [1 if i in axes else s for i, s in enumerate(self.shape)]
            kept = Handle.of(graph.full(op is Op.MIN, tuple(shape), truth.dtype))
            return kept if keepdim else kept.squeeze(axes)
        return truth._with(reduction.fold(op, truth.node, axes, keepdim))

    def count_nonzero(self, dim: Axes = None) -> Tensor:
        """Number of elements over ``dim`` that are other than zero, i64."""
        return self.cast("bool").sum(dim)

    @along
    @floating
    def softmax(self, dim: int | None = -1, dtype: DTypeLike | None = None) -> Tensor:
        """exp(self) over its sum along ``dim``, shifted so that nothing overflows."""
        if dtype is not None:
            return self.cast(dtype).softmax(dim)
        at = axis_of("softmax", -1 if dim is None else dim, self.shape)
        if 0 in self.shape:
            return self._same()
        powers = (self - self.amax(at, True)).exp()
        return powers * powers.sum(at, True).reciprocal()

    def masked_softmax(self) -> Tensor:
        """softmax of floats along the last dimension, zeros in a row of -inf alone: attention's."""
        if 0 in self.shape:
            return self._same()
        least, tiny = _BOUNDS[self.dtype.name]
        powers = (self - self.amax(-1, True).maximum(least)).exp()
        # a sum is at least 1 where an element is a number
        return powers * powers.sum(-1, True).maximum(tiny).reciprocal()

    @along
    @floating
    def log_softmax(self, dim: int | None = -1, dtype: DTypeLike | None = None) -> Tensor:
        """The logarithm of softmax, computed without it."""
        if dtype is not None:
            return self.cast(dtype).log_softmax(dim)
        at = axis_of("log_softmax", -1 if dim is None else dim, self.shape)
        if 0 in self.shape:
            return self._same()
        shifted = self - self.amax(at, True)
        return shifted - shifted.exp().sum(at, True).log()

    def softmin(self, dim: int | None = -1) -> Tensor:
        """``softmax`` of the negated elements."""
        return (-self).softmax(dim)

    def normalize(self, p: float = 2.0, dim: Axes = 1, eps: float = 1e-12) -> Tensor:
        """Divided by the p-norm along ``dim``, which counts as ``eps`` at least."""
        x = self._wide()
        return (x / x.norm(p, dim, True).clamp(eps))._as(self.float_type)

    @along
    def argmax(self, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """The first place of the largest along ``dim``, i64; in the row of all without one."""
        return self._arg("max", dim, keepdim)

    @along
    def argmin(self, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """The first place of the smallest along ``dim``, i64; in the row of all without one."""
        return self._arg("min", dim, keepdim)

    def _arg(self, name: Literal["max", "min"], dim: int | None, keepdim: bool) -> Tensor:
        op = Op.MAX if name == "max" else Op.MIN
        found = self._with(sorting.argextremum(op, self.node, dim, keepdim and dim is not None))
        return found.reshape((1,) * self.ndim) if keepdim and dim is None else found

    def position_of(self, name: Literal["max", "min"], dim: int, keepdim: bool) -> Tensor:
        """The first place of the largest or smallest along ``dim``, i64; of NaN, where there is
        one.
        """
        return self._arg(name, dim, keepdim)


_BOUNDS = {"f32": (-3.4028234663852886e38, 2.0**-100), "f64": (-1.7976931348623157e308, 2.0**-900)}
"""The least finite number, and one below any sum of powers that has a largest one."""


def _count(x: Handle, axes: tuple[int, ...]) -> int:
    return math.prod(x.shape[a] for a in axes)


def _extreme_class() -> type[Any]:
    from ..tensor import Extreme

    return Extreme
