"""Reading images at computed places, and resizing them with a filter."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...functions import where
from ...tensor import Tensor
from .table import Operator, entries, unsupported

__all__ = ["TABLE"]

_LINEAR, _NEAREST, _CUBIC = 0, 1, 2
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2
"""PyTorch's numbers of modes and paddings."""


def _grid_sampler(
    x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """(N, C, extents) read at (N, places, x y z): from -1 at the first edge to 1 at the last."""
    rank, sizes = x.ndim - 2, x.shape[2:]
    wide, at = x.cast(x.dtype.compute), grid.cast(grid.dtype.compute)
    places = []
    for d, extent in enumerate(sizes):
        p = at[..., rank - 1 - d]
        p = (p + 1) * ((extent - 1) / 2) if align_corners else ((p + 1) * extent - 1) * 0.5
        if interpolation_mode != _CUBIC:
            p = _padded(p, extent, padding_mode, align_corners)
        places.append(p)
    taps = [_taps(p, interpolation_mode) for p in places]
    total: Tensor | None = None
    for chosen in product(*taps):
        value = _read(wide, [p for p, _ in chosen], interpolation_mode, padding_mode, align_corners)
        for _, weight in chosen:
            value = value if weight is None else value * weight.unsqueeze(1)
        total = value if total is None else total + value
    assert total is not None
    return total.cast(x.dtype)


def _taps(p: Tensor, mode: int) -> list[tuple[Tensor, Tensor | None]]:
    """Whole positions along one dimension, and the weight of each."""
    if mode == _NEAREST:
        return [(p.round(), None)]
    first = p.floor()
    t = p - first
    if mode == _LINEAR:
        return [(first, 1 - t), (first + 1, t)]
    return [(first + i, _cubic((t - i).abs(), -0.75)) for i in (-1, 0, 1, 2)]


def _cubic(d: Tensor, a: float) -> Tensor:
    """Keys' kernel at a distance of 0 to 2."""
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return where(d <= 1, near, far)


def _padded(p: Tensor, extent: int, padding: int, corners: bool) -> Tensor:
    """A position outside as one inside; zeros are read by ``_read``."""
    if padding == _ZEROS:
        return p
    if padding == _REFLECTION:
        low, span = (0.0, extent - 1.0) if corners else (-0.5, float(extent))
        if span == 0:
            p = p * 0
        else:
            far = (p - low).abs()
            turns = (far / span).floor()
            rest = far - turns * span
            even = (turns - 2 * (turns / 2).floor()) == 0
            p = where(even, rest + low, span - rest + low)
    return p.clamp(0, extent - 1)


def _read(x: Tensor, places: Sequence[Tensor], mode: int, padding: int, corners: bool) -> Tensor:
    n, c, *sizes = x.shape
    index: Any = 0
    inside: Tensor | None = None
    for p, extent in zip(places, sizes, strict=True):
        at = _padded(p, extent, padding, corners) if mode == _CUBIC else p
        fits = (at >= 0) & (at <= extent - 1)
        inside = fits if inside is None else inside & fits
        index = index * extent + where(fits, at, 0.0).cast("i64")
    assert inside is not None
    count = math.prod(index.shape[1:])
    spread = index.reshape((n, 1, count)).expand(n, c, count)
    value = x.reshape((n, c, math.prod(sizes))).gather(2, spread)
    return where(inside.unsqueeze(1), value.reshape((n, c, *index.shape[1:])), 0.0)


def _hat(d: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.clip(1 - np.abs(d), 0, None))


def _keys(d: NDArray[np.float64]) -> NDArray[np.float64]:
    d, a = np.abs(d), -0.5
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d < 1, near, np.where(d < 2, far, 0.0))


def _filter(
    old: int, new: int, corners: bool, scale: float | None, reach: int,
    kernel: Callable[[NDArray[np.float64]], NDArray[np.float64]],
) -> NDArray[np.float64]:  # fmt: skip
    """Weights (new, old) of a filter that is as wide as the step from one new element to the next.

    That is how Pillow resizes, and PyTorch with ``antialias=True``.
    """
    if corners:
        step = (old - 1) / (new - 1) if new > 1 else 0.0
    else:
        step = 1 / scale if scale else old / new
    wide = max(step, 1.0)
    centre = step * (np.arange(new) + 0.5)[:, None]
    support = reach * wide
    first = np.maximum((centre - support + 0.5).astype(np.int64), 0)
    last = np.minimum((centre + support + 0.5).astype(np.int64), old)
    at = np.arange(old)[None, :]
    weights = np.where((at >= first) & (at < last), kernel((at - centre + 0.5) / wide), 0.0)
    return np.asarray(weights / weights.sum(1, keepdims=True))


def _smoothed(name: str, reach: int, kernel: Any) -> Operator:
    def resize(
        x: Tensor, output_size: Sequence[int], align_corners: bool, *scales: float | None
    ) -> Tensor:
        if not x.dtype.is_float:
            raise unsupported(name, f"{x.dtype}")
        wide = x.cast(x.dtype.compute)
        known = list(scales) or [None, None]
        rows, columns = (
            Tensor.constant(_filter(old, new, align_corners, s, reach, kernel), wide.dtype)
            for old, new, s in zip(x.shape[2:], output_size, known, strict=True)
        )
        return (rows @ (wide @ columns.transpose(0, 1))).cast(x.dtype)

    return resize


def _smoothed_vec(name: str, reach: int, kernel: Any) -> Operator:
    resize = _smoothed(name, reach, kernel)

    def by_size_or_factor(
        x: Tensor, output_size: Sequence[int] | None, align_corners: bool,
        scale_factors: Sequence[float] | None,
    ) -> Tensor:  # fmt: skip
        scales = list(scale_factors or (None, None))
        size = output_size or [
            math.floor(n * float(s or 1)) for n, s in zip(x.shape[2:], scales, strict=True)
        ]
        return resize(x, size, align_corners, *scales)  # type: ignore[no-any-return]

    return by_size_or_factor


TABLE: dict[str, Operator] = {
    **entries(_grid_sampler, "grid_sampler_2d.default", "grid_sampler_3d.default"),
    "_upsample_bilinear2d_aa.default": _smoothed("_upsample_bilinear2d_aa", 1, _hat),
    "_upsample_bilinear2d_aa.vec": _smoothed_vec("_upsample_bilinear2d_aa", 1, _hat),
    "_upsample_bicubic2d_aa.default": _smoothed("_upsample_bicubic2d_aa", 2, _keys),
    "_upsample_bicubic2d_aa.vec": _smoothed_vec("_upsample_bicubic2d_aa", 2, _keys),
}
