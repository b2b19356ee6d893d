"""Operators that make tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tunegrad.ir.dtypes import F32, DType

from ...creation import arange, eye, full, full_like, linspace, ones_like, zeros_like
from ...tensor import Tensor
from .table import Operator, entries

__all__ = ["TABLE"]


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


TABLE: dict[str, Operator] = {
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
