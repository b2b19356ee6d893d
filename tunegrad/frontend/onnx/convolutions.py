"""Convolutions and pools: operators that look through windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ops.convolution import convolve, convolve_transposed
from ..tensor import Tensor
from .node import NodeView

__all__ = ["CONVOLUTIONS", "convolution", "ends_of", "listed", "padded"]

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
