"""Convolutions and pools, which look through windows, and what undoes them; images in other sizes,
and read at places that are computed: grids, regions, bent windows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

import numpy as np

from tunegrad.ir.dtypes import DType

from ..functions import where
from ..ops.convolution import convolve, convolve_transposed
from ..ops.pooling import Windows, averaged, largest
from ..ops.resizing import cubic, grid_places, read_at, sampled
from ..tensor import Tensor
from .node import FOLDED_BYTES, Known, NodeView

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


def _rank(n: NodeView, w: Tensor) -> int:
    """Dimensions of windows. Raises ModelError where weights have others than the node says."""
    if (said := n.get("kernel_shape")) and tuple(said) != w.shape[2:]:
        raise n.error(f"kernel_shape {list(said)}, and weights of shape {w.shape}")
    return w.ndim - 2


def convolution(n: NodeView) -> Tensor:
    """Conv: (N, C, *spatial) with weights (O, C / groups, *window)."""
    x, w, bias = n(0), n(1), n.tensor(2)
    rank = _rank(n, w)
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
    rank = _rank(n, w)
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
    """Col2Im: columns added up to images, a transposed convolution with weights of 1."""
    x, image, block = n(0), n.ints(1), n.ints(2)
    kind, x = x.dtype, x.cast("i32") if x.dtype.is_bool else x  # of truths the sum is any of them
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
    return y.reshape(x.shape[0], channels, *image).cast(kind)


CONVOLUTIONS: dict[str, Callable[[NodeView], Any]] = {
    "Col2Im": _col2im,
    "Conv": convolution,
    "ConvTranspose": _conv_transpose,
}


def _windows(n: NodeView, x: Tensor) -> Windows:
    size = [int(k) for k in n.get("kernel_shape")]
    strides, spread = listed(n, "strides", len(size)), listed(n, "dilations", len(size))
    ends = tuple(ends_of(n, x.shape[2:], size))
    return Windows(n.op, x, len(size), size, strides, ends, spread, bool(n.get("ceil_mode", 0)))


def _max_pool(n: NodeView) -> Any:
    x = n(0)
    w, image = _windows(n, x), math.prod(x.shape[2:])
    found = largest(x, w, n.outputs > 1)
    if n.outputs == 1:
        return found
    best, places = found
    if n.get("storage_order", 0):
        numbers = np.arange(image).reshape(x.shape[:1:-1]).transpose()
        places = Tensor(np.ascontiguousarray(numbers)).take(places, mode="known")
    images = np.arange(x.shape[0] * x.shape[1]) * image
    return best, places + Tensor(images.reshape(*x.shape[:2], *(1,) * len(w.size)))


def _average_pool(n: NodeView) -> Tensor:
    wide = n(0).cast(n(0).dtype.compute)
    total, count = averaged(wide, _windows(n, wide), bool(n.get("count_include_pad", 0)))
    return (total / count).cast(n(0).dtype)


def _lp_pool(n: NodeView) -> Tensor:
    x, p = n(0), n.get("p", 2)
    w = _windows(n, x)
    powers = x.abs() if p == 1 else x.square() if p == 2 else x.abs().pow(p)
    total = w.of(powers).sum(w.inside)
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
    whole = x.dtype
    x = _between(x) if mode != "nearest" else x  # integers are rounded once, after all axes
    first = n.op == "Upsample" or n.opset < 11
    how = "asymmetric" if first else n.get("coordinate_transformation_mode", "half_pixel")
    outside = list[Known]()
    for axis in _axes(n, first):
        same = axis.old == axis.new and axis.factor == 1.0 and (axis.start, axis.end) == (0.0, 1.0)
        if same:
            continue
        places = _places(n, axis, how, np.float32 if mode == "nearest" else np.float64)
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
    x = _held(x, whole)
    if not outside or not any(o.any() for o in outside):
        return x
    beyond = reduce(np.logical_or, outside)
    return where(Tensor(beyond), n.get("extrapolation_value", 0.0), x).cast(x.dtype)


def _between(x: Tensor) -> Tensor:
    """Integers as the floats that are computed between them; others as they are."""
    return x.cast("f64" if x.dtype.bits == 64 else "f32") if x.dtype.is_int else x


def _held(x: Tensor, kind: DType) -> Tensor:
    """In a type: floats that are to be integers are rounded and kept within it."""
    if kind.is_int and x.dtype.is_float:
        x = x.round().clamp(float(kind.least), float(kind.greatest))
    return x.cast(kind)


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


def _places(n: NodeView, axis: _Axis, how: str, kind: type[np.floating[Any]]) -> Known:
    """Positions in the input at which the elements of the result lie.

    Where one element is taken they are f32, as ONNX Runtime's: 0.5 / 0.4 - 0.5 + 0.25 is 1 so.
    """
    if 8 * axis.new > FOLDED_BYTES:
        raise n.error(f"places of {axis.new} elements along axis {axis.at} take over 1 GiB")
    i: Known = np.arange(axis.new, dtype=kind)
    old, factor = axis.old, axis.factor  # Python's numbers take the array's type
    last = old * factor - 1
    if how == "asymmetric":
        return i / factor
    if how == "align_corners":
        return i * (old - 1) / last if last else i * 0
    if how == _CROP:
        part = axis.end - axis.start
        inside = i * part * (old - 1) / last if last else i * 0 + part * (old - 1) / 2
        return axis.start * (old - 1) + inside
    if how == "pytorch_half_pixel" and axis.new == 1:
        return i * 0
    if how == "tf_half_pixel_for_nn":
        return (i + 0.5) / factor
    at = (i + 0.5) / factor - 0.5
    if how == "half_pixel_symmetric":
        at = at + old / 2 * (1 - axis.new / (old * factor))
    return at


def _weights(n: NodeView, axis: _Axis, places: Known, mode: str) -> Known:
    """Weights of the elements of the input in each one of the result: (new, old).

    Linear, or cubic (Keys 1981); stretched over what one element stands for where ``antialias``
    is on and the result is smaller.
    """
    reach = 2 if mode == "cubic" else 1
    stretch = min(1.0, axis.factor) if n.get("antialias", 0) else 1.0
    width, low = math.ceil(reach / stretch), np.floor(places).astype(np.int64)
    found = np.zeros((axis.new, axis.old))
    for tap in range(1 - width, width + 1):
        d = np.abs(places - (low + tap)) * stretch
        w = np.maximum(0, 1 - d)
        if mode == "cubic":
            w = cubic(d, n.get("cubic_coeff_a", -0.75))
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
    return found.cast(x.dtype).movedim(-1, axis)


RESIZING: dict[str, Callable[[NodeView], Any]] = {"Resize": _resize, "Upsample": _resize}


def _grid_sample(n: NodeView) -> Tensor:
    """GridSample over any number of dimensions; the grid names the last one first. Integers between
    elements are rounded, as Resize's.
    """
    x, grid = n(0), n(1).cast("f32")
    mode, padding = n.get("mode", "linear"), n.get("padding_mode", "zeros")
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    corners = bool(n.get("align_corners", 0))
    places = grid_places(grid, x.shape[2:], corners)
    if mode == "nearest":  # before they are padded, by the standard; PyTorch does it afterwards
        places = [p.round() for p in places]
    wide = x if mode == "nearest" else _between(x.cast(x.dtype.compute))
    return _held(sampled(wide, places, mode, padding, corners), x.dtype)


def _affine_grid(n: NodeView) -> Tensor:
    """AffineGrid: places of pixels under a matrix of each image. ONNX's definition divides by zero
    for one pixel with corners; it is the centre here, as in PyTorch.
    """
    theta, size, corners = n(0), n.ints(1), bool(n.get("align_corners", 0))
    if size is None or len(size) not in (4, 5):
        raise n.error("size must be known, (N, C, H, W) or (N, C, D, H, W)")
    lines = []
    for e in size[2:]:
        line = np.linspace(-1, 1, e) if corners and e > 1 else (2 * np.arange(e) + 1) / e - 1
        lines.append(line)
    mesh = np.meshgrid(*lines, indexing="ij")
    grid = np.stack([*mesh[::-1], np.ones(size[2:])], -1).reshape(-1, len(size) - 1)
    places = Tensor(grid, theta.dtype) @ theta.mT
    return places.reshape(size[0], *size[2:], len(size) - 2)


def _roi_align(n: NodeView) -> Tensor:
    """RoiAlign: regions of images as images of one size (He et al. 2017)."""
    x, regions, images = n(0), n(1), n(2)
    half = n.opset >= 16 and n.get("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    scaled = regions * float(n.get("spatial_scale", 1.0)) - (0.5 if half else 0.0)
    places, inside, reads, counts = [], [], [], []
    for d, name in enumerate(("output_height", "output_width")):
        start, length = scaled[:, 1 - d], scaled[:, 3 - d] - scaled[:, 1 - d]
        length = length if half else length.clamp(1.0)
        bins = int(n.get(name, 1))
        count = _reads(n, length, bins)
        at, number = _bins(start, length, bins, count), int(count.max(initial=1))
        within = (at >= -1.0).logical_and(at <= float(x.shape[2 + d]))
        line = [-1, bins, number, 1, 1] if d == 0 else [-1, 1, 1, bins, number]
        inside.append(within.reshape(line))
        places.append(at.clamp(0.0, float(x.shape[2 + d] - 1)).reshape(line))
        taps = np.arange(number) < count.reshape(-1, 1)
        reads.append(taps.reshape(-1, *((1, number, 1, 1) if d == 0 else (1, 1, 1, number))))
        counts.append(count)
    shape = np.broadcast_shapes(*(p.shape for p in places))
    parts = _corners(x.index_select(0, images), [p.broadcast_to(shape) for p in places])
    held = inside[0].logical_and(inside[1]).unsqueeze(1)
    used = Tensor(np.logical_and(*reads)).unsqueeze(1)
    several = (counts[0] * counts[1]).reshape(-1, 1, 1, 1)
    if n.get("mode", "avg") == "max":
        greatest = parts[0].maximum(parts[1]).maximum(parts[2].maximum(parts[3]))
        greatest = where(used, where(held, greatest, 0.0), -math.inf).amax((3, 5))
        return where(Tensor(several > 0), greatest, 0.0).cast(x.dtype)
    read = held.logical_and(used)
    total = where(read, parts[0] + parts[1] + parts[2] + parts[3], 0.0).sum((3, 5))
    return (total / Tensor(np.maximum(several, 1), total.dtype)).cast(x.dtype)


def _reads(n: NodeView, length: Tensor, bins: int) -> np.ndarray[Any, Any]:
    """Number of reads of each bin of each region in one dimension."""
    ratio = n.get("sampling_ratio", 0)
    if ratio > 0:
        return np.full(length.shape, ratio)
    if n.known(1) is None:
        raise n.error("there are no regions")
    return np.ceil(np.asarray(length.numpy()) / bins).astype(np.int64).clip(0)


def _bins(start: Tensor, length: Tensor, bins: int, count: np.ndarray[Any, Any]) -> Tensor:
    """Positions at which bins of regions are read: (regions, bins, reads)."""
    size = (length / bins).reshape(-1, 1, 1)
    number = np.arange(int(count.max(initial=1)))
    parts = (number + 0.5) / np.maximum(count, 1).reshape(-1, 1, 1)
    steps = parts + np.arange(bins).reshape(1, -1, 1)
    return start.reshape(-1, 1, 1) + size * Tensor(steps, start.dtype)


def _corners(x: Tensor, places: Sequence[Tensor]) -> list[Tensor]:
    """Shares of the four pixels around places in a bilinear read."""
    floors = [p.floor() for p in places]
    found = []
    for chosen in product((0, 1), repeat=2):
        at = [low + float(tap) for low, tap in zip(floors, chosen, strict=True)]
        shares = [
            p - low if tap else 1 - (p - low)
            for p, low, tap in zip(places, floors, chosen, strict=True)
        ]
        found.append(read_at(x, at) * (shares[0] * shares[1]).unsqueeze(1))
    return found


def _deform_conv(n: NodeView) -> Tensor:
    """DeformConv: a convolution whose windows read at places of their own (Zhu et al. 2019)."""
    x, w, bend, bias, mask = n(0), n(1), n(2), n.tensor(3), n.tensor(4)
    if _rank(n, w) != 2:
        raise n.error(f"of {x.ndim - 2} dimensions is not supported; of two")
    (batch, channels), (kh, kw), (rows, columns) = x.shape[:2], w.shape[2:], bend.shape[2:]
    groups, parts = n.get("group", 1), n.get("offset_group", 1)
    strides, spread = n.get("strides") or [1, 1], n.get("dilations") or [1, 1]
    pads = n.get("pads") or [0] * 4
    bends = bend.reshape(batch * parts, kh * kw, 2, rows, columns)
    places = []
    for d, (size, extent) in enumerate(((kh, rows), (kw, columns))):
        tap = np.arange(kh * kw) // kw if d == 0 else np.arange(kh * kw) % size
        line = np.arange(extent) * strides[d] - pads[d]
        first = (tap * spread[d]).reshape(-1, 1, 1)
        grid = first + (line.reshape(-1, 1) if d == 0 else line.reshape(1, -1))
        places.append(bends[:, :, d] + Tensor(grid, bend.dtype))
    images = x.reshape(batch * parts, channels // parts, *x.shape[2:])
    read = sampled(images, places, "bilinear", "zeros", True)
    if mask is not None:
        read = read * mask.reshape(batch * parts, 1, kh * kw, rows, columns)
    taken = read.reshape(batch, groups, channels // groups * kh * kw, rows * columns)
    weight = w.reshape(groups, w.shape[0] // groups, -1)
    y = (weight @ taken).reshape(batch, w.shape[0], rows, columns)
    return (y if bias is None else y + bias.reshape(-1, 1, 1)).cast(x.dtype)


SAMPLING: dict[str, Callable[[NodeView], Any]] = {
    "AffineGrid": _affine_grid,
    "DeformConv": _deform_conv,
    "GridSample": _grid_sample,
    "RoiAlign": _roi_align,
}
