"""Reductions, running sums, places of extremes, and losses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..functions import cat, where
from ..tensor import Tensor
from .node import NodeView

__all__ = ["REDUCTIONS"]


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
    place = Tensor.argmax if n.op == "ArgMax" else Tensor.argmin
    if not n.get("select_last_index", 0):
        return place(x, axis, keep)
    return place(x.flip(axis), axis, keep).neg() + int(x.shape[axis] - 1)


def _cumulative(n: NodeView) -> Tensor:
    x, (axis,) = n(0), n.ints(1) or [0]
    back, product = n.get("reverse", 0), n.op == "CumProd"
    x = x.flip(axis) if back else x
    y = x.cumprod(axis, dtype=x.dtype) if product else x.cumsum(axis, dtype=x.dtype)
    if n.get("exclusive", 0):  # one place later
        first = y.narrow(axis, 0, 1) * 0 + int(product)
        y = cat([first.cast(y.dtype), y.narrow(axis, 0, y.shape[axis] - 1)], axis)
    return y.flip(axis) if back else y


def _topk(n: NodeView) -> tuple[Tensor, Tensor]:
    k = n.ints(1, "k") if n.opset >= 10 else [n.get("k")]
    if not k:
        raise n.error("k is missing")
    found = n(0).topk(k[0], n.get("axis", -1), bool(n.get("largest", 1)), True)
    return found[0], found[1]


def _loss(n: NodeView) -> Any:
    x, target, weight = n(0), n(1), n.tensor(2)
    if n.op == "SoftmaxCrossEntropyLoss":
        x = x.log_softmax(1)
    ignored = n.get("ignore_index")
    kept = target if ignored is None else where(target.eq(ignored), target * 0, target)
    loss = x.gather(1, kept.cast("i64").unsqueeze(1)).squeeze(1).neg()
    each = Tensor(np.ones(1, np.float32)) if weight is None else weight
    scale = each.broadcast_to((x.shape[1],))[kept.cast("i64")].cast(x.dtype)
    scale = scale if ignored is None else where(target.eq(ignored), scale * 0, scale)
    loss, how = loss * scale, n.get("reduction", "mean")
    loss = loss if how == "none" else loss.sum()
    loss = loss / scale.sum() if how == "mean" else loss
    return (loss, x)[: max(1, n.outputs)]


REDUCTIONS: dict[str, Callable[[NodeView], Any]] = {
    "ArgMax": _arg,
    "ArgMin": _arg,
    "CumProd": _cumulative,
    "CumSum": _cumulative,
    "NegativeLogLikelihoodLoss": _loss,
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
    "SoftmaxCrossEntropyLoss": _loss,
    "TopK": _topk,
}
