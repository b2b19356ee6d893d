"""Operators that move, join, cut and look up elements, or write them to places."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Literal

import numpy as np

from tunegrad.ir.dtypes import DType

from ..functions import cat, where
from ..nodes import indexing
from ..ops.indexing import within
from ..tensor import Tensor, apply
from .elementwise import type_of
from .node import Known, NodeView, defined


def _reshape(n: NodeView) -> Tensor:
    x, shape = n(0), n.ints(1, "shape")
    if shape is None:
        raise n.error("there is no shape")
    if not n.get("allowzero", 0):
        shape = [x.shape[i] if e == 0 else e for i, e in enumerate(shape)]
    return x.reshape(*shape) if shape else x.reshape(())


def _squeeze(n: NodeView) -> Tensor:
    x, axes = n(0), n.ints(1, "axes")
    gone = {a % x.ndim for a in axes} if axes is not None else None
    kept = [e for i, e in enumerate(x.shape) if not (e == 1 if gone is None else i in gone)]
    return x.reshape(*kept) if kept else x.reshape(())


def _unsqueeze(n: NodeView) -> Tensor:
    x, axes = n(0), n.ints(1, "axes") or []
    rank = x.ndim + len(axes)
    new = {a % rank for a in axes}
    old = iter(x.shape)
    return x.reshape(*(1 if i in new else next(old) for i in range(rank)))


def _flatten(n: NodeView) -> Tensor:
    x, axis = n(0), n.get("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    first = int(np.prod(x.shape[:axis], dtype=np.int64))
    return x.reshape(first, int(np.prod(x.shape[axis:], dtype=np.int64)))


def _transpose(n: NodeView) -> Tensor:
    x = n(0)
    order = n.get("perm") or list(range(x.ndim))[::-1]
    return x.permute(*order) if order else x


def _slice(n: NodeView) -> Tensor | Known:
    given = n.at(0)
    x = given if isinstance(given, np.ndarray) else n(0)
    starts, ends = n.ints(1, "starts") or [], n.ints(2, "ends") or []
    axes = n.ints(3, "axes") or list(range(len(starts)))
    steps = n.ints(4) or [1] * len(starts)
    key: list[slice] = [slice(None)] * len(x.shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        key[axis] = _range(start, end, step, x.shape[axis])
    found = x[tuple(key)]
    return found if isinstance(found, Tensor) else np.asarray(found)


def _range(start: int, end: int, step: int, extent: int) -> slice:
    """The elements that ONNX means: backwards, a start before the first one is the first one."""
    first, last = (p + extent if p < 0 else p for p in (start, end))
    if not extent or step > 0:
        return slice(max(0, min(first, extent)), max(0, min(last, extent)), step)
    first, last = max(0, min(first, extent - 1)), max(-1, min(last, extent - 1))
    return slice(first, None if last < 0 else last, step)


def _split(n: NodeView) -> tuple[Tensor, ...]:
    x, axis = n(0), n.get("axis", 0)
    parts = n.ints(1, "split")
    if parts is None:
        extent, count = x.shape[axis], n.get("num_outputs", n.outputs)
        each = -(-extent // count)
        parts = [min(each, extent - i * each) for i in range(count)]
    return tuple(x.split(parts, axis))


def _expand(n: NodeView) -> Tensor:
    x, shape = n(0), n.ints(1) or []
    return x.broadcast_to(np.broadcast_shapes(x.shape, tuple(shape)))


def _pad(n: NodeView) -> Tensor:
    x = n(0)
    pads = n.ints(1, "pads") or []
    axes = n.ints(3) or list(range(x.ndim))
    mode = n.get("mode", "constant")
    mode = {"edge": "replicate", "wrap": "circular"}.get(mode, mode)
    pairs = [(0, 0)] * x.ndim
    for i, axis in enumerate(axes):
        pairs[axis % x.ndim] = pads[i], pads[len(axes) + i]
    value = n.get("value", 0.0) if n.opset < 11 else n.known(2)
    fill = 0 if value is None else np.asarray(value).reshape(-1)[0].item()
    if mode == "constant":
        return x.pad(pairs, mode, fill)
    if mode == "circular" and any(max(p) > e for p, e in zip(pairs, x.shape, strict=True)):
        for axis, (a, b) in enumerate(pairs):  # several times around
            around = np.arange(-a, x.shape[axis] + b) % max(1, x.shape[axis])
            x = x.index_select(axis, around) if a or b else x
        return x
    return x.pad(pairs, mode)


def _gather(n: NodeView) -> Tensor:
    x, axis = n(0), n.get("axis", 0) % max(1, n(0).ndim)
    index = n(1)
    at = index.reshape(-1) if index.ndim != 1 else index
    found = x.index_select(axis, at)
    return found.reshape(*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])


def _compress(n: NodeView) -> Tensor:
    condition = n.known(1)
    if condition is None:
        raise n.error("there is no condition")
    places = np.flatnonzero(condition)
    x = n(0)
    return x.index_select(n.get("axis"), places) if "axis" in n.attributes else x.ravel()[places]


def _one_hot(n: NodeView) -> Tensor:
    depth = int(np.asarray(n.known(1)).reshape(-1)[0])
    values, axis, index = n(2), n.get("axis", -1), n(0)
    index = where(index < 0, index + depth, index).cast("i64")
    at = axis % (index.ndim + 1)
    places = Tensor(np.arange(depth).reshape(-1, *(1,) * (index.ndim - at)))
    return where(index.unsqueeze(at).eq(places), values[1], values[0])


def _depth_to_space(n: NodeView) -> Tensor:
    x, b = n(0), n.get("blocksize")
    batch, c, h, w = x.shape
    if n.get("mode", "DCR") == "CRD":
        return x.pixel_shuffle(b)
    y = x.reshape(batch, b, b, c // (b * b), h, w).permute(0, 3, 4, 1, 5, 2)
    return y.reshape(batch, c // (b * b), h * b, w * b)


def _space_to_depth(n: NodeView) -> Tensor:
    x, b = n(0), n.get("blocksize")
    batch, c, h, w = x.shape
    y = x.reshape(batch, c, h // b, b, w // b, b)
    if n.get("mode", "DCR") == "CRD":
        return y.permute(0, 1, 3, 5, 2, 4).reshape(batch, c * b * b, h // b, w // b)
    y = y.permute(0, 3, 5, 1, 2, 4)
    return y.reshape(batch, c * b * b, h // b, w // b)


def _constant_of_shape(n: NodeView) -> np.ndarray[Any, Any]:
    value = n.get("value", np.zeros(1, np.float32))
    return np.full(n.ints(0) or [], np.asarray(value).reshape(-1)[0])


def _eye_like(n: NodeView) -> Tensor:
    """EyeLike: of an operand it takes the shape, and the dtype where no attribute says one."""
    x = n(0)
    if x.ndim != 2:
        raise n.error(f"of shape {x.shape}; a matrix is there")
    dtype = x.dtype if n.get("dtype") is None else type_of(n, n.get("dtype"))
    if not isinstance(dtype, DType):
        raise n.error(f"dtype {dtype.name} is not supported")
    return Tensor(np.eye(x.shape[0], x.shape[1], n.get("k", 0))).cast(dtype)


def _trilu(n: NodeView) -> Tensor:
    k = n.ints(1)
    diagonal = k[0] if k else 0
    return n(0).triu(diagonal) if n.get("upper", 1) else n(0).tril(diagonal)


SHAPES: dict[str, Callable[[NodeView], Any]] = {
    "Compress": _compress,
    "Concat": lambda n: cat([n(i) for i in range(len(n.inputs))], n.get("axis", 0)),
    "ConstantOfShape": _constant_of_shape,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "EyeLike": _eye_like,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": lambda n: n(0).gather(n.get("axis", 0), n(1)),
    "OneHot": _one_hot,
    "Pad": _pad,
    "Reshape": _reshape,
    "Shape": lambda n: np.asarray(n(0).shape, np.int64)[n.get("start", 0) : n.get("end")],
    "Size": lambda n: np.asarray(int(np.prod(n(0).shape, dtype=np.int64)), np.int64),
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": lambda n: n(0).tile(*(n.ints(1) or [])),
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
}  # fmt: skip


def _fold(n: NodeView) -> indexing.Mode:
    how: indexing.Mode | Literal["none"] = n.get("reduction", "none")
    return "set" if how == "none" else how


def _scatter_elements(n: NodeView) -> Tensor:
    x, index, source, mode, axis = n(0), n(1), n(2), _fold(n), n.get("axis", 0)
    return apply(n.op, lambda a, i, s: indexing.scatter(a, i, s, axis, mode), x, index, source)


def _scatter_nd(n: NodeView) -> Tensor:
    """ScatterND: slices written along the first dimensions, which are one for it."""
    x, index, source, mode = n(0), n(1), n(2), _fold(n)
    depth, count = _depth(n, x, index, 0), prod(index.shape[:-1])
    row = _row(n.op, index.cast("i64"), x.shape[:depth]).reshape(count)
    rest = x.shape[depth:]
    flat, slices = x.reshape(prod(x.shape[:depth]), *rest), source.reshape(count, *rest)
    found = apply(n.op, lambda a, i, s: indexing.put(a, i, s, 0, mode), flat, row, slices)
    return found.reshape(*x.shape)


def _depth(n: NodeView, x: Tensor, index: Tensor, batch: int) -> int:
    """The dimensions that a row of indices names."""
    depth = index.shape[-1] if index.ndim else 0
    if not 0 < depth <= x.ndim - batch:
        raise n.error(f"its indices of shape {index.shape} name no places of {x.shape}")
    return depth


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
    if not 0 <= batch < min(x.ndim, index.ndim):
        raise n.error(f"batch_dims = {batch} of {x.ndim} and {index.ndim} dimensions")
    places = [index[..., i] for i in range(_depth(n, x, index, batch))]
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


SCATTERING: dict[str, Callable[[NodeView], Any]] = {
    "CenterCropPad": defined,
    "GatherND": _gather_nd,
    "ReverseSequence": _reverse_sequence,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
}
