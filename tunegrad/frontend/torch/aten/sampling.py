"""Reading images at computed places, and resizing them with a filter."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...ops.resizing import SamplePadding, Sampling
from ...tensor import Tensor
from .table import Operator, entries, unsupported

__all__ = ["TABLE"]

_MODES: tuple[Sampling, ...] = ("bilinear", "nearest", "bicubic")
_PADDINGS: tuple[SamplePadding, ...] = ("zeros", "border", "reflection")
"""PyTorch's numbers of modes and paddings."""


def _grid_sampler(
    x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    mode, padding = _MODES[interpolation_mode], _PADDINGS[padding_mode]
    return x.grid_sample(grid, mode, padding, align_corners)


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
