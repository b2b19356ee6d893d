"""Reductions, running sums, places of extremes, losses, norms, softmax and dropout."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..creation import full
from ..functions import cat, where
from ..tensor import Tensor
from .node import NodeView, defined


def _reduced(body: Callable[[Tensor, Any, bool], Tensor]) -> Callable[[NodeView], Tensor]:
    def function(n: NodeView) -> Tensor:
        axes = n.ints(1, "axes")
        if not axes:
            if n.get("noop_with_empty_axes", 0):  # squares, logarithms and such are taken still
                return body(n(0).unsqueeze(-1), (-1,), False).cast(n(0).dtype)
            axes = list(range(n(0).ndim))
        x, keep = n(0), bool(n.get("keepdims", 1))
        if n.op in _OF_NOTHING and any(x.shape[a] == 0 for a in axes):
            return _of_nothing(n.op, x, {a % x.ndim for a in axes}, keep)
        return body(x, tuple(axes), keep).cast(x.dtype)

    return function


_OF_NOTHING = ("ReduceMax", "ReduceMin")


def _of_nothing(op: str, x: Tensor, axes: set[int], keep: bool) -> Tensor:
    """The least or the greatest of no element: the number that any other beats."""
    whole = x.sum(tuple(axes), keep).cast(x.dtype)
    ends: tuple[float, float] = (False, True) if x.dtype.is_bool else (-math.inf, math.inf)
    if x.dtype.is_int:
        ends = x.dtype.least, x.dtype.greatest
    return where(whole.eq(whole), ends[op == "ReduceMin"], whole).cast(x.dtype)


def _arg(n: NodeView) -> Tensor:
    x, axis, keep = n(0), n.get("axis", 0), bool(n.get("keepdims", 1))
    total = x.sum(axis, keep)
    if not total.size:
        return total.cast("i64")  # no place, also along an axis without elements
    place = Tensor.argmax if n.op == "ArgMax" else Tensor.argmin
    if not n.get("select_last_index", 0):
        return place(x, axis, keep)
    return place(x.flip(axis), axis, keep).neg() + int(x.shape[axis] - 1)


def _cumulative(n: NodeView) -> Tensor:
    x, (axis,) = n(0), n.ints(1) or [0]
    back, product = n.get("reverse", 0), n.op == "CumProd"
    x = x.flip(axis) if back else x
    y = x.cumprod(axis, dtype=x.dtype) if product else x.cumsum(axis, dtype=x.dtype)
    if n.get("exclusive", 0) and y.shape[axis]:  # one place later
        shape = tuple(1 if d == axis % y.ndim else e for d, e in enumerate(y.shape))
        first = full(shape, int(product), y.dtype)
        y = cat([first, y.narrow(axis, 0, y.shape[axis] - 1)], axis)
    return y.flip(axis) if back else y


def _topk(n: NodeView) -> tuple[Tensor, Tensor]:
    k = n.ints(1, "k") if n.opset >= 10 else [n.get("k")]
    if not k:
        raise n.error("k is missing")
    found = n(0).topk(k[0], n.get("axis", -1), bool(n.get("largest", 1)), True)
    return found[0], found[1]


REDUCTIONS: dict[str, Callable[[NodeView], Any]] = {
    "ArgMax": _arg,
    "ArgMin": _arg,
    "CumProd": _cumulative,
    "CumSum": _cumulative,
    "NegativeLogLikelihoodLoss": defined,
    "ReduceL1": _reduced(lambda x, a, k: x.abs().sum(a, k)),
    "ReduceL2": _reduced(lambda x, a, k: x.square().sum(a, k).sqrt()),
    "ReduceLogSum": _reduced(lambda x, a, k: x.sum(a, k).log()),
    "ReduceLogSumExp": _reduced(lambda x, a, k: x.logsumexp(a, k)),
    "ReduceMax": _reduced(lambda x, a, k: x.amax(a, k)),
    "ReduceMean": _reduced(lambda x, a, k: x.mean(a, k)),
    "ReduceMin": _reduced(lambda x, a, k: x.amin(a, k)),
    "ReduceProd": _reduced(lambda x, a, k: x.prod(a, k)),
    "ReduceSum": _reduced(lambda x, a, k: x.sum(a, k)),
    "ReduceSumSquare": _reduced(lambda x, a, k: x.square().sum(a, k)),
    "SoftmaxCrossEntropyLoss": defined,
    "TopK": _topk,
}


def _batch_norm(n: NodeView) -> Any:
    x, eps = n(0), n.get("epsilon", 1e-5)
    if not n.get("training_mode", 0):
        wide, scale, bias, mean, var = operands = [n(i) for i in range(5)]
        kinds = {t.dtype.name for t in operands}  # of the image, of scale and bias, of statistics
        if len(kinds) > 1:
            kind = "f64" if "f64" in kinds else "f32"
            wide, scale, bias, mean, var = (t.cast(kind) for t in operands)
        if n.opset < 9 and not n.get("spatial", 1):  # a mean for each place in an image
            return ((wide - mean) * (var + eps).rsqrt() * scale + bias).cast(x.dtype)
        return wide.batch_norm(scale, bias, mean, var, eps).cast(x.dtype)
    axes = (0, *range(2, x.ndim))
    wide = x.cast(x.dtype.compute)
    mean = wide.mean(axes)
    line = (-1, *(1,) * (x.ndim - 2))
    var = (wide - mean.reshape(line)).square().mean(axes)
    keep = n.get("momentum", 0.9)
    running = [
        (old * keep + new.cast(old.dtype) * (1 - keep)).cast(old.dtype)
        for old, new in ((n(3), mean), (n(4), var))
    ]
    scale = (var + eps).rsqrt() * n(1).cast(wide.dtype)
    y = (wide - mean.reshape(line)) * scale.reshape(line) + n(2).cast(wide.dtype).reshape(line)
    return y.cast(x.dtype), *running


def _group_norm(n: NodeView) -> Tensor:
    x, groups, scale, bias = n(0), n.get("num_groups"), n(1), n(2)
    if scale.shape[0] != x.shape[1]:  # before opset 21: one for each group
        each = x.shape[1] // groups
        scale, bias = scale.repeat_interleave(each), bias.repeat_interleave(each)
    return x.group_norm(groups, scale, bias, n.get("epsilon", 1e-5))


_BFLOAT16 = 16
"""ONNX's number of the type."""


def normalised(
    x: Tensor, axes: tuple[int, ...], eps: float, centred: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """A tensor over its deviation from its mean, or from zero; the mean, and 1 over the deviation;
    in the type that ``x`` is computed in.
    """
    wide = x.cast(x.dtype.compute)
    mean = wide.mean(axes, True)
    off = wide - mean if centred else wide
    inverse = (off.square().mean(axes, True) + eps).rsqrt()
    return off * inverse, mean, inverse


def _layer_norm(n: NodeView) -> Any:
    x, axis = n(0), n.get("axis", -1) % n(0).ndim
    axes, eps = tuple(range(axis, x.ndim)), n.get("epsilon", 1e-5)
    centred = n.op != "RMSNormalization"
    if centred and n.outputs == 1 and axis == x.ndim - 1 and n(1).ndim == 1:
        return x.layer_norm(n(1), n.tensor(2), eps)
    off, mean, inverse = normalised(x, axes, eps, centred)
    y = off.cast(x.dtype) * n(1)
    if not centred:
        return y
    bias = n.tensor(2)
    y = y if bias is None else y + bias
    stash = "bf16" if n.get("stash_type", 1) == _BFLOAT16 else "f32"
    return (y, mean.cast(stash), inverse.cast(stash))[: max(1, n.outputs)]


def _soft(n: NodeView) -> Tensor:
    """Softmax, LogSoftmax and Hardmax: along an axis; before opset 13 over all from there on."""
    x = n(0)
    axis = n.get("axis", -1 if n.opset >= 13 else 1)
    if n.opset >= 13 or x.ndim == 0:
        return _softened(n, x, axis)
    rows = int(np.prod(x.shape[: axis % x.ndim], dtype=np.int64))
    return _softened(n, x.reshape(rows, x.size // max(1, rows)), -1).reshape(*x.shape)


def _softened(n: NodeView, x: Tensor, axis: int) -> Tensor:
    if n.op == "Hardmax":
        if not x.size:
            return x
        at = x.argmax(axis, keepdim=True)
        extent = x.shape[axis]
        places = np.arange(extent).reshape(-1, *(1,) * (x.ndim - axis % x.ndim - 1))
        return at.eq(Tensor(places)).cast(x.dtype)
    return x.log_softmax(axis) if n.op == "LogSoftmax" else x.softmax(axis)


def _lp_norm(n: NodeView) -> Tensor:
    x, axis = n(0), (n.get("axis", -1),)
    if n.get("p", 2) not in (1, 2):
        raise n.error(f"p = {n.get('p')}; 1 and 2 are there")
    norm = x.abs().sum(axis, True) if n.get("p", 2) == 1 else x.square().sum(axis, True).sqrt()
    return where(norm.eq(0), norm * 0, x / norm)


def _local_norm(n: NodeView) -> Tensor:
    """LRN: of an even number of channels one more is after than before, unlike in PyTorch."""
    x, size = n(0), n.get("size")
    x = x if size % 2 else x.flip(1)
    given = n.get("alpha", 1e-4), n.get("beta", 0.75), n.get("bias", 1.0)
    y = x.local_response_norm(size, *given)
    return y if size % 2 else y.flip(1)


NORMS: dict[str, Callable[[NodeView], Any]] = {
    "BatchNormalization": _batch_norm,
    "GroupNormalization": _group_norm,
    "Hardmax": _soft,
    "InstanceNormalization": lambda n: n(0).instance_norm(n(1), n(2), n.get("epsilon", 1e-5)),
    "LRN": _local_norm,
    "LayerNormalization": _layer_norm,
    "LogSoftmax": _soft,
    "LpNormalization": _lp_norm,
    "MeanVarianceNormalization": defined,
    "RMSNormalization": _layer_norm,
    "Softmax": _soft,
}
