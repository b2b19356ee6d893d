"""Convolutions and pools, which look through windows, and what undoes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..functions import where
from ..ops.convolution import convolve, convolve_transposed
from ..ops.pooling import avg_pool, max_pool
from ..tensor import Tensor
from .node import Known, NodeView

__all__ = [
    "CONVOLUTIONS", "POOLS", "convolution", "ends_of", "listed", "padded",
]  # fmt: skip

_Pairs = list[tuple[int, int]]


def ends_of(n: NodeView, extents: Sequence[int], size: Sequence[int]) -> _Pairs:
    """Padding before and after each dimension, as the node says it."""
    rank = len(size)
    strides, spread = listed(n, "strides", rank), listed(n, "dilations", rank)
    kind = n.get("auto_pad", "NOTSET")
    if kind in ("SAME_UPPER", "SAME_LOWER"):
        pairs = []
        for e, k, s, d in zip(extents, size, strides, spread, strict=True):
            total = max(0, (-(-e // s) - 1) * s + d * (k - 1) + 1 - e)
            less, more = total // 2, total - total // 2
            pairs.append((less, more) if kind == "SAME_UPPER" else (more, less))
        return pairs
    pads = [0] * 2 * rank if kind == "VALID" else n.get("pads") or [0] * 2 * rank
    return [(int(pads[i]), int(pads[rank + i])) for i in range(rank)]


def listed(n: NodeView, name: str, rank: int) -> list[int]:
    """An attribute of one number for each dimension, 1 where it is left out."""
    return [int(x) for x in n.get(name) or [1] * rank]


def padded(x: Tensor, ends: _Pairs, value: float = 0.0) -> Tensor:
    """With ``value`` before and after the last dimensions."""
    if not any(map(any, ends)):
        return x
    return x.pad([(0, 0)] * (x.ndim - len(ends)) + ends, "constant", value)


def convolution(n: NodeView) -> Tensor:
    """Conv: (N, C, *spatial) with weights (O, C / groups, *window)."""
    x, w, bias = n(0), n(1), n.tensor(2)
    rank = w.ndim - 2
    if rank not in (1, 2, 3):
        raise n.error(f"convolutions over {rank} dimensions are not supported")
    ends = ends_of(n, x.shape[2:], w.shape[2:])
    padding: Any = [a for a, _ in ends]
    if any(a != b for a, b in ends):
        x, padding = padded(x, ends), 0
    strides, spread = listed(n, "strides", rank), listed(n, "dilations", rank)
    return convolve(x, rank, w, bias, strides, padding, spread, n.get("group", 1))


def _conv_transpose(n: NodeView) -> Tensor:
    x, w, bias = n(0), n(1), n.tensor(2)
    rank = w.ndim - 2
    strides, spread = listed(n, "strides", rank), listed(n, "dilations", rank)
    more = [int(p) for p in n.get("output_padding") or [0] * rank]
    whole = [
        s * (e - 1) + o + (k - 1) * d + 1
        for e, s, o, k, d in zip(x.shape[2:], strides, more, w.shape[2:], spread, strict=True)
    ]
    shape, kind = n.get("output_shape"), n.get("auto_pad", "NOTSET")
    if shape is None and kind.startswith("SAME"):
        shape = [e * s for e, s in zip(x.shape[2:], strides, strict=True)]
    if shape is not None:
        cut = [w_ - int(e) for w_, e in zip(whole, shape[-rank:], strict=True)]
        upper = kind == "SAME_UPPER"
        ends = [(c // 2, c - c // 2) if upper else (c - c // 2, c // 2) for c in cut]
    else:
        pads = n.get("pads") or [0] * 2 * rank
        ends = [(int(pads[i]), int(pads[rank + i])) for i in range(rank)]
    # all of it, and then what padding cuts away
    y = convolve_transposed(x, rank, w, None, strides, 0, 0, n.get("group", 1), spread)
    for at, ((a, b), o) in enumerate(zip(ends, more, strict=True), 2):
        end = y.shape[at] + min(0, o - b)
        y = y.narrow(at, max(0, a), end - max(0, a))
        y = padded(y, [(max(0, -a) if i == at else 0, max(0, o - b) if i == at else 0)
                        for i in range(2, y.ndim)])  # fmt: skip
    return y if bias is None else y + bias.reshape(-1, *(1,) * rank)


def _col2im(n: NodeView) -> Tensor:
    """Col2Im: columns added up to images, as a transposed convolution with one weight of 1 for
    each place in a window.
    """
    x, image, block = n(0), n.ints(1), n.ints(2)
    if image is None or block is None:
        raise n.error("image_shape and block_shape must be known")
    rank, taps = len(block), math.prod(block)
    strides, spread = listed(n, "strides", rank), listed(n, "dilations", rank)
    pads = n.get("pads") or [0] * 2 * rank
    room = [e + pads[d] + pads[rank + d] for d, e in enumerate(image)]
    places = [
        (r - d * (k - 1) - 1) // s + 1
        for r, d, k, s in zip(room, spread, block, strides, strict=True)
    ]
    channels = x.shape[1] // taps
    columns = x.reshape(x.shape[0] * channels, taps, *places)
    weight = Tensor(np.eye(taps).reshape(taps, 1, *block), x.dtype)
    y = convolve_transposed(columns, rank, weight, None, strides, 0, 0, 1, spread)
    for d in range(rank):
        missing = max(0, room[d] - y.shape[2 + d])
        y = padded(y, [(0, missing if i == d else 0) for i in range(rank)])
        y = y.narrow(2 + d, pads[d], image[d])
    return y.reshape(x.shape[0], channels, *image)


CONVOLUTIONS: dict[str, Callable[[NodeView], Any]] = {
    "Col2Im": _col2im,
    "Conv": convolution,
    "ConvTranspose": _conv_transpose,
}


@dataclass(frozen=True, slots=True)
class _Windows:
    """The windows of a pool: their size, how far apart, padding before and after, and what the
    last ones need beyond that (``more``, with ``ceil_mode``).
    """

    extents: tuple[int, ...]
    size: list[int]
    strides: list[int]
    spread: list[int]
    ends: list[tuple[int, int]]
    more: list[int]

    @staticmethod
    def of(n: NodeView) -> _Windows:
        extents, size = n(0).shape[2:], [int(k) for k in n.get("kernel_shape")]
        rank = len(size)
        strides, spread = listed(n, "strides", rank), listed(n, "dilations", rank)
        ends = ends_of(n, extents, size)
        more = [0] * rank
        for d in range(rank if n.get("ceil_mode", 0) else 0):
            room = extents[d] + sum(ends[d]) - spread[d] * (size[d] - 1) - 1
            last = -(-room // strides[d])
            if last * strides[d] >= extents[d] + ends[d][0]:  # it would begin beyond the input
                last -= 1
            more[d] = max(0, last * strides[d] - room)
        return _Windows(extents, size, strides, spread, ends, more)

    @property
    def rank(self) -> int:
        return len(self.size)

    @property
    def inside(self) -> tuple[int, ...]:
        """The dimensions of a window."""
        return tuple(range(-self.rank, 0))

    @property
    def even(self) -> bool:
        """True if a pool of Tensor's does the same."""
        return all(a == b and 2 * a <= k for (a, b), k in zip(self.ends, self.size, strict=True))

    def read(self, x: Tensor, fill: float) -> Tensor:
        """(N, C, *spatial) as (N, C, *places, *window)."""
        x = padded(x, [(a, b + m) for (a, b), m in zip(self.ends, self.more, strict=True)], fill)
        for d in range(self.rank):
            x = x.window(d + 2, self.size[d], self.strides[d], self.spread[d])
        return x

    def counted(self, with_padding: bool) -> Known:
        """Number of elements of each window that count for an average: (*places)."""
        found: Known = np.ones(())
        for d, ((a, b), extent) in enumerate(zip(self.ends, self.extents, strict=True)):
            span = self.spread[d] * (self.size[d] - 1) + 1
            places = (extent + a + b + self.more[d] - span) // self.strides[d] + 1
            first = np.arange(places)[:, None] * self.strides[d] - a
            taps = first + np.arange(self.size[d]) * self.spread[d]
            low, high = (-a, extent + b) if with_padding else (0, extent)
            found = np.multiply.outer(found, ((taps >= low) & (taps < high)).sum(1))
        return found


def _max_pool(n: NodeView) -> Any:
    x, w = n(0), _Windows.of(n)
    ceil = bool(n.get("ceil_mode", 0))
    if w.even and n.outputs == 1:
        pads = [a for a, _ in w.ends]
        return max_pool(x, w.rank, w.size, w.strides, pads, w.spread, ceil, False)
    lowest = -math.inf if x.dtype.is_float else x.dtype.least
    values = w.read(x, lowest)
    best = values.amax(w.inside)
    if n.outputs == 1:
        return best
    image = math.prod(w.extents)
    late = bool(n.get("storage_order", 0))
    numbers = np.arange(image).reshape(w.extents[::-1] if late else w.extents)
    numbers = numbers.transpose() if late else numbers
    places = w.read(Tensor(numbers).reshape(1, 1, *w.extents), image)
    spread = best.reshape(*best.shape, *(1,) * w.rank)
    here = values.eq(spread).logical_or(values.ne(values))
    found = where(here, places, image).amin(w.inside)
    images = np.arange(x.shape[0] * x.shape[1]) * image
    return best, found + Tensor(images.reshape(*x.shape[:2], *(1,) * w.rank))


def _average(n: NodeView, x: Tensor, counted: bool) -> Tensor:
    w = _Windows.of(n)
    if w.even and all(d == 1 for d in w.spread):
        pads, ceil = [a for a, _ in w.ends], bool(n.get("ceil_mode", 0))
        return avg_pool(x, w.rank, w.size, w.strides, pads, ceil, counted)
    wide = x.cast(x.dtype.compute)
    total = w.read(wide, 0.0).sum(w.inside)
    return (total / Tensor(w.counted(counted), wide.dtype)).cast(x.dtype)


def _average_pool(n: NodeView) -> Tensor:
    return _average(n, n(0), bool(n.get("count_include_pad", 0)))


def _lp_pool(n: NodeView) -> Tensor:
    x, p, w = n(0), n.get("p", 2), _Windows.of(n)
    powers = x.abs() if p == 1 else x.square() if p == 2 else x.abs().pow(p)
    total = w.read(powers, 0.0).sum(w.inside)
    return total if p == 1 else total.sqrt() if p == 2 else total.pow(1.0 / p)


def _max_unpool(n: NodeView) -> Tensor:
    """MaxUnpool: elements back where their maxima stood, zero elsewhere."""
    x, index, size = n(0), n(1), [int(k) for k in n.get("kernel_shape")]
    rank = len(size)
    strides, pads = listed(n, "strides", rank), n.get("pads") or [0] * 2 * rank
    extents = [
        (e - 1) * s + k - pads[d] - pads[rank + d]
        for d, (e, s, k) in enumerate(zip(x.shape[2:], strides, size, strict=True))
    ]
    images, image = x.shape[0] * x.shape[1], math.prod(extents)
    first = Tensor(np.arange(images).reshape(-1, 1) * image)
    flat = Tensor(np.zeros((images, image)), x.dtype)
    places = index.reshape(images, -1) - first
    y = flat.scatter(1, places, x.reshape(images, -1)).reshape(*x.shape[:2], *extents)
    wanted = n.ints(2)
    if wanted is None:
        return y
    return y.pad([(0, b - a) for a, b in zip(y.shape, wanted, strict=True)], "constant", 0.0)


POOLS: dict[str, Callable[[NodeView], Any]] = {
    "AveragePool": _average_pool,
    "GlobalAveragePool": lambda n: n(0).mean(tuple(range(2, n(0).ndim)), True),
    "GlobalLpPool": lambda n: n(0).norm(n.get("p", 2), tuple(range(2, n(0).ndim)), True),
    "GlobalMaxPool": lambda n: n(0).amax(tuple(range(2, n(0).ndim)), True),
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
    "MaxUnpool": _max_unpool,
}
