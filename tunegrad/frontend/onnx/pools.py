"""Pools, and what undoes them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..functions import where
from ..ops.pooling import avg_pool, max_pool
from ..tensor import Tensor
from .convolutions import ends_of, listed, padded
from .node import Known, NodeView

__all__ = ["POOLS"]


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
