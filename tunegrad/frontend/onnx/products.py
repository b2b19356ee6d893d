"""Products of matrices, those of small integers, and determinants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..functions import einsum, where
from ..tensor import Tensor
from .convolutions import convolution
from .node import NodeView, Value

__all__ = ["PRODUCTS"]


def _gemm(n: NodeView) -> Tensor:
    a, b, c = n(0), n(1), n.tensor(2)
    a = a.transpose(0, 1) if n.get("transA", 0) else a
    b = b.transpose(0, 1) if n.get("transB", 0) else b
    y = a @ b
    y = y if n.get("alpha", 1.0) == 1.0 else y * n.get("alpha")
    if c is None:
        return y
    return y + (c if n.get("beta", 1.0) == 1.0 else c * n.get("beta"))


def _integers(n: NodeView) -> Tensor:
    """MatMulInteger and ConvInteger: products of small integers, in i32."""
    a, b = n(0).cast("i32"), n(1).cast("i32")
    at, bt = n.tensor(2), n.tensor(3)
    if n.op == "MatMulInteger":
        a = a if at is None else a - _wide(at.cast("i32"), -1, a.ndim)
        return a @ (b if bt is None else b - _wide(bt.cast("i32"), 0, b.ndim))
    a = a if at is None else a - at.cast("i32").reshape(())
    b = b if bt is None else b - _wide(bt.cast("i32"), -1, b.ndim)
    return convolution(NodeView(n.op, n.name, n.opset, n.attributes, (a, b)))


def _wide(value: Tensor, side: int, rank: int) -> Tensor:
    """A zero point or scale for all, or for each row (-1) or column."""
    if value.ndim != 1 or value.shape[0] == 1:
        return value.reshape(()) if value.ndim < 2 else value
    return value.reshape(-1, *(1,) * (rank - 1)) if side else value


def _quantized_matmul(n: NodeView) -> Tensor:
    """QLinearMatMul: (a, scale, zero), (b, scale, zero), (scale, zero) of the result."""
    a, b, kind = n(0), n(3), n(7).dtype
    rank = max(a.ndim, b.ndim)
    left = a.cast("i32") - _wide(n(2).cast("i32"), -1, 2)
    right = b.cast("i32") - _wide(n(5).cast("i32"), 0, 2)
    scale = _wide(n(1).cast("f32"), -1, 2) * _wide(n(4).cast("f32"), 0, 2)
    scale = scale / _wide(n(6).cast("f32"), -1, rank)
    y = ((left @ right).cast("f32") * scale).round() + _wide(n(7).cast("f32"), -1, rank)
    return y.clamp(float(kind.least), float(kind.greatest)).cast(kind)


def _quantized_conv(n: NodeView) -> Tensor:
    """QLinearConv: (x, scale, zero), (w, scale, zero), (scale, zero) of the result, bias in i32."""
    x, w, kind = n(0), n(3), n(7).dtype
    operands: tuple[Value, ...] = (
        x.cast("i32") - n(2).cast("i32").reshape(()),
        w.cast("i32") - _wide(n(5).cast("i32"), -1, w.ndim),
        n.at(8),
    )
    y = convolution(NodeView(n.op, n.name, n.opset, n.attributes, operands))
    scale = n(1).reshape(()) * _wide(n(4), -1, x.ndim - 1) / n(6).reshape(())
    scaled = (y.cast("f32") * scale).round() + n(7).cast("f32").reshape(())
    return scaled.clamp(float(kind.least), float(kind.greatest)).cast(kind)


_LARGEST = 32
"""Rows of a matrix whose determinant is there; its steps are unrolled."""


def _det(n: NodeView) -> Tensor:
    """Det: elimination with the largest pivot of each column."""
    x = n(0)
    size = x.shape[-1]
    if x.ndim < 2 or x.shape[-2] != size or size > _LARGEST:
        raise n.error(f"of shape {x.shape}; square matrices of up to {_LARGEST} rows are there")
    found: Tensor | None = None
    for left in range(size, 0, -1):
        rows = Tensor(np.arange(left))
        best = x[..., 0].abs().argmax(-1, keepdim=True)
        chosen = where(rows.eq(0), best, where(rows.eq(best), 0, rows))
        x = x.take_along_dim(chosen.unsqueeze(-1), -2, mode="clip").contiguous()
        pivot = x[..., 0, 0]
        signed = where(best.squeeze(-1).eq(0), pivot, pivot.neg())
        found = signed if found is None else found * signed
        if left > 1:
            factor = where(pivot.eq(0), 0.0, 1.0 / pivot).unsqueeze(-1) * x[..., 1:, 0]
            x = x[..., 1:, 1:] - factor.unsqueeze(-1) * x[..., 0, 1:].unsqueeze(-2)
    assert found is not None
    return found.cast(n(0).dtype)


PRODUCTS: dict[str, Callable[[NodeView], Any]] = {
    "ConvInteger": _integers,
    "Det": _det,
    "Einsum": lambda n: einsum(n.get("equation"), *(n(i) for i in range(len(n.inputs)))),
    "Gemm": _gemm,
    "MatMul": lambda n: n(0) @ n(1),
    "MatMulInteger": _integers,
    "QLinearConv": _quantized_conv,
    "QLinearMatMul": _quantized_matmul,
}
