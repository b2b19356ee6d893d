"""Normalisation, pooling and resizing; reading images at computed places; resizing by a filter."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunegrad.ir.dtypes import F64

from ...functional import layer_norm, rms_norm
from ...functions import stack
from ...ops.resizing import SamplePadding, Sampling, cubic
from ...tensor import Tensor
from .table import Operator, entries, overloads, unsupported

Optional = Tensor | None


def _over(x: Tensor, shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(range(x.ndim - len(shape), x.ndim))


def _statistics(x: Tensor, over: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """The mean, the variance and 1 over the deviation, as normalisation has them."""
    wide = x.cast(x.dtype.compute)
    mean = wide.mean(over, True)
    centred = wide - mean
    variance = (centred * centred).mean(over, True)
    return mean, variance, (variance + eps).sqrt().reciprocal()


def _native_layer_norm(
    x: Tensor, shape: Sequence[int], weight: Optional, bias: Optional, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    over = _over(x, shape)
    mean, _, inverse = _statistics(x, over, eps)
    return x.layer_norm(weight, bias, eps, over), mean, inverse


def _fused_rms_norm(
    x: Tensor, shape: Sequence[int], weight: Optional, eps: float | None
) -> tuple[Tensor, Tensor]:
    wide, over = x.cast(x.dtype.compute), _over(x, shape)
    least = (2.0**-52 if wide.dtype is F64 else 2.0**-23) if eps is None else eps
    size = (wide * wide).mean(over, True)
    return x.rms_norm(weight, eps, over), (size + least).sqrt().reciprocal()


def _batch_norm(
    x: Tensor, weight: Optional, bias: Optional, mean: Optional, var: Optional, training: bool,
    momentum: float, eps: float,
) -> Tensor:  # fmt: skip
    del momentum
    if training or mean is None or var is None:
        raise unsupported("batch_norm", "training")
    return x.batch_norm(weight, bias, mean, var, eps)


def _native_batch_norm(
    x: Tensor, weight: Optional, bias: Optional, mean: Tensor, var: Tensor, momentum: float,
    eps: float,
) -> tuple[Tensor, None, None]:  # fmt: skip
    """Its statistics are for the backward pass, and empty."""
    return _batch_norm(x, weight, bias, mean, var, False, momentum, eps), None, None


def _native_batch_norm_training(
    x: Tensor, weight: Optional, bias: Optional, mean: Optional, var: Optional, training: bool,
    momentum: float, eps: float,
) -> tuple[Tensor, None, None]:  # fmt: skip
    return _batch_norm(x, weight, bias, mean, var, training, momentum, eps), None, None


def _of_this_batch(
    x: Tensor, weight: Optional, bias: Optional, training: bool, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """By the statistics of each channel here, as instance normalisation asks for it."""
    del training, momentum
    over = (0, *range(2, x.ndim))
    mean, _, inverse = _statistics(x, over, eps)
    normal = x.layer_norm(None, None, eps, over)
    shape = (-1, *(1 for _ in x.shape[2:]))
    scaled = normal if weight is None else normal * weight.reshape(shape)
    normal = scaled if bias is None else scaled + bias.reshape(shape)
    kind = (x if weight is None else weight).dtype  # for the backward pass, as PyTorch keeps them
    return normal, mean.reshape(x.shape[1]).cast(kind), inverse.reshape(x.shape[1]).cast(kind)


def _with_new_statistics(
    x: Tensor, weight: Optional, bias: Optional, mean: Tensor, var: Tensor, training: bool,
    momentum: float, eps: float,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Batch normalisation, and the running statistics after it."""
    if not training:
        return _batch_norm(x, weight, bias, mean, var, False, momentum, eps), None, None, mean, var
    over = (0, *range(2, x.ndim))
    batch, spread, _ = _statistics(x, over, eps)
    count = math.prod(x.shape[d] for d in over)
    unbiased = spread * (count / (count - 1) if count > 1 else math.nan)

    def moved(old: Tensor, new: Tensor) -> Tensor:
        return old * (1 - momentum) + new.reshape(old.shape).cast(old.dtype) * momentum

    found = _of_this_batch(x, weight, bias, True, momentum, eps)
    return *found, moved(mean, batch), moved(var, unbiased)


def _native_group_norm(
    x: Tensor, weight: Optional, bias: Optional, n: int, c: int, hxw: int, group: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    del c, hxw
    grouped = x.reshape(n, group, -1) if x.numel() else x.reshape(n, group, 0)
    mean, _, inverse = _statistics(grouped, (2,), eps)
    return x.group_norm(group, weight, bias, eps), mean.squeeze(-1), inverse.squeeze(-1)


def _with_indices(method: Operator) -> Operator:
    def pool(
        x: Tensor, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:  # fmt: skip
        return method(x, kernel_size, stride, padding, dilation, ceil_mode, True)

    return pool


def _adaptive_max(method: Operator, rank: int) -> Operator:
    """The largest of each window, and its place in the image."""

    def pool(x: Tensor, output_size: Sequence[int]) -> tuple[Tensor, Tensor]:
        extents, sizes = x.shape[-rank:], tuple(output_size)
        values: Tensor = method(x, sizes)
        found = []
        for cell in product(*map(range, sizes)):
            bounds = [
                (i * n // new, -((-(i + 1) * n) // new))
                for i, n, new in zip(cell, extents, sizes, strict=True)
            ]
            window = x[(..., *(slice(a, b) for a, b in bounds))]
            flat = window.reshape((*window.shape[:-rank], -1)).argmax(-1)
            place: Any = 0
            rest = flat
            for d, (first, last) in enumerate(bounds):
                below = math.prod(b - a for a, b in bounds[d + 1 :])
                place = place * extents[d] + rest // below % (last - first) + first
            found.append(place)
        return values, stack(found, -1).reshape(values.shape)

    return pool


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> tuple[Tensor, Tensor]:
    """The weight of a direction and a length, and the length of the direction."""
    norm = v.norm(2, tuple(d for d in range(v.ndim) if d != dim % v.ndim), True)
    return v * (g / norm), norm


def _resize(x: Tensor, mode: Any, size: Any, scales: Any, corners: bool | None) -> Tensor:
    """Resize by the given scales; without them, by the ratio of sizes."""
    known = [s for s in _listed(scales) if s is not None]
    if not known:
        return x.interpolate(list(size), None, mode, corners)
    if len(known) != x.ndim - 2:
        raise unsupported(f"upsample_{mode}", f"scales {scales}")
    result = x.interpolate(None, [float(s) for s in known], mode, corners)
    if size is not None and result.shape[2:] != tuple(size):
        raise unsupported(f"upsample_{mode}", f"size {size} with scales {scales}")
    return result


def _listed(scales: Sequence[Any]) -> Sequence[Any]:
    """Scales that are given one by one, or as one list; none for None."""
    alone = len(scales) == 1 and not isinstance(scales[0], float)
    return scales[0] or () if alone else scales


def _nearest(x: Tensor, output_size: Any, *scales: Any) -> Tensor:
    return _resize(x, "nearest", output_size, scales, None)


def _smooth(name: str, mode: str) -> Operator:
    def resize(x: Tensor, output_size: Any, align_corners: bool, *scales: Any) -> Tensor:
        if not x.dtype.is_float:  # PyTorch rounds bytes on the way, by weights of 16 bits
            raise unsupported(name, f"{x.dtype}")
        return _resize(x, mode, output_size, scales, align_corners)

    return resize


_MODES = {
    "upsample_linear1d": "linear",
    "upsample_bilinear2d": "bilinear",
    "upsample_trilinear3d": "trilinear",
    "upsample_bicubic2d": "bicubic",
}

_RANKS, _KINDS = (1, 2, 3), ("default", "vec")

NORMALISATION: dict[str, Operator] = {
    **entries(layer_norm, "layer_norm.default"),
    **entries(_native_layer_norm, "native_layer_norm.default"),
    **entries(rms_norm, "rms_norm.default"),
    **entries(_fused_rms_norm, "_fused_rms_norm.default"),
    **entries(_batch_norm, "batch_norm.default"),
    **entries(_native_batch_norm, "_native_batch_norm_legit_no_training.default"),
    **entries(_native_batch_norm_training, "native_batch_norm.default"),
    **entries(_of_this_batch, "_native_batch_norm_legit.no_stats"),
    **entries(_with_new_statistics, "_native_batch_norm_legit_functional.default"),
    **overloads("default", Tensor.group_norm),
    **entries(_native_group_norm, "native_group_norm.default"),
    **overloads("default", Tensor.max_pool1d, Tensor.max_pool2d, Tensor.max_pool3d),
    **entries(_with_indices(Tensor.max_pool1d), "max_pool1d_with_indices.default"),
    **entries(_with_indices(Tensor.max_pool2d), "max_pool2d_with_indices.default"),
    **entries(_with_indices(Tensor.max_pool3d), "max_pool3d_with_indices.default"),
    **overloads("default", Tensor.avg_pool1d, Tensor.avg_pool2d, Tensor.avg_pool3d),
    **entries(Tensor.adaptive_avg_pool1d, "adaptive_avg_pool1d.default"),
    **entries(
        Tensor.adaptive_avg_pool2d, "adaptive_avg_pool2d.default", "_adaptive_avg_pool2d.default"
    ),
    **entries(
        Tensor.adaptive_avg_pool3d, "adaptive_avg_pool3d.default", "_adaptive_avg_pool3d.default"
    ),
    **entries(_adaptive_max(Tensor.adaptive_max_pool1d, 1), "adaptive_max_pool1d.default"),
    **entries(_adaptive_max(Tensor.adaptive_max_pool2d, 2), "adaptive_max_pool2d.default"),
    **entries(_adaptive_max(Tensor.adaptive_max_pool3d, 3), "adaptive_max_pool3d.default"),
    **entries(_weight_norm, "_weight_norm_interface.default"),
    **{f"upsample_nearest{n}d.{kind}": _nearest for n in _RANKS for kind in _KINDS},
    **{f"{name}.{kind}": _smooth(name, mode) for name, mode in _MODES.items() for kind in _KINDS},
}  # fmt: skip

_SAMPLINGS: tuple[Sampling, ...] = ("bilinear", "nearest", "bicubic")

_PADDINGS: tuple[SamplePadding, ...] = ("zeros", "border", "reflection")
"""PyTorch's numbers of modes and paddings."""


def _grid_sampler(
    x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    mode, padding = _SAMPLINGS[interpolation_mode], _PADDINGS[padding_mode]
    return x.grid_sample(grid, mode, padding, align_corners)


def _hat(d: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.clip(1 - np.abs(d), 0, None))


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
        x: Tensor, output_size: Sequence[int] | None, align_corners: bool, *scales: Any
    ) -> Tensor:
        if not x.dtype.is_float:
            raise unsupported(name, f"{x.dtype}")
        wide = x.cast(x.dtype.compute)
        known = list(_listed(scales) or (None, None))
        size = output_size or [
            math.floor(n * float(s or 1)) for n, s in zip(x.shape[2:], known, strict=True)
        ]
        rows, columns = (
            Tensor.constant(_filter(old, new, align_corners, s, reach, kernel), wide.dtype)
            for old, new, s in zip(x.shape[2:], size, known, strict=True)
        )
        return (rows @ (wide @ columns.transpose(0, 1))).cast(x.dtype)

    return resize


SAMPLING: dict[str, Operator] = {
    **entries(_grid_sampler, "grid_sampler_2d.default", "grid_sampler_3d.default"),
    **entries(
        _smoothed("_upsample_bilinear2d_aa", 1, _hat),
        "_upsample_bilinear2d_aa.default",
        "_upsample_bilinear2d_aa.vec",
    ),
    **entries(
        _smoothed("_upsample_bicubic2d_aa", 2, partial(cubic, a=-0.5)),
        "_upsample_bicubic2d_aa.default",
        "_upsample_bicubic2d_aa.vec",
    ),
}
