"""Operators that fold dimensions, scan along them, or sort."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tunegrad.ir.dtypes import F32, DType

from ...tensor import Tensor
from .table import Operator, entries, overloads

__all__ = ["TABLE"]

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


TABLE: dict[str, Operator] = {
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
