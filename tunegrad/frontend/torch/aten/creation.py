"""Operators that make tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tunegrad.ir.dtypes import F32, DType

from ...creation import arange, eye, full, linspace
from ...tensor import Tensor
from .table import Operator, entries

__all__ = ["TABLE"]


def _full(size: Sequence[int], value: Any, *, dtype: DType | None = None) -> Tensor:
    return full(tuple(size), value, dtype)


def _filled(value: int) -> Operator:
    def make(size: Sequence[int], *, dtype: DType | None = None) -> Tensor:
        return full(tuple(size), value, F32 if dtype is None else dtype)

    return make


def _filled_like(value: int) -> Operator:
    def make(x: Tensor, *, dtype: DType | None = None) -> Tensor:
        return full(x.shape, value, x.dtype if dtype is None else dtype)

    return make


def _new(value: int) -> Operator:
    def make(x: Tensor, size: Sequence[int], *, dtype: DType | None = None) -> Tensor:
        return x.new_full(tuple(size), value, dtype)

    return make


def _full_like(x: Tensor, value: Any, *, dtype: DType | None = None) -> Tensor:
    return full(x.shape, value, x.dtype if dtype is None else dtype)


def _fill(x: Tensor, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.cast(x.dtype).expand(*x.shape)
    return full(x.shape, value, x.dtype)


def _new_full(x: Tensor, size: Sequence[int], value: Any, *, dtype: DType | None = None) -> Tensor:
    return x.new_full(tuple(size), value, dtype)


def _arange(start: Any, end: Any = None, step: Any = 1, *, dtype: DType | None = None) -> Tensor:
    return arange(start, end, step, dtype)


def _scalar(value: Any, *, dtype: DType | None = None) -> Tensor:
    return full((), value, F32 if dtype is None else dtype)


def _eye(n: int, m: int | None = None, *, dtype: DType | None = None) -> Tensor:
    return eye(n, m, F32 if dtype is None else dtype)


def _linspace(start: float, end: float, steps: int, *, dtype: DType | None = None) -> Tensor:
    return linspace(start, end, steps, F32 if dtype is None else dtype)


TABLE: dict[str, Operator] = {
    **entries(_full, "full.default"),
    **entries(_filled(0), "zeros.default", "empty.memory_format"),
    **entries(_filled(1), "ones.default"),
    **entries(_filled_like(0), "zeros_like.default", "empty_like.default"),
    **entries(_filled_like(1), "ones_like.default"),
    **entries(_new(0), "new_zeros.default", "new_empty.default"),
    **entries(_new(1), "new_ones.default"),
    **entries(_new_full, "new_full.default"),
    **entries(_full_like, "full_like.default"),
    **entries(_fill, "fill.Scalar", "fill.Tensor"),
    **entries(_arange, "arange.default", "arange.start", "arange.start_step"),
    **entries(_scalar, "scalar_tensor.default"),
    **entries(_eye, "eye.default", "eye.m"),
    **entries(_linspace, "linspace.default"),
}
