"""Convolutions of one to three spatial dimensions, transposed ones, and windows as columns.

A convolution is pad, a window for each spatial dimension, multiply, and one sum over (channel,
window) in this order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from tunegrad.errors import DTypeError, ShapeError
from tunegrad.ir import graph
from tunegrad.ir.dtypes import promote
from tunegrad.ir.expr import Op

from ..handle import Handle, TensorLike, lift, optional
from ..nodes.arrays import DTypeLike
from ..nodes.folds import accumulator
from ..nodes.movement import integer
from ..operation import T, of_ranks, operation
from .indexing import item
from .movement import flatten, pad, transpose

Extent = int | Sequence[int]
Sides = Extent | Literal["same", "valid"]
Ends = tuple[tuple[int, int], ...]


def convolve(
    input: T, rank: int, weight: TensorLike, bias: TensorLike | None = None, stride: Extent = 1,
    padding: Sides = 0, dilation: Extent = 1, groups: int = 1,
    accumulate: DTypeLike | None = None,
) -> T:  # fmt: skip
    """The bias is added in the accumulator's dtype.

    Raises:
        ShapeError: shapes, strides or groups do not fit.
        DTypeError: bools, or ``accumulate`` can not add up the products.
    """
    op = f"conv{rank}d"
    w, b = lift(weight, op), optional(bias, op)
    if input.ndim == rank + 1 and w.ndim == rank + 2:
        batched = input.unsqueeze(0)
        return convolve(batched, rank, w, b, stride, padding, dilation, groups, accumulate).squeeze(
            0
        )
    _check(op, rank, input, w, b, groups)
    size = w.shape[2:]
    strides = extents_of(op, "stride", stride, rank, 1)
    spread = extents_of(op, "dilation", dilation, rank, 1)
    ends = _ends(op, padding, size, strides, spread)
    kind = promote(input.dtype, w.dtype)
    acc = accumulator(op, kind, accumulate)
    w, ends = _met(input, w, strides, spread, ends)
    size = w.shape[2:]
    y = windows(op, input.cast(acc), size, strides, spread, ends)
    result = _contracted(y, w.cast(acc), rank, groups).cast(acc)
    if b is not None:
        result = result + b.cast(acc).reshape(-1, *(1,) * rank)
    return result.cast(kind if kind.is_float else acc)


conv1d, conv2d, conv3d = of_ranks(
    "conv", convolve,
    "(N, C, L) with weight (O, C / groups, K).",
    "(N, C, H, W) with weight (O, C / groups, KH, KW).",
    "(N, C, D, H, W) with weight (O, C / groups, KD, KH, KW).",
)  # fmt: skip


def convolve_transposed(
    input: T, rank: int, weight: TensorLike, bias: TensorLike | None = None, stride: Extent = 1,
    padding: Extent = 0, output_padding: Extent = 0, groups: int = 1, dilation: Extent = 1,
) -> T:  # fmt: skip
    """A convolution of the input with zeros between its elements, and the mirrored weight; without
    these zeros, where there are several outputs to an element.
    """
    op = f"conv_transpose{rank}d"
    w, b = lift(weight, op), optional(bias, op)
    if input.ndim == rank + 1 and w.ndim == rank + 2:
        batched = input.unsqueeze(0)
        return convolve_transposed(
            batched, rank, w, b, stride, padding, output_padding, groups, dilation
        ).squeeze(0)
    if input.ndim != rank + 2 or w.ndim != rank + 2 or input.shape[1] != w.shape[0]:
        raise ShapeError(
            f"{op}: input {input.shape} and weight {w.shape} must be (N, C, "
            f"{_LETTERS[rank][0]}) and (C, O / groups, {_LETTERS[rank][1]})"
        )
    if w.shape[0] % integer(op, "groups", groups, 1):
        raise ShapeError(
            f"{op}: groups={groups} does not divide the channels of input {input.shape} and "
            f"weight {w.shape}"
        )
    strides = extents_of(op, "stride", stride, rank, 1)
    spread = extents_of(op, "dilation", dilation, rank, 1)
    pads = extents_of(op, "padding", padding, rank, 0)
    more = extents_of(op, "output_padding", output_padding, rank, 0)
    ends = []
    for k, d, p, m, s in zip(w.shape[2:], spread, pads, more, strides, strict=True):
        if m >= max(s, d):
            raise ShapeError(
                f"{op}: output_padding {more} must be smaller than stride {strides} or "
                f"dilation {spread}"
            )
        ends.append((d * (k - 1) - p, d * (k - 1) - p + m))
    rest = [-k % s for k, s in zip(w.shape[2:], strides, strict=True)]
    reached = all(m <= p + r for m, p, r in zip(more, pads, rest, strict=True))
    if math.prod(strides) > 1 and set(spread) == {1} and reached:
        w = pad(w, [n for r in reversed(rest) for n in (0, r)]) if any(rest) else w
        y = _stepped(input, rank, w, b, strides, groups)
        cuts = [(p, p + r - m) for p, r, m in zip(pads, rest, more, strict=True)]
        if not any(map(any, cuts)):
            return y
        y = y.contiguous()  # the border is cut off what lies in memory
        ends = [(lo, n - hi) for (lo, hi), n in zip(cuts, y.shape[2:], strict=True)]
        return y.shrink([(0, n) for n in y.shape[:2]] + ends)
    flat = [n for pair in reversed(ends) for n in pair]
    x = _with_zeros_between(input, strides)
    kernel = _mirrored(w, groups)
    return convolve(pad(x, flat), rank, kernel, b, 1, 0, spread, groups)


conv_transpose1d, conv_transpose2d, conv_transpose3d = of_ranks(
    "conv_transpose", convolve_transposed,
    "(N, C, L) with weight (C, O / groups, K).",
    "(N, C, H, W) with weight (C, O / groups, KH, KW): each element adds the weight by its value, "
    "at places ``stride`` apart.",
    "(N, C, D, H, W) with weight (C, O / groups, KD, KH, KW).",
)  # fmt: skip


def _stepped(
    input: T, rank: int, w: Handle, b: Handle | None, strides: tuple[int, ...], groups: int
) -> T:
    """A transposed convolution whose window is a multiple of its stride, without padding: the
    ``stride`` outputs between two elements are channels of one convolution, without a tap on a
    zero in between (Shi et al., "Is the deconvolution layer the same as a convolutional
    layer?", 2016).

        y[s*i + r] = sum over t of x[i - t] * w[r + s*t]
    """
    channels, part, *size = w.shape
    taps = [k // s for k, s in zip(size, strides, strict=True)]
    split = [n for pair in zip(taps, strides, strict=True) for n in pair]
    inside = range(3, 3 + 2 * rank, 2)  # of (C, O / groups, t, r, t, r, ...): the r
    phased = w.reshape(channels, part, *split).permute(0, 1, *inside, *(a - 1 for a in inside))
    steps = math.prod(strides)
    phased = phased.reshape(channels, part * steps, *taps)
    kernel = _mirrored(phased, groups)
    ends = [n for t in reversed(taps) for n in (t - 1, t - 1)]
    bias = None if b is None else flatten(b.unsqueeze(1).expand(-1, steps))
    y = convolve(pad(input, ends), rank, kernel, bias, 1, 0, 1, groups)
    n, places = y.shape[0], y.shape[2:]
    y = y.reshape(n, groups * part, *strides, *places)
    order = [a for i in range(rank) for a in (2 + rank + i, 2 + i)]
    y = y.permute(0, 1, *order)
    return y.reshape(n, groups * part, *(p * s for p, s in zip(places, strides, strict=True)))


@operation
def unfold_columns(
    input: Handle,
    kernel_size: Extent,
    dilation: Extent = 1,
    padding: Extent = 0,
    stride: Extent = 1,
) -> Handle:
    """Windows of images as columns: (N, C, H, W) gives (N, C * KH * KW, places)."""
    op = "unfold"
    if input.ndim != 4:
        raise ShapeError(f"{op}: input {input.shape} must be (N, C, H, W)")
    size = extents_of(op, "kernel_size", kernel_size, 2, 1)
    pads = extents_of(op, "padding", padding, 2, 0)
    y = windows(
        op, input, size, extents_of(op, "stride", stride, 2, 1),
        extents_of(op, "dilation", dilation, 2, 1), tuple((p, p) for p in pads),
    )  # fmt: skip
    n, c, rows, columns = y.shape[:4]
    return y.permute(0, 1, 4, 5, 2, 3).reshape(n, c * math.prod(size), rows * columns)


@operation
def fold_columns(
    input: Handle, output_size: Extent, kernel_size: Extent, dilation: Extent = 1,
    padding: Extent = 0, stride: Extent = 1,
) -> Handle:  # fmt: skip
    """Columns added up to images, where windows overlap: the transpose of ``unfold``."""
    op = "fold"
    size = extents_of(op, "kernel_size", kernel_size, 2, 1)
    out = extents_of(op, "output_size", output_size, 2, 1)
    pads = extents_of(op, "padding", padding, 2, 0)
    strides = extents_of(op, "stride", stride, 2, 1)
    spread = extents_of(op, "dilation", dilation, 2, 1)
    places = [
        (o + 2 * p - d * (k - 1) - 1) // s + 1
        for o, p, d, k, s in zip(out, pads, spread, size, strides, strict=True)
    ]
    taps = math.prod(size)
    if input.ndim != 3 or input.shape[1] % taps or input.shape[2] != math.prod(places):
        raise ShapeError(
            f"{op}: input {input.shape} must be (N, C * {taps}, {math.prod(places)}) for output "
            f"{out} and window {size}"
        )
    n, channels = input.shape[0], input.shape[1] // taps
    x = input.reshape(n, channels, *size, *places)
    total: Handle | None = None
    for i in range(size[0]):
        for j in range(size[1]):
            tap = _with_zeros_between(item(x, (slice(None), slice(None), i, j)), strides)
            at = (i * spread[0], j * spread[1])
            ends = [
                (a - p, o + 2 * p - a - e - p)
                for a, p, o, e in zip(at, pads, out, tap.shape[2:], strict=True)
            ]
            placed = pad(tap, [e for pair in reversed(ends) for e in pair])
            total = placed if total is None else total + placed
    assert total is not None
    return total


_LETTERS = {1: ("L", "K"), 2: ("H, W", "KH, KW"), 3: ("D, H, W", "KD, KH, KW")}


_WORDS = {1: "one integer", 2: "one integer or a pair", 3: "one integer or three"}


def extents_of(op: str, what: str, value: Extent, rank: int, least: int) -> tuple[int, ...]:
    """A number, or one for each of ``rank`` dimensions, each at least ``least``."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) not in (1, rank):
            raise ShapeError(f"{op}: {what} {value!r} must be {_WORDS[rank]}")
        numbers = tuple(integer(op, what, v, least) for v in value)
        return numbers if len(numbers) == rank else numbers * rank
    return (integer(op, what, value, least),) * rank


def windows(
    op: str, x: T, size: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...],
    ends: Ends,
) -> T:  # fmt: skip
    """(N, C, spatial) padded with zeros, as (N, C, places, place in the window)."""
    y = pad(x, ((0, 0), (0, 0), *ends))
    for i in range(len(size)):
        span = dilation[i] * (size[i] - 1) + 1
        if y.shape[i + 2] < span:
            raise ShapeError(
                f"{op}: window {size} with dilation {dilation} spans {span} elements of axis "
                f"{i + 2}, input {x.shape} padded has {y.shape[i + 2]}"
            )
        y = y.window(i + 2, size[i], stride[i], dilation[i])
    return y


def _ends(
    op: str, padding: Sides, size: tuple[int, ...], stride: tuple[int, ...],
    dilation: tuple[int, ...],
) -> Ends:  # fmt: skip
    """Zeros before and after each spatial dimension; "same" keeps the extent, the odd one after."""
    rank = len(size)
    if padding == "valid":
        return ((0, 0),) * rank
    if padding == "same":
        if any(s != 1 for s in stride):
            raise ShapeError(f"{op}: padding='same' needs stride 1, not {stride}")
        both = [d * (k - 1) for k, d in zip(size, dilation, strict=True)]
        return tuple((n // 2, n - n // 2) for n in both)
    if isinstance(padding, str):
        raise ShapeError(f"{op}: padding={padding!r} is not a number, a pair, 'same' or 'valid'")
    return tuple((p, p) for p in extents_of(op, "padding", padding, rank, 0))


def _met(
    x: Handle, w: Handle, stride: tuple[int, ...], dilation: tuple[int, ...], ends: Ends
) -> tuple[Handle, Ends]:
    """The taps of a weight that meet an image at some place, and the padding that is left: those at
    either end of a window that is larger than a small image read zeros everywhere.

        1x1 image, 3x3 window, padding 1    -->    the tap in the middle, padding 0
    """
    taps, left = [], []
    for n, k, s, d, (lo, hi) in zip(x.shape[2:], w.shape[2:], stride, dilation, ends, strict=True):
        count = (n + lo + hi - d * (k - 1) - 1) // s + 1
        firsts = [max(0, -((j * d - lo) // s)) for j in range(k)]  # places at or after the image
        met = [j for j, o in enumerate(firsts) if o < count and o * s + j * d - lo < n]
        first, end = (met[0], met[-1] + 1) if met else (0, k)
        rest = lo - first * d, hi - (k - end) * d
        if min(rest) < 0 or n == 0:
            (first, end), rest = (0, k), (lo, hi)
        taps.append((first, end))
        left.append(rest)
    if all(t == (0, k) for t, k in zip(taps, w.shape[2:], strict=True)):
        return w, ends
    return w.shrink([(0, e) for e in w.shape[:2]] + taps), tuple(left)


def _contracted(y: T, w: Handle, rank: int, groups: int) -> T:
    """Windows (N, C, places, taps) with weights (O, C / groups, taps), added up."""
    n, channels = y.shape[:2]
    places, size = y.shape[2 : 2 + rank], y.shape[2 + rank :]
    out, part = w.shape[:2]
    taps = (part, *size)
    ones = (1,) * rank
    at = range(2, 2 + rank)
    inside = range(2 + rank, 2 + 2 * rank)
    if groups == 1:  # (N, 1, y, x, c, kh, kw) * (O, 1, 1, c, kh, kw)
        left = y.permute(0, *at, 1, *inside).reshape(n, 1, *places, *taps)
        right = w.reshape(out, *ones, *taps)
    else:  # (N, G, 1, y, x, c, kh, kw) * (G, O / G, 1, 1, c, kh, kw)
        left = y.reshape(n, groups, channels // groups, *places, *size)
        left = left.permute(0, 1, *(a + 1 for a in at), 2, *(a + 1 for a in inside))
        left = left.reshape(n, groups, 1, *places, *taps)
        right = w.reshape(groups, out // groups, *ones, *taps)
    product = left * right
    axes = tuple(range(product.ndim - rank - 1, product.ndim))
    total = product._with(graph.reduce(Op.ADD, product.node, axes))  # in the accumulator's own type
    return total.reshape(n, out, *places)


def _mirrored(w: Handle, groups: int) -> Handle:
    """(C, O / groups, taps) as the weight (O, C / groups, taps) of the gathering convolution."""
    channels, part, *size = w.shape
    mirrored = w.flip(tuple(range(2, len(w.shape))))
    grouped = transpose(mirrored.reshape(groups, channels // groups, part, *size), 1, 2)
    return grouped.reshape(groups * part, channels // groups, *size)


def _with_zeros_between(x: T, strides: tuple[int, ...]) -> T:
    """Zeros between the elements of the spatial dimensions, so that they are ``strides`` apart."""
    for i, s in enumerate(strides):
        at = i + 2
        if s > 1 and x.shape[at]:
            extent = x.shape[at]
            wide = pad(
                x.unsqueeze(at + 1),
                [(0, s - 1) if a == at + 1 else (0, 0) for a in range(x.ndim + 1)],
            )
            x = flatten(wide, at, at + 1).narrow(at, 0, (extent - 1) * s + 1)
    return x


def _check(op: str, rank: int, x: Handle, w: Handle, b: Handle | None, groups: int) -> None:
    shapes = f"input {x.shape} and weight {w.shape}"
    if x.ndim != rank + 2 or w.ndim != rank + 2:
        spatial, taps = _LETTERS[rank]
        raise ShapeError(f"{op}: {shapes} must be (N, C, {spatial}) and (O, C / groups, {taps})")
    integer(op, "groups", groups, 1)
    if x.shape[1] % groups or w.shape[0] % groups:
        raise ShapeError(f"{op}: groups={groups} does not divide the channels of {shapes}")
    if w.shape[1] * groups != x.shape[1]:
        raise ShapeError(
            f"{op}: {shapes} with groups={groups}: {x.shape[1]} channels, {w.shape[1]} taken"
        )
    if b is not None and b.shape != w.shape[:1]:
        raise ShapeError(f"{op}: bias {b.shape} for weight {w.shape}, must be {w.shape[:1]}")
    if x.dtype.is_bool or w.dtype.is_bool:
        raise DTypeError(f"{op}: not defined for {x.dtype} and {w.dtype}; cast them")
