"""Images in other sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from ..functions import where
from ..tensor import Tensor
from .node import Known, NodeView

__all__ = ["RESIZING"]


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis of a Resize: its extents, the factor, and the part of it that is looked at."""

    at: int
    old: int
    new: int
    factor: float
    start: float = 0.0
    end: float = 1.0


def _resize(n: NodeView) -> Tensor:
    x, mode = n(0), n.get("mode", "nearest")
    first = n.op == "Upsample" or n.opset < 11
    how = "asymmetric" if first else n.get("coordinate_transformation_mode", "half_pixel")
    outside = list[Known]()
    for axis in _axes(n, first):
        same = axis.old == axis.new and axis.factor == 1.0 and (axis.start, axis.end) == (0.0, 1.0)
        if same:
            continue
        places = _places(n, axis, how)
        if how == _CROP:
            away = (places < 0) | (places > axis.old - 1)
            outside.append(away.reshape(-1, *(1,) * (x.ndim - axis.at - 1)))
        if mode == "nearest":
            rule = n.get("nearest_mode", "round_prefer_floor")
            if first:  # before opset 11 a smaller result takes the next element, not the last
                rule = "ceil" if axis.factor < 1 else "floor"
            taken = np.clip(_ROUNDED[rule](places), 0, axis.old - 1).astype(np.int64)
            x = x.index_select(axis.at, taken)
        else:
            x = _weighted(x, axis.at, _weights(n, axis, places, mode))
    if not outside or not any(o.any() for o in outside):
        return x
    beyond = reduce(np.logical_or, outside)
    return where(Tensor(beyond), n.get("extrapolation_value", 0.0), x).cast(x.dtype)


def _axes(n: NodeView, first: bool) -> list[_Axis]:
    shape = n(0).shape
    attribute = n.get("scales")  # Upsample's, before opset 9
    scales = attribute if attribute is not None else n.known(1 if first else 2)
    crops = not first and n.get("coordinate_transformation_mode") == _CROP
    sizes, region = n.known(3), n.known(1) if crops else None
    named = n.get("axes")
    axes = [a % len(shape) for a in (range(len(shape)) if named is None else named)]
    olds = [shape[a] for a in axes]
    if sizes is not None and sizes.size:
        news = [int(e) for e in sizes]
        factors = [a / b for a, b in zip(news, olds, strict=True)]
        policy = n.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            one = min(factors) if policy == "not_larger" else max(factors)
            factors, news = [one] * len(olds), [int(one * e + 0.5) for e in olds]
    elif scales is not None and len(scales):
        factors = [float(s) for s in scales]
        news = [math.floor(e * s) for e, s in zip(olds, factors, strict=True)]
    else:
        raise n.error("neither scales nor sizes are known")
    if region is None or not region.size:
        region = np.asarray([0.0] * len(axes) + [1.0] * len(axes))
    ends = region.astype(np.float64).reshape(2, len(axes)).T
    rows = zip(axes, olds, news, factors, ends, strict=True)
    return [_Axis(a, o, e, f, float(s), float(t)) for a, o, e, f, (s, t) in rows]


_CROP = "tf_crop_and_resize"
_ROUNDED: dict[str, Callable[[Any], Any]] = {
    "round_prefer_floor": lambda a: np.ceil(a - 0.5),
    "round_prefer_ceil": lambda a: np.floor(a + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _places(n: NodeView, axis: _Axis, how: str) -> Known:
    """Positions in the input at which the elements of the result lie."""
    i, old = np.arange(axis.new, dtype=np.float64), axis.old
    last = old * axis.factor - 1
    if how == "asymmetric":
        return i / axis.factor
    if how == "align_corners":
        return i * (old - 1) / last if last else i * 0
    if how == _CROP:
        part = axis.end - axis.start
        inside = i * part * (old - 1) / last if last else i * 0 + part * (old - 1) / 2
        return axis.start * (old - 1) + inside
    if how == "pytorch_half_pixel" and axis.new == 1:
        return i * 0
    if how == "tf_half_pixel_for_nn":
        return (i + 0.5) / axis.factor
    at = (i + 0.5) / axis.factor - 0.5
    if how == "half_pixel_symmetric":
        at = at + old / 2 * (1 - axis.new / (old * axis.factor))
    elif how not in ("half_pixel", "pytorch_half_pixel"):
        raise n.error(f"coordinate_transformation_mode {how} is not supported")
    return at


def _weights(n: NodeView, axis: _Axis, places: Known, mode: str) -> Known:
    """Weights of the elements of the input in each one of the result: (new, old).

    Linear, or cubic (Keys 1981); stretched over what one element stands for where ``antialias``
    is on and the result is smaller.
    """
    reach = {"linear": 1, "cubic": 2}.get(mode)
    if reach is None:
        raise n.error(f"mode {mode} is not supported")
    stretch = min(1.0, axis.factor) if n.get("antialias", 0) else 1.0
    width, low = math.ceil(reach / stretch), np.floor(places).astype(np.int64)
    found = np.zeros((axis.new, axis.old))
    a = n.get("cubic_coeff_a", -0.75)
    for tap in range(1 - width, width + 1):
        d = np.abs(places - (low + tap)) * stretch
        w = np.maximum(0, 1 - d)
        if mode == "cubic":
            near = ((a + 2) * d - (a + 3)) * d * d + 1
            far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
            w = np.where(d <= 1, near, np.where(d < 2, far, 0))
        at = low + tap
        if n.get("exclude_outside", 0):
            w = np.where((at < 0) | (at >= axis.old), 0, w)
        np.add.at(found, (np.arange(axis.new), np.clip(at, 0, axis.old - 1)), w)
    total = found.sum(1, keepdims=True)
    return found / np.where(total, total, 1)


def _weighted(x: Tensor, axis: int, weights: Known) -> Tensor:
    """One axis, as a product with a matrix of few weights."""
    kind = "f64" if x.dtype.bits == 64 else "f32"
    found = x.movedim(axis, -1).cast(kind) @ Tensor(weights.T, kind)
    if x.dtype.is_int:
        found = found.round().clamp(float(x.dtype.least), float(x.dtype.greatest))
    return found.cast(x.dtype).movedim(-1, axis)


RESIZING: dict[str, Callable[[NodeView], Any]] = {"Resize": _resize, "Upsample": _resize}
