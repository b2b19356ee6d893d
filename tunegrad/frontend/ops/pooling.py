"""Pooling over one to three spatial dimensions: the largest or the average of windows.

Padding never wins a maximum; an average counts it as zeros, or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tunegrad.errors import ShapeError
from tunegrad.ir import graph
from tunegrad.ir.dtypes import BOOL, I32, I64, DType

from ..handle import Handle, TensorLike, as_if, lift, where
from ..nodes.elementwise import constant
from ..nodes.movement import integer, mirrored_windows
from ..operation import T, of_ranks, operation
from ..vjp import custom_vjp
from .activation import relu
from .arithmetic import div, sign
from .convolution import Ends, Extent, extents_of, windows
from .indexing import gather, scatter
from .movement import join
from .reduction import position_of

Target = int | None | tuple[int | None, ...]


@operation
def global_avg_pool2d(input: Handle) -> Handle:
    """The average of each channel: (N, C, H, W) to (N, C, 1, 1)."""
    if input.ndim != 4:
        raise ShapeError(f"global_avg_pool2d: input {input.shape} must be (N, C, H, W)")
    return input.mean((2, 3), True)


def _batched(input: T, op: str, rank: int) -> T:
    """With a batch dimension.

    Raises ShapeError for too few or too many dimensions.
    """
    if input.ndim == rank + 2:
        return input
    if input.ndim != rank + 1:
        raise ShapeError(f"{op}: input {input.shape} must be {_LETTERS[rank]}")
    return input.unsqueeze(0)


def max_pool(
    input: Handle, rank: int, kernel_size: Extent, stride: Extent | None = None,
    padding: Extent = 0, dilation: Extent = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    """``stride``: the size of the window unless given. ``ceil_mode``: a last window may go over
    the end. ``return_indices``: a pair, with the place of each in its flattened image.
    """
    op = f"max_pool{rank}d"
    x = _batched(input, op, rank)
    ends = _ends(op, x, rank, kernel_size, padding)
    w = Windows(op, x, rank, kernel_size, stride, ends, dilation, ceil_mode)
    found = largest(x, w, return_indices)
    if input.ndim == x.ndim:
        return found
    return tuple(y.squeeze(0) for y in found) if return_indices else found.squeeze(0)


def largest(x: Handle, w: Windows, return_indices: bool) -> Any:
    """The largest of each window, or a pair, with the place of each in its flattened image."""
    values, best = w.with_least(x), _largest(x, w)
    if not return_indices:
        return best
    image = x.shape[2:]
    places = Handle.of(graph.iota((math.prod(image),), 0, I64)).reshape(1, 1, *image)
    spread = best.reshape(*best.shape, *(1,) * len(w.size))
    here = (values == spread) | (values != values)
    if w.padded:
        here = here & w.of(_true(x))
    return best, where(here, w.of(places), math.prod(image)).amin(w.inside)


max_pool1d, max_pool2d, max_pool3d = of_ranks(
    "max_pool", max_pool,
    "The largest element of each window of (N, C, L).",
    "The largest element of each window of (N, C, H, W); padding never wins.",
    "The largest element of each window of (N, C, D, H, W).",
)  # fmt: skip


def max_unpool(
    input: Handle, rank: int, indices: TensorLike, kernel_size: Extent,
    stride: Extent | None = None, padding: Extent = 0, output_size: Sequence[int] | None = None,
) -> Handle:  # fmt: skip
    """``indices``: the places that ``max_pool`` gives; other elements are zero. ``output_size``:
    of the image, where windows do not say it.
    """
    op = f"max_unpool{rank}d"
    x, places = _batched(input, op, rank), _batched(lift(indices, op), op, rank)
    if places.shape != x.shape:
        raise ShapeError(f"{op}: indices of shape {places.shape} for input {x.shape}")
    size = extents_of(op, "size", kernel_size, rank, 1)
    steps = size if stride is None else extents_of(op, "stride", stride, rank, 1)
    pads = extents_of(op, "padding", padding, rank, 0)
    image = tuple(
        (n - 1) * s - 2 * p + k for n, s, p, k in zip(x.shape[2:], steps, pads, size, strict=True)
    )
    if output_size is not None:
        image = tuple(output_size)[-rank:]
        if len(image) < rank:
            raise ShapeError(f"{op}: output_size={tuple(output_size)} must have {rank} sizes")
    rows, flat = (*x.shape[:2], math.prod(x.shape[2:])), (*x.shape[:2], math.prod(image))
    empty = Handle.of(constant(0, flat, x.dtype))
    found = scatter(empty, 2, places.reshape(rows), x.reshape(rows))
    found = found.reshape(*x.shape[:2], *image)
    return found if input.ndim == x.ndim else found.squeeze(0)


max_unpool1d, max_unpool2d, max_unpool3d = of_ranks(
    "max_unpool", max_unpool,
    "The largest elements of windows of (N, C, L) at the places that they had.",
    "The largest elements of windows of (N, C, H, W) at the places that they had.",
    "The largest elements of windows of (N, C, D, H, W) at the places that they had.",
)  # fmt: skip


def _largest_vjp(g: Handle, y: Handle, x: Handle, w: Windows) -> Handle:
    """dx: to the first largest element of each window, added up where windows overlap"""
    taps = math.prod(w.size)
    rows = w.with_least(x).reshape(*y.shape, taps)
    first = position_of(rows, "max", -1, True).reshape(y.shape).cast("i32") + 1
    numbers = (Handle.of(graph.iota((taps,), 0, I32)) + 1).reshape(w.size)
    first, part = w.readers(first.contiguous(), x), w.readers(g, x)
    total = where(first == numbers, part, 0.0).sum(w.inside)
    ends = [(lo, lo + e) for (lo, _), e in zip(w.ends, x.shape[2:], strict=True)]
    return total.shrink([(0, n) for n in x.shape[:2]] + ends)


@custom_vjp(_largest_vjp)
def _overlapping(x: Handle, w: Windows) -> Handle:
    return w.with_least(x).amax(w.inside)


def _largest(x: Handle, w: Windows) -> Handle:
    """The largest of each window, with the gradient of the first place that has it."""
    if not w.apart:
        return _overlapping(x, w)
    values = w.with_least(x)

    def picked() -> Handle:
        taps = values.reshape(*values.shape[: -len(w.size)], math.prod(w.size))
        return _first_largest(taps, -1).squeeze(-1)

    return as_if(values.amax(w.inside), picked)


def avg_pool(
    input: T, rank: int, kernel_size: Extent, stride: Extent | None = None, padding: Extent = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> T:  # fmt: skip
    """Padding is counted as zeros, or not at all; a divisor that is given divides every sum.

    Of integers it is rounded towards zero.
    """
    op, kind = f"avg_pool{rank}d", input.dtype if input.dtype.is_int else input.float_type
    x = _batched(input, op, rank)._as(kind.compute)
    ends = _ends(op, x, rank, kernel_size, padding)
    w = Windows(op, x, rank, kernel_size, stride, ends, 1, ceil_mode)
    if divisor_override is not None and integer(op, "divisor_override", divisor_override) == 0:
        raise ShapeError(f"{op}: divisor_override is 0")
    total, count = averaged(x, w, count_include_pad)
    count = count if divisor_override is None else divisor_override
    result = div(total, count, rounding_mode="trunc" if kind.is_int else None)
    return (result if input.ndim == x.ndim else result.squeeze(0))._as(kind)


def averaged(x: T, w: Windows, count_include_pad: bool) -> tuple[T, TensorLike]:
    """The sums of windows, and the numbers of elements that count in them."""
    total = w.of(x).sum(w.inside)
    if not w.padded or (count_include_pad and not w.beyond):
        return total, math.prod(w.size)
    return total, w.counted(x, count_include_pad).cast(x.dtype).sum(w.inside)


avg_pool1d, avg_pool2d, avg_pool3d = of_ranks(
    "avg_pool", avg_pool,
    "The average of each window of (N, C, L).",
    "The average of each window of (N, C, H, W), padding counted as zeros or not at all; or its "
    "sum over ``divisor_override``.",
    "The average of each window of (N, C, D, H, W).",
)  # fmt: skip


def _norms(
    input: Handle, rank: int, norm_type: float, kernel_size: Extent,
    stride: Extent | None = None, ceil_mode: bool = False,
) -> Handle:  # fmt: skip
    """Of floats the sign of a sum of odd powers counts, as in PyTorch."""
    x, p = input._wide(), norm_type
    powers = x * x if p == 2 else x**p
    sums = avg_pool(powers, rank, kernel_size, stride, 0, ceil_mode, True, 1)
    positive = sign(sums) * relu(sums.abs())
    return (positive.sqrt() if p == 2 else positive ** (1 / p))._as(input.float_type)


lp_pool1d, lp_pool2d = of_ranks(
    "lp_pool", _norms,
    "The p-norm of each window of (N, C, L).", "The p-norm of each window of (N, C, H, W).",
)  # fmt: skip


def adaptive(input: Handle, kind: str, rank: int, output_size: Target) -> Handle:
    """``kind`` ("avg" or "max") of windows that cover ``rank`` spatial dimensions."""
    op = f"adaptive_{kind}_pool{rank}d"
    x = _batched(input, op, rank)
    wanted = output_size if isinstance(output_size, tuple | list) else (output_size,) * rank
    if len(wanted) != rank:
        raise ShapeError(f"{op}: output_size {output_size!r} must be {rank} numbers")
    extents = x.shape[2:]
    out = [
        e if o is None else integer(op, "output_size", o, 1)
        for e, o in zip(extents, wanted, strict=True)
    ]
    if 0 in extents:
        raise ShapeError(f"{op}: input {x.shape} has no elements to pool")
    if all(e % o == 0 for e, o in zip(extents, out, strict=True)):
        size = tuple(e // o for e, o in zip(extents, out, strict=True))
        y = (
            avg_pool(x._wide(), rank, size, None, 0, False, True, None)._as(input.float_type)
            if kind == "avg"
            else max_pool(x, rank, size, None, 0, 1, False, False)
        )
    else:
        y = x._wide() if kind == "avg" else x
        for i, (e, o) in enumerate(zip(extents, out, strict=True)):
            y = _uneven(y, kind, i + 2, e, o)
        y = y._as(input.float_type) if kind == "avg" else y
    return y if input.ndim == x.ndim else y.squeeze(0)


def _adaptive_avg(input: Handle, rank: int, output_size: Target) -> Handle:
    """None keeps an extent. Windows differ by one where the extent is no multiple."""
    return adaptive(input, "avg", rank, output_size)


def _adaptive_max(input: Handle, rank: int, output_size: Target) -> Handle:
    """None keeps an extent. Windows differ by one where the extent is no multiple."""
    return adaptive(input, "max", rank, output_size)


adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = of_ranks(
    "adaptive_avg_pool", _adaptive_avg,
    "Averages of ``output_size`` windows that cover (N, C, L).",
    "Averages of windows that cover (N, C, H, W), so many along each dimension.",
    "Averages of windows that cover (N, C, D, H, W).",
)  # fmt: skip
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = of_ranks(
    "adaptive_max_pool", _adaptive_max,
    "The largest of ``output_size`` windows that cover (N, C, L).",
    "The largest of windows that cover (N, C, H, W).",
    "The largest of windows that cover (N, C, D, H, W).",
)  # fmt: skip

_LETTERS = {1: "(N, C, L)", 2: "(N, C, H, W)", 3: "(N, C, D, H, W)"}


def _uneven(x: Handle, kind: str, at: int, extent: int, out: int) -> Handle:
    """Windows from floor(i * extent / out) to ceil((i + 1) * extent / out) of one dimension."""
    parts = []
    for i in range(out):
        begin, end = i * extent // out, -(-(i + 1) * extent // out)
        part = x.narrow(at, begin, end - begin)
        parts.append(part.mean(at, True) if kind == "avg" else _picked(part, at))
    return join("adaptive pool", parts, at)


def _true(x: Handle) -> Handle:
    return Handle.of(graph.full(True, x.shape, BOOL))


def _lowest(dtype: DType) -> float | int | bool:
    if dtype.is_float:
        return -math.inf
    return False if dtype.is_bool else int(np.iinfo(dtype.numpy.name).min)


def overhang(extent: int, size: int, stride: int, dilation: int, ends: tuple[int, int]) -> int:
    """Elements that the last window needs beyond the padding, where it may go over the end."""
    room = extent + sum(ends) - dilation * (size - 1) - 1
    last = -(-room // stride)
    if last * stride >= extent + ends[0]:  # it would begin beyond the input
        last -= 1
    return max(0, last * stride - room)


class Windows:
    """Windows of a pooling: of any tensor whose spatial dimensions are the input's.

    ``pads``: before and after each of these. With ``ceil_mode`` a last window may go over the end:
    ``more`` elements beyond the padding.
    """

    def __init__(
        self, op: str, x: Handle, rank: int, size: Extent, stride: Extent | None, pads: Ends,
        dilation: Extent, ceil_mode: bool,
    ) -> None:  # fmt: skip
        self.op = op
        self.size = extents_of(op, "size", size, rank, 1)
        step = self.size if stride in (None, (), []) else stride  # PyTorch's empty list, too
        self.stride = extents_of(op, "stride", step, rank, 1)
        self.dilation = extents_of(op, "dilation", dilation, rank, 1)
        self.pads = pads
        both = zip(x.shape[2:], self.size, self.stride, self.dilation, self.pads, strict=True)
        self.more = tuple(overhang(*axis) if ceil_mode else 0 for axis in both)

    @property
    def inside(self) -> tuple[int, ...]:
        """The dimensions of a window, which come last."""
        return tuple(range(-len(self.size), 0))

    @property
    def beyond(self) -> bool:
        return any(self.more)

    @property
    def padded(self) -> bool:
        return self.beyond or any(map(any, self.pads))

    @property
    def ends(self) -> Ends:
        return tuple((a, b + m) for (a, b), m in zip(self.pads, self.more, strict=True))

    def of(self, x: T) -> T:
        """The windows of ``x``; zero in the padding."""
        return windows(self.op, x, self.size, self.stride, self.dilation, self.ends)

    def with_least(self, x: Handle) -> Handle:
        """The windows of ``x``; the least number in the padding."""
        values = self.of(x)
        return where(self.of(_true(x)), values, _lowest(x.dtype)) if self.padded else values

    @property
    def apart(self) -> bool:
        """True where no two windows share an element."""
        steps = zip(self.stride, self.dilation, self.size, strict=True)
        return all(s >= d * (k - 1) + 1 for s, d, k in steps)

    def readers(self, y: Handle, x: Handle) -> Handle:
        """Elements of windows (N, C, places) by places read: (N, C, padded places of x, taps)."""
        node = y.node
        for i, (lo, hi) in enumerate(self.ends):
            extent = lo + x.shape[i + 2] + hi
            how = self.size[i], self.stride[i], self.dilation[i], extent
            node = mirrored_windows(node, i + 2, *how)
        return y._with(node)

    def counted(self, x: Handle, with_padding: bool) -> Handle:
        """Mask of the elements of the windows that count for an average."""
        if not with_padding:
            return self.of(_true(x))
        room = (e + a + b for e, (a, b) in zip(x.shape[2:], self.pads, strict=True))
        wide = Handle.of(graph.full(True, (*x.shape[:2], *room), BOOL))
        ends = tuple((0, m) for m in self.more)
        return windows(self.op, wide, self.size, self.stride, self.dilation, ends)


def _ends(op: str, x: Handle, rank: int, kernel_size: Extent, padding: Extent) -> Ends:
    """Padding as PyTorch's, as much before a dimension as after it."""
    size = extents_of(op, "size", kernel_size, rank, 1)
    pads = extents_of(op, "padding", padding, rank, 0)
    if any(2 * p > k for p, k in zip(pads, size, strict=True)):
        raise ShapeError(
            f"{op}: padding {pads} is more than half of window {size} on input {x.shape}"
        )
    return tuple((p, p) for p in pads)


def _picked(part: Handle, at: int) -> Handle:
    """The largest along a dimension, with the gradient of the first place that has it."""
    return as_if(part.amax(at, True), lambda: _first_largest(part, at))


def _first_largest(x: Handle, at: int) -> Handle:
    return gather(x, at, position_of(x, "max", at, True))
