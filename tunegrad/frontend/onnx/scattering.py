"""Operators that write to places, or put elements in another order."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ..functions import where
from ..nodes import indexing
from ..ops.indexing import within
from ..tensor import Tensor, apply
from .node import NodeView

__all__ = ["SCATTERING"]

_FOLDS: dict[str, indexing.Mode] = {
    "none": "set", "add": "add", "mul": "mul", "max": "max", "min": "min",
}  # fmt: skip


def _fold(n: NodeView) -> indexing.Mode:
    how = n.get("reduction", "none")
    if how not in _FOLDS:
        raise n.error(f"reduction {how!r}; valid: {', '.join(_FOLDS)}")
    return _FOLDS[how]


def _scatter_elements(n: NodeView) -> Tensor:
    x, index, source, mode, axis = n(0), n(1), n(2), _fold(n), n.get("axis", 0)
    return apply(n.op, lambda a, i, s: indexing.scatter(a, i, s, axis, mode), x, index, source)


def _scatter_nd(n: NodeView) -> Tensor:
    """ScatterND: slices written along the first dimensions, which are one for it."""
    x, index, source, mode = n(0), n(1), n(2), _fold(n)
    depth, count = index.shape[-1], prod(index.shape[:-1])
    row = _row(n.op, index.cast("i64"), x.shape[:depth]).reshape(count)
    rest = x.shape[depth:]
    flat, slices = x.reshape(prod(x.shape[:depth]), *rest), source.reshape(count, *rest)
    found = apply(n.op, lambda a, i, s: indexing.put(a, i, s, 0, mode), flat, row, slices)
    return found.reshape(*x.shape)


def _row(op: str, index: Tensor, extents: tuple[int, ...]) -> Tensor:
    """Places of several dimensions as those in one row."""
    row: Tensor | None = None
    for d, extent in enumerate(extents):
        at = within(index[..., d], op, -extent, extent)
        at = where(at < 0, at + extent, at)
        row = at if row is None else row * extent + at
    assert row is not None
    return row


def _gather_nd(n: NodeView) -> Tensor:
    x, index, batch = n(0), n(1), n.get("batch_dims", 0)
    places = [index[..., i] for i in range(index.shape[-1])]
    for d in range(batch):  # a batch reads its own
        line = np.arange(x.shape[d]).reshape(-1, *(1,) * (index.ndim - 2 - d))
        places.insert(d, Tensor(line).broadcast_to(index.shape[:-1]))
    return x[tuple(places)]


def _reverse_sequence(n: NodeView) -> Tensor:
    """ReverseSequence: the first elements of each row, as many as the row has."""
    x, lengths = n(0), n(1)
    time, batch = n.get("time_axis", 0) % x.ndim, n.get("batch_axis", 1) % x.ndim
    step = Tensor(np.arange(x.shape[time]).reshape([-1 if d == time else 1 for d in range(x.ndim)]))
    count = lengths.reshape([-1 if d == batch else 1 for d in range(x.ndim)])
    return x.take_along_dim(where(step < count, count - 1 - step, step), time)


def _center_crop_pad(n: NodeView) -> Tensor:
    """CenterCropPad: what is in the middle, with zeros around where there is less."""
    x, shape = n(0), n.ints(1)
    axes = n.get("axes") or list(range(x.ndim))
    if shape is None or len(shape) != len(axes):
        raise n.error("shape must be known, one extent for each axis")
    ends = [(0, 0)] * x.ndim
    for axis, wanted in zip(axes, shape, strict=True):
        at, extent = axis % x.ndim, x.shape[axis]
        if wanted < extent:
            x = x.narrow(at, (extent - wanted) // 2, wanted)
        else:
            ends[at] = (wanted - extent) // 2, wanted - extent - (wanted - extent) // 2
    return x.pad(ends, "constant", 0)


SCATTERING: dict[str, Callable[[NodeView], Any]] = {
    "CenterCropPad": _center_crop_pad,
    "GatherND": _gather_nd,
    "ReverseSequence": _reverse_sequence,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
}
