"""Other resolutions: nearest, linear and cubic interpolation, dimension by dimension; channels as
pixels; and images that are read at computed places.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tunegrad.errors import ShapeError
from tunegrad.ir import graph

from ..handle import Handle, TensorLike, lift, where
from ..nodes.movement import integer
from ..operation import T, operation
from .indexing import gather, take_known
from .movement import repeat_interleave, transpose
from .pooling import adaptive

Mode = Literal["nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic", "area"]
Sampling = Literal["bilinear", "nearest", "bicubic"]
SamplePadding = Literal["zeros", "border", "reflection"]


@operation
def interpolate(
    input: Handle,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: Mode = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Handle:
    """The spatial dimensions of (N, C, ...) in another size, or by a factor.

    ``align_corners``: the outermost elements stay at the edges; otherwise elements are areas of
    equal size.

    Integers stay; linear and cubic interpolation of them is computed in f32, rounded and kept
    within the type (PyTorch's, of u8 alone, has fixed-point weights: one more or less).

    Raises ShapeError for a mode that does not fit the dimensions, or neither or both of size
    and factor.
    """
    op = f"interpolate of {input.shape}"
    rank = input.ndim - 2
    if rank not in (1, 2, 3) or rank not in _RANKS.get(mode, (1, 2, 3)):
        raise ShapeError(f"{op}: mode {mode!r} does not fit {rank} spatial dimensions")
    if mode not in (*_RANKS, "nearest", "nearest-exact", "area"):
        raise ShapeError(f"{op}: mode {mode!r} is unknown")
    if antialias:
        raise ShapeError(f"{op}: antialias=True is not supported")
    if (size is None) == (scale_factor is None):
        raise ShapeError(f"{op}: either size or scale_factor must be given")
    extents = input.shape[2:]
    factors: list[float | None] = [None] * rank
    if size is not None:
        listed = [size] * rank if isinstance(size, int) else list(size)
        sizes = [integer(op, "size", s, 1) for s in listed]
    else:
        given = scale_factor if isinstance(scale_factor, Sequence) else [scale_factor] * rank
        sizes = [math.floor(e * float(f)) for e, f in zip(extents, given, strict=True)]  # type: ignore[arg-type]
        if not recompute_scale_factor:
            factors = [float(f) for f in given]  # type: ignore[arg-type]
    if len(sizes) != rank or min(sizes) < 1:
        raise ShapeError(f"{op}: size {sizes} must be {rank} extents of at least 1")
    if mode == "area":
        return adaptive(input, "avg", rank, tuple(sizes))
    x = input if mode.startswith("nearest") else input._wide()
    for i, (new, factor) in enumerate(zip(sizes, factors, strict=True)):
        x = _resized(x, i + 2, new, factor, mode, bool(align_corners))
    if input.dtype.is_int and not mode.startswith("nearest"):
        x = x.round().clamp(float(input.dtype.least), float(input.dtype.greatest))
    return x._as(input.dtype)


@operation
def grid_sample(
    input: Handle,
    grid: TensorLike,
    mode: Sampling = "bilinear",
    padding_mode: SamplePadding = "zeros",
    align_corners: bool = False,
) -> Handle:
    """(N, C, *extents) read at the places of a grid (N, *out, rank): x, y and so on, the last
    dimension first, from -1 at the first edge to 1 at the last.

    ``bilinear`` and ``bicubic`` interpolate in every dimension. Raises ShapeError for shapes or
    modes that do not fit.
    """
    at, rank = lift(grid, "grid_sample")._wide(), input.ndim - 2
    shapes = f"grid_sample: input {input.shape} and grid {at.shape}"
    if rank < 1 or at.ndim != input.ndim or (at.shape[0], at.shape[-1]) != (input.shape[0], rank):
        raise ShapeError(
            f"{shapes} must be (N, C, H, W) and (N, rows, columns, 2), or of other ranks alike"
        )
    if mode not in get_args(Sampling) or padding_mode not in get_args(SamplePadding):
        raise ShapeError(f"{shapes}: mode {mode!r} with padding {padding_mode!r} is not supported")
    places = grid_places(at, input.shape[2:], align_corners)
    return sampled(input._wide(), places, mode, padding_mode, align_corners)._as(input.float_type)


@operation
def pixel_shuffle(input: Handle, upscale_factor: int) -> Handle:
    """(.., C * r * r, H, W) to (.., C, H * r, W * r)."""
    r = integer("pixel_shuffle", "upscale_factor", upscale_factor, 1)
    if input.ndim < 3 or input.shape[-3] % (r * r):
        raise ShapeError(
            f"pixel_shuffle: {r} squared does not divide the channels of {input.shape}"
        )
    *lead, c, h, w = input.shape
    n = len(lead)
    x = input.reshape(*lead, c // (r * r), r, r, h, w)
    x = x.permute(*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return x.reshape(*lead, c // (r * r), h * r, w * r)


@operation
def pixel_unshuffle(input: Handle, downscale_factor: int) -> Handle:
    """(.., C, H * r, W * r) to (.., C * r * r, H, W)."""
    r = integer("pixel_unshuffle", "downscale_factor", downscale_factor, 1)
    if input.ndim < 3 or input.shape[-2] % r or input.shape[-1] % r:
        raise ShapeError(f"pixel_unshuffle: {r} does not divide the image of {input.shape}")
    *lead, c, h, w = input.shape
    n = len(lead)
    x = input.reshape(*lead, c, h // r, r, w // r, r)
    x = x.permute(*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return x.reshape(*lead, c * r * r, h // r, w // r)


@operation
def channel_shuffle(input: Handle, groups: int) -> Handle:
    """Channels (dimension 1) dealt out over groups."""
    if input.ndim < 3 or input.shape[1] % integer("channel_shuffle", "groups", groups, 1):
        raise ShapeError(f"channel_shuffle: groups={groups} on the channels of {input.shape}")
    n, c, *rest = input.shape
    return transpose(input.reshape(n, groups, c // groups, *rest), 1, 2).reshape(input.shape)


_RANKS = {"linear": (1,), "bilinear": (2,), "trilinear": (3,), "bicubic": (2,)}


_CUBIC = -0.75
"""Keys' coefficient, as PyTorch and OpenCV have it."""


def grid_places(grid: T, extents: Sequence[int], corners: bool) -> list[T]:
    """Places in elements, a tensor for each dimension, of a grid (N, *out, rank) of -1 to 1."""
    places = []
    for d, extent in enumerate(extents):
        p = grid.select(-1, len(extents) - 1 - d) + 1.0
        places.append(p * ((extent - 1) / 2) if corners else p * (extent / 2) - 0.5)
    return places


def sampled(
    x: T, places: Sequence[Handle], mode: Sampling, padding: SamplePadding, corners: bool
) -> T:
    """(N, C, *extents) at any places in elements, one tensor (N, *out) for each dimension:
    (N, C, *out), interpolated in each.

    ``corners``: whether ``reflection`` is at the middle of the outermost elements, or at their
    edges.
    """
    extents, cubic = x.shape[2:], mode == "bicubic"
    if not cubic:
        places = [
            _padded(p, extent, padding, corners) for p, extent in zip(places, extents, strict=True)
        ]
    taps = [_taps(p, mode) for p in places]
    total: T | None = None
    for chosen in product(*taps):
        at = [p for p, _ in chosen]
        if cubic:
            at = [
                _padded(p, extent, padding, corners) for p, extent in zip(at, extents, strict=True)
            ]
        part = read_at(x, at)
        for _, weight in chosen:
            part = part if weight is None else part * weight.unsqueeze(1)
        total = part if total is None else total + part
    assert total is not None
    return total


def read_at(x: T, places: Sequence[Handle]) -> T:
    """(N, C, *extents) at places that are whole numbers, as ``sampled``; 0 where one is outside."""
    extents, out = x.shape[2:], places[0].shape[1:]
    index: Handle | None = None
    inside: Handle | None = None
    kind = "i32" if math.prod(extents) < 1 << 31 else "i64"
    for p, extent in zip(places, extents, strict=True):
        fits = (p >= 0) & (p <= extent - 1)
        inside = fits if inside is None else inside & fits
        at = p.clamp(0.0, float(extent - 1)).cast(kind)
        index = at if index is None else index * extent + at
    assert index is not None
    assert inside is not None
    count = math.prod(out)
    spread = index.reshape(x.shape[0], 1, count).expand(*x.shape[:2], count)
    found = gather(x.reshape(*x.shape[:2], math.prod(extents)), 2, spread, mode="known")
    return found.reshape(*x.shape[:2], *out).where(inside.unsqueeze(1), 0)


def _taps(p: Handle, mode: Sampling) -> list[tuple[Handle, Handle | None]]:
    """Whole numbers around places in one dimension, and the weight of each."""
    if mode == "nearest":
        return [(p.round(), None)]
    first = p.floor()
    rest = p - first
    if mode == "bilinear":
        return [(first, 1 - rest), (first + 1, rest)]
    a = _CUBIC
    taps: list[tuple[Handle, Handle | None]] = []
    for k in (-1, 0, 1, 2):
        d = (rest - k).abs()
        near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        taps.append((first + k, near if k in (0, 1) else far))
    return taps


def _padded(p: Handle, extent: int, padding: SamplePadding, corners: bool) -> Handle:
    """Places beyond the edges as others inside; zeros are what ``read_at`` gives there. NaN is the
    first place, as is what reflects from infinity.
    """
    if padding == "zeros":
        return p
    if padding == "reflection":
        low, span = (0.0, float(extent - 1)) if corners else (-0.5, float(extent))
        if span == 0.0:
            return p * 0.0
        beyond = (p - low).abs() % (2 * span)
        p = where(beyond > span, 2 * span - beyond, beyond) + low
    return where(p >= 0, p, 0.0).minimum(float(extent - 1))


def _resized(
    x: Handle, at: int, new: int, factor: float | None, mode: str, corners: bool
) -> Handle:
    old = x.shape[at]
    if new == old and factor in (None, 1.0):
        return x
    if new == old and (
        x.ndim == 4 if mode == "nearest" else mode not in ("nearest-exact", "bicubic")
    ):
        return x
    if mode.startswith("nearest"):
        if mode == "nearest" and x.ndim == 4 and new == 2 * old:
            return repeat_interleave(x, 2, at)  # whatever the factor: PyTorch's nearest_idx
        if new % old == 0 and factor in (None, new / old):
            return repeat_interleave(x, new // old, at)
        shift = 0.5 if mode == "nearest-exact" else 0.0
        scale = np.float32(old / new if factor is None else 1 / factor)
        places = np.floor((np.arange(new, dtype=np.float32) + np.float32(shift)) * scale)
        return take_known(x, at, places.astype(np.int64).clip(0, old - 1))
    place = _places(old, new, factor, corners)
    first = np.floor(place).astype(np.int64)
    rest = place - first
    if mode == "bicubic":
        taps = [(first + k - 1, cubic(rest - (k - 1))) for k in range(4)]
    else:
        place = place.clip(0, None)
        first = np.floor(place).astype(np.int64)
        rest = place - first
        taps = [(first, 1 - rest), (first + 1, rest)]
    total: Handle | None = None
    shape = [new if a == at else 1 for a in range(x.ndim)]
    for positions, weights in taps:
        data = weights.astype(x.dtype.numpy).reshape(shape)
        part = take_known(x, at, positions.clip(0, old - 1)) * Handle.of(graph.const(data, x.dtype))
        total = part if total is None else total + part
    assert total is not None
    return total


def _places(old: int, new: int, factor: float | None, corners: bool) -> NDArray[np.float64]:
    """Positions in the input at which the elements of the result lie."""
    i = np.arange(new, dtype=np.float64)
    if corners:
        return i * ((old - 1) / (new - 1) if new > 1 else 0.0)
    return (i + 0.5) * (old / new if factor is None else 1 / factor) - 0.5


def cubic(distance: NDArray[np.float64], a: float = _CUBIC) -> NDArray[np.float64]:
    """The weight of an element at this distance (Keys 1981)."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))
