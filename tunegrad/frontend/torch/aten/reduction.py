"""Operators that fold dimensions, scan along them, or sort."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tunegrad.ir.dtypes import F32, DType

from ...tensor import Tensor
from .table import Operator, entries, methods

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


def _folded(name: str) -> Operator:
    def fold(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
        found: Tensor = getattr(x, name)(_axes(dim), keepdim)
        return found

    return fold


def _extreme(name: str) -> Operator:
    def fold(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        values = getattr(x, f"a{name}")(dim, keepdim)
        return values, getattr(x, f"arg{name}")(dim, keepdim)

    return fold


def _prod(x: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    return (x if dtype is None else x.cast(dtype)).prod(dim, keepdim)


def _spread(name: str) -> Operator:
    """``correction`` is 1 unless given."""

    def fold(
        x: Tensor, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
    ) -> Any:
        less = 1.0 if correction is None else float(correction)
        return getattr(x, name)(_axes(dim), True, keepdim, correction=less)

    return fold


def _spread_by_dim(name: str) -> Operator:
    def fold(x: Tensor, dim: Dims, unbiased: bool = True, keepdim: bool = False) -> Any:
        return getattr(x, name)(_axes(dim), unbiased, keepdim)

    return fold


def _softmax(name: str) -> Operator:
    def fold(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
        found: Tensor = getattr(x.cast(F32) if half_to_float else x, name)(dim)
        return found

    return fold


def _softmax_int(name: str) -> Operator:
    def fold(x: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
        found: Tensor = getattr(x, name)(dim, dtype)
        return found

    return fold


def _scan(name: str) -> Operator:
    def scan(x: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
        found: Tensor = getattr(x, name)(dim, dtype=dtype)
        return found

    return scan


def _sort(x: Tensor, dim: int = -1, descending: bool = False) -> Any:
    return x.sort(dim, descending)


def _sort_stable(x: Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False) -> Any:
    del stable
    return x.sort(dim, descending)


def _argsort(x: Tensor, dim: int = -1, descending: bool = False) -> Tensor:
    return x.argsort(dim, descending)


def _topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    return x.topk(k, dim, largest, sorted)


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
    **entries(_folded("amax"), "amax.default", "max.default"),
    **entries(_folded("amin"), "amin.default", "min.default"),
    **entries(_folded("any"), "any.default", "any.dim", "any.dims"),
    **entries(_folded("all"), "all.default", "all.dim", "all.dims"),
    **entries(_folded("argmax"), "argmax.default"),
    **entries(_folded("argmin"), "argmin.default"),
    **entries(_folded("logsumexp"), "logsumexp.default"),
    **entries(_extreme("max"), "max.dim"),
    **entries(_extreme("min"), "min.dim"),
    **entries(Tensor.maximum, "max.other"),
    **entries(Tensor.minimum, "min.other"),
    **entries(_prod, "prod.default", "prod.dim_int"),
    **entries(_spread("var"), "var.correction"),
    **entries(_spread("std"), "std.correction"),
    **entries(_spread("var_mean"), "var_mean.correction"),
    **entries(_spread("std_mean"), "std_mean.correction"),
    **entries(_spread_by_dim("var"), "var.dim"),
    **entries(_spread_by_dim("std"), "std.dim"),
    **entries(_softmax("softmax"), "_softmax.default"),
    **entries(_softmax("log_softmax"), "_log_softmax.default"),
    **entries(_softmax_int("softmax"), "softmax.int"),
    **entries(_softmax_int("log_softmax"), "log_softmax.int"),
    **entries(_safe_softmax, "_safe_softmax.default"),
    **entries(_median, "median.default", "median.dim"),
    **entries(_scan("cumsum"), "cumsum.default"),
    **entries(_scan("cumprod"), "cumprod.default"),
    **methods("cummax cummin logcumsumexp"),
    **entries(_sort, "sort.default"),
    **entries(_sort_stable, "sort.stable"),
    **entries(_argsort, "argsort.default"),
    **entries(_topk, "topk.default"),
    **entries(_norm, "linalg_vector_norm.default"),
}
