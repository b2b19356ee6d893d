"""Other resolutions: nearest, linear and cubic interpolation, dimension by dimension, and channels
as pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from tunegrad.errors import ShapeError
from tunegrad.ir import graph

from ..handle import Handle, TensorLike, lift
from ..handle import where as select
from ..keys import take
from ..movement import integer
from .pooling import Pooling

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["Resizing"]

Mode = Literal["nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic", "area"]
_RANKS = {"linear": (1,), "bilinear": (2,), "trilinear": (3,), "bicubic": (2,)}
_CUBIC = -0.75
"""Keys' coefficient, as PyTorch and OpenCV have it."""


class Resizing(Pooling):
    """``interpolate``, ``pixel_shuffle`` and the like."""

    __slots__ = ()

    def interpolate(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: Mode = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
        antialias: bool = False,
    ) -> Tensor:
        """The spatial dimensions of (N, C, ...) in another size, or by a factor.

        ``align_corners``: the outermost elements stay at the edges; otherwise elements are areas of
        equal size.

        Integers stay; linear and cubic interpolation of them is computed in f32, rounded and kept
        within the type (PyTorch's, of u8 alone, has fixed-point weights: one more or less).

        Raises ShapeError for a mode that does not fit the dimensions, or neither or both of size
        and factor.
        """
        op = f"interpolate of {self.shape}"
        rank = self.ndim - 2
        if rank not in (1, 2, 3) or rank not in _RANKS.get(mode, (1, 2, 3)):
            raise ShapeError(f"{op}: mode {mode!r} does not fit {rank} spatial dimensions")
        if mode not in (*_RANKS, "nearest", "nearest-exact", "area"):
            raise ShapeError(f"{op}: mode {mode!r} is unknown")
        if antialias:
            raise ShapeError(f"{op}: antialias=True is not there")
        if (size is None) == (scale_factor is None):
            raise ShapeError(f"{op}: either size or scale_factor must be given")
        extents = self.shape[2:]
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
            return self._adaptive("avg", rank, tuple(sizes))
        x = self._same() if mode.startswith("nearest") else self._wide()
        for i, (new, factor) in enumerate(zip(sizes, factors, strict=True)):
            x = _resized(x, i + 2, new, factor, mode, bool(align_corners))
        if self.dtype.is_int and not mode.startswith("nearest"):
            x = x.round().clamp(float(self.dtype.least), float(self.dtype.greatest))
        return x._as(self.dtype)

    def grid_sample(
        self,
        grid: TensorLike,
        mode: Literal["bilinear", "nearest"] = "bilinear",
        padding_mode: Literal["zeros", "border"] = "zeros",
        align_corners: bool = False,
    ) -> Tensor:
        """(N, C, H, W) read at the places of a grid (N, rows, columns, 2): x and y, from -1 at the
        left and top edge to 1.

        Raises ShapeError for shapes or modes that do not fit.
        """
        at = lift(grid, "grid_sample")._wide()
        shapes = f"grid_sample: input {self.shape} and grid {at.shape}"
        if self.ndim != 4 or at.ndim != 4 or at.shape[-1] != 2 or at.shape[0] != self.shape[0]:
            raise ShapeError(f"{shapes} must be (N, C, H, W) and (N, rows, columns, 2)")
        if mode not in ("bilinear", "nearest") or padding_mode not in ("zeros", "border"):
            raise ShapeError(f"{shapes}: mode {mode!r} with padding {padding_mode!r} is not there")
        x = self._wide()
        n, c, h, w = x.shape
        places = []
        for axis, extent in ((0, w), (1, h)):
            p = at[..., axis] + 1
            p = p * ((extent - 1) / 2) if align_corners else p * (extent / 2) - 0.5
            places.append(p.clamp(0, extent - 1) if padding_mode == "border" else p)
        px, py = places
        taps: list[tuple[Tensor, Tensor, Tensor | None]]
        if mode == "nearest":
            taps = [(px.round(), py.round(), None)]
        else:
            left, top = px.floor(), py.floor()
            right, low = px - left, py - top
            taps = [
                (left + i, top + j, (right if i else 1 - right) * (low if j else 1 - low))
                for j in (0, 1) for i in (0, 1)
            ]  # fmt: skip
        pixels, count = x.reshape(n, c, h * w), math.prod(at.shape[1:3])
        total: Tensor | None = None
        for tx, ty, weight in taps:
            inside = (tx >= 0) & (tx < w) & (ty >= 0) & (ty < h)
            index = ty.clamp(0, h - 1).cast("i32") * w + tx.clamp(0, w - 1).cast("i32")
            spread = index.reshape(n, 1, count).expand(n, c, count)
            value = pixels.gather(2, spread, mode="clip").reshape(n, c, *at.shape[1:3])
            value = select(inside.unsqueeze(1), value, 0.0)
            value = value if weight is None else value * weight.unsqueeze(1)
            total = value if total is None else total + value
        assert total is not None
        return total._as(self.float_type)

    def pixel_shuffle(self, upscale_factor: int) -> Tensor:
        """(.., C * r * r, H, W) to (.., C, H * r, W * r)."""
        r = integer("pixel_shuffle", "upscale_factor", upscale_factor, 1)
        if self.ndim < 3 or self.shape[-3] % (r * r):
            raise ShapeError(
                f"pixel_shuffle: {r} squared does not divide the channels of {self.shape}"
            )
        *lead, c, h, w = self.shape
        n = len(lead)
        x = self.reshape(*lead, c // (r * r), r, r, h, w)
        x = x.permute(*range(n), n, n + 3, n + 1, n + 4, n + 2)
        return x.reshape(*lead, c // (r * r), h * r, w * r)

    def pixel_unshuffle(self, downscale_factor: int) -> Tensor:
        """(.., C, H * r, W * r) to (.., C * r * r, H, W)."""
        r = integer("pixel_unshuffle", "downscale_factor", downscale_factor, 1)
        if self.ndim < 3 or self.shape[-2] % r or self.shape[-1] % r:
            raise ShapeError(f"pixel_unshuffle: {r} does not divide the image of {self.shape}")
        *lead, c, h, w = self.shape
        n = len(lead)
        x = self.reshape(*lead, c, h // r, r, w // r, r)
        x = x.permute(*range(n), n, n + 2, n + 4, n + 1, n + 3)
        return x.reshape(*lead, c * r * r, h // r, w // r)

    def channel_shuffle(self, groups: int) -> Tensor:
        """Channels (dimension 1) dealt out over groups."""
        if self.ndim < 3 or self.shape[1] % integer("channel_shuffle", "groups", groups, 1):
            raise ShapeError(f"channel_shuffle: groups={groups} on the channels of {self.shape}")
        n, c, *rest = self.shape
        return self.reshape(n, groups, c // groups, *rest).transpose(1, 2).reshape(self.shape)


def _resized(
    x: Tensor, at: int, new: int, factor: float | None, mode: str, corners: bool
) -> Tensor:
    old = x.shape[at]
    if new == old and (factor in (None, 1.0) or mode not in ("nearest-exact", "bicubic")):
        return x
    if mode.startswith("nearest"):
        if mode == "nearest" and new == 2 * old:  # whatever the factor: PyTorch's nearest_idx
            return x.repeat_interleave(2, at)
        if new % old == 0 and factor in (None, new / old):
            return x.repeat_interleave(new // old, at)
        shift = 0.5 if mode == "nearest-exact" else 0.0
        scale = np.float32(old / new if factor is None else 1 / factor)
        places = np.floor((np.arange(new, dtype=np.float32) + np.float32(shift)) * scale)
        return take(x, at, places.astype(np.int64).clip(0, old - 1))
    place = _places(old, new, factor, corners)
    first = np.floor(place).astype(np.int64)
    rest = place - first
    if mode == "bicubic":
        taps = [(first + k - 1, _cubic(rest - (k - 1))) for k in range(4)]
    else:
        place = place.clip(0, None)
        first = np.floor(place).astype(np.int64)
        rest = place - first
        taps = [(first, 1 - rest), (first + 1, rest)]
    total: Tensor | None = None
    shape = [new if a == at else 1 for a in range(x.ndim)]
    for positions, weights in taps:
        data = weights.astype(x.dtype.numpy).reshape(shape)
        part = take(x, at, positions.clip(0, old - 1)) * Handle.of(graph.const(data, x.dtype))
        total = part if total is None else total + part
    assert total is not None
    return total


def _places(old: int, new: int, factor: float | None, corners: bool) -> NDArray[np.float64]:
    """Where the elements of the result lie in the input."""
    i = np.arange(new, dtype=np.float64)
    if corners:
        return i * ((old - 1) / (new - 1) if new > 1 else 0.0)
    return (i + 0.5) * (old / new if factor is None else 1 / factor) - 0.5


def _cubic(distance: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weight of an element at this distance (Keys 1981)."""
    d, a = np.abs(distance), _CUBIC
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))
