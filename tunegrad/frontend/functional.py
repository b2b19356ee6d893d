"""Operations made of others: activations, statistics, softmax, norms, convolution and pooling.

All are reached as methods of Tensor. f16 and bf16 are computed in f32 throughout and rounded once,
at the end. A convolution is pad, two windows, multiply, and one sum over (channel, row, column) of
the window, in this order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from tunegrad.errors import DTypeError, ShapeError
from tunegrad.ir import graph
from tunegrad.ir.dtypes import BOOL, F32, I64, DType, promote

from .arrays import DTypeLike
from .movement import Axes, axes_of, axis_of, integer
from .reduction import accumulator

if TYPE_CHECKING:
    from .tensor import Tensor

__all__ = [
    "Pair", "adaptive_avg_pool2d", "avg_pool2d", "batch_norm", "conv2d", "gelu",
    "global_avg_pool2d", "layer_norm",
    "leaky_relu", "linear", "log_softmax", "max_pool2d", "mean", "one_hot", "sigmoid", "softmax",
    "std", "var",
]  # fmt: skip

Pair = int | tuple[int, int]


def _float(x: Tensor) -> Tensor:
    """``x`` in the float type it is computed in."""
    return x.cast(x.dtype.compute if x.dtype.is_float else F32)


def _float_type(x: Tensor) -> DType:
    return x.dtype if x.dtype.is_float else F32


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return ((-_float(x)).exp() + 1).reciprocal().cast(_float_type(x))


def gelu(x: Tensor, approximate: Literal["none", "tanh"] = "none") -> Tensor:
    """x * P(Z <= x) of a standard normal Z: by erf, or by the tanh formula of Hendrycks and Gimpel
    2016.
    """
    v = _float(x)
    if approximate == "none":
        result = v * 0.5 * ((v * math.sqrt(0.5)).erf() + 1)
    elif approximate == "tanh":
        result = v * 0.5 * (((v + v * v * v * 0.044715) * math.sqrt(2 / math.pi)).tanh() + 1)
    else:
        raise ShapeError(f"gelu: approximate={approximate!r} is not one of 'none', 'tanh'")
    return result.cast(_float_type(x))


def leaky_relu(x: Tensor, slope: float = 0.01) -> Tensor:
    """x where positive, else slope * x."""
    v = _float(x)
    return (v > 0).where(v, v * slope).cast(_float_type(x))


def _count(x: Tensor, axes: tuple[int, ...]) -> int:
    return math.prod(x.shape[a] for a in axes)


def mean(
    x: Tensor, axis: Axes = None, keepdims: bool = False, accumulate: DTypeLike | None = None
) -> Tensor:
    """The average; NaN of no elements. Integers and bools give f32."""
    axes = axes_of("mean", axis, x.shape)
    wide = x.cast(accumulator("mean", _float_type(x), accumulate))
    return (wide.sum(axes, keepdims) / float(_count(x, axes))).cast(_float_type(x))


def var(x: Tensor, axis: Axes = None, keepdims: bool = False, correction: int = 1) -> Tensor:
    """The variance, in two passes: squared distances from the mean over ``count - correction``.

    ``correction`` 1 is the sample's (torch's default), 0 the population's (numpy's default).
    """
    axes = axes_of("var", axis, x.shape)
    v = _float(x)
    distance = v - v.mean(axes, keepdims=True)
    rest = max(0.0, float(_count(x, axes) - correction))
    return ((distance * distance).sum(axes, keepdims) / rest).cast(_float_type(x))


def std(x: Tensor, axis: Axes = None, keepdims: bool = False, correction: int = 1) -> Tensor:
    """The square root of the variance."""
    return var(_float(x), axis, keepdims, correction).sqrt().cast(_float_type(x))


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """exp(x) over its sum along ``axis``, shifted by the maximum so that nothing overflows."""
    at = axis_of("softmax", axis, x.shape)
    if 0 in x.shape:
        return x.cast(_float_type(x))
    v = _float(x)
    powers = (v - v.max(at, keepdims=True)).exp()
    return (powers * powers.sum(at, keepdims=True).reciprocal()).cast(_float_type(x))


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """The logarithm of softmax, computed without it."""
    at = axis_of("log_softmax", axis, x.shape)
    if 0 in x.shape:
        return x.cast(_float_type(x))
    v = _float(x)
    shifted = v - v.max(at, keepdims=True)
    return (shifted - shifted.exp().sum(at, keepdims=True).log()).cast(_float_type(x))


def layer_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, axes: Axes
) -> Tensor:
    """Zero mean and unit variance over ``axes``, then ``* weight + bias``, both of the shape of
    those axes.

    Raises:
        ShapeError: ``weight`` or ``bias`` has another shape.
    """
    over = tuple(sorted(axes_of("layer_norm", axes, x.shape)))
    inner = tuple(x.shape[a] for a in over)
    v = _float(x)
    centred = v - v.mean(over, keepdims=True)
    variance = (centred * centred).mean(over, keepdims=True)
    result = centred * (variance + eps).sqrt().reciprocal()
    spread = tuple(s if i in over else 1 for i, s in enumerate(x.shape))
    for what, p in (("weight", weight), ("bias", bias)):
        if p is None:
            continue
        if p.shape != inner:
            raise ShapeError(
                f"layer_norm: {what} {p.shape} for input {x.shape} over axes {over}, must be "
                f"{inner}"
            )
        result = (
            result * _float(p).reshape(spread)
            if what == "weight"
            else result + _float(p).reshape(spread)
        )
    return result.cast(_float_type(x))


def batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, eps: float
) -> Tensor:
    """Inference form, channels in axis 1: ``x * scale + shift``, scale and shift being expressions
    of constants.
    """
    if len(x.shape) < 2:
        raise ShapeError(
            f"batch_norm: input {x.shape} has no channel axis; its shape must be (batch, "
            "channels, ...)"
        )
    channels = (x.shape[1],)
    for what, p in (("weight", weight), ("bias", bias), ("mean", mean), ("var", var)):
        if p is not None and p.shape != channels:
            raise ShapeError(
                f"batch_norm: {what} {p.shape} for input {x.shape}, must be {channels}"
            )
    scale = (_float(var) + eps).sqrt().reciprocal()
    scale = scale if weight is None else scale * _float(weight)
    shift = -_float(mean) * scale
    shift = shift if bias is None else shift + _float(bias)
    spread = (-1 if channels[0] else 0, *(1 for _ in x.shape[2:]))
    return (_float(x) * scale.reshape(spread) + shift.reshape(spread)).cast(_float_type(x))


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, accumulate: DTypeLike | None = None
) -> Tensor:
    """``x @ weight.T + bias``: (.., in) with weight (out, in) and bias (out,) gives (.., out).

    The bias is added in the accumulator's dtype.
    """
    if len(weight.shape) != 2 or not x.shape or x.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"linear: input {x.shape} and weight {weight.shape} must be (.., in) and (out, in)"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ShapeError(
            f"linear: bias {bias.shape} for weight {weight.shape}, must be {weight.shape[:1]}"
        )
    kind = promote(x.dtype, weight.dtype)
    acc = accumulator("linear", kind, accumulate)
    result = x.cast(acc) @ weight.cast(acc).T
    return (result if bias is None else result + bias.cast(acc)).cast(
        kind if kind.is_float else acc
    )


def _pair(op: str, what: str, value: Pair, least: int) -> tuple[int, int]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) != 2:
            raise ShapeError(f"{op}: {what} {value!r} must be one integer or a pair")
        return integer(op, what, value[0], least), integer(op, what, value[1], least)
    number = integer(op, what, value, least)
    return number, number


Ends = tuple[tuple[int, int], tuple[int, int]]


def _padding(
    padding: Pair | Literal["same", "valid"], size: Pair, stride: Pair, dilation: Pair
) -> Ends:
    """Zeros before and after rows and columns; "same" keeps the extent, the odd one after."""
    if padding == "valid":
        return (0, 0), (0, 0)
    if padding == "same":
        if stride != (1, 1):
            raise ShapeError(f"conv2d: padding='same' needs stride 1, not {stride}")
        assert isinstance(size, tuple)
        assert isinstance(dilation, tuple)
        rows, columns = (d * (k - 1) for k, d in zip(size, dilation, strict=True))
        return (rows // 2, rows - rows // 2), (columns // 2, columns - columns // 2)
    if isinstance(padding, str):
        raise ShapeError(f"conv2d: padding={padding!r} is not a number, a pair, 'same' or 'valid'")
    rows, columns = _pair("conv2d", "padding", padding, 0)
    return (rows, rows), (columns, columns)


def _windows(
    op: str,
    x: Tensor,
    size: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    ends: Ends,
) -> Tensor:
    """(N, C, H, W) padded with zeros, as (N, C, rows, columns, window row, window column)."""
    y = x.pad(((0, 0), (0, 0), *ends))
    for axis in (2, 3):
        i = axis - 2
        span = dilation[i] * (size[i] - 1) + 1
        if y.shape[axis] < span:
            raise ShapeError(
                f"{op}: window {size} with dilation {dilation} spans {span} elements of axis "
                f"{axis}, "
                f"input {x.shape} padded has {y.shape[axis]}"
            )
        y = y.window(axis, size[i], stride[i], dilation[i])
    return y


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair | Literal["same", "valid"] = 0,
    dilation: Pair = 1,
    groups: int = 1,
    accumulate: DTypeLike | None = None,
) -> Tensor:
    """(N, C, H, W) with weight (O, C / groups, KH, KW) gives (N, O, rows, columns).

    The bias is added in the accumulator's dtype.

    Raises:
        ShapeError: shapes, strides or groups do not fit.
        DTypeError: bools, or ``accumulate`` can not add up the products.
    """
    _check_conv(x, weight, bias, groups)
    n, channels = x.shape[:2]
    out, part, rows, columns = weight.shape
    kind = promote(x.dtype, weight.dtype)
    strides, spread = _pair("conv2d", "stride", stride, 1), _pair("conv2d", "dilation", dilation, 1)
    ends = _padding(padding, (rows, columns), strides, spread)
    acc = accumulator("conv2d", kind, accumulate)
    y = _windows("conv2d", x.cast(acc), (rows, columns), strides, spread, ends)
    taps = (part, rows, columns)
    size = y.shape[2:4]
    w = weight.cast(acc)
    if groups == 1:  # (N, 1, y, x, c, kh, kw) * (O, 1, 1, c, kh, kw)
        left = y.permute(0, 2, 3, 1, 4, 5).reshape(n, 1, *size, *taps)
        right = w.reshape(out, 1, 1, *taps)
    else:  # (N, G, 1, y, x, c, kh, kw) * (G, O / G, 1, 1, c, kh, kw)
        left = y.reshape(n, groups, channels // groups, *size, rows, columns).permute(
            0, 1, 3, 4, 2, 5, 6
        )
        left = left.reshape(n, groups, 1, *size, *taps)
        right = w.reshape(groups, out // groups, 1, 1, *taps)
    result = (left * right).sum((-3, -2, -1)).cast(acc).reshape(n, out, *size)
    if bias is not None:
        result = result + bias.cast(acc).reshape(out, 1, 1)
    return result.cast(kind if kind.is_float else acc)


def _check_conv(x: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> None:
    shapes = f"input {x.shape} and weight {weight.shape}"
    if len(x.shape) != 4 or len(weight.shape) != 4:
        raise ShapeError(f"conv2d: {shapes} must be (N, C, H, W) and (O, C / groups, KH, KW)")
    integer("conv2d", "groups", groups, 1)
    if x.shape[1] % groups or weight.shape[0] % groups:
        raise ShapeError(f"conv2d: groups={groups} does not divide the channels of {shapes}")
    if weight.shape[1] * groups != x.shape[1]:
        raise ShapeError(
            f"conv2d: {shapes} with groups={groups}: {x.shape[1]} channels, {weight.shape[1]} taken"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ShapeError(
            f"conv2d: bias {bias.shape} for weight {weight.shape}, must be {weight.shape[:1]}"
        )
    if x.dtype.is_bool or weight.dtype.is_bool:
        raise DTypeError(f"conv2d: not defined for {x.dtype} and {weight.dtype}; cast them")


def _pool(
    op: str, x: Tensor, size: Pair, stride: Pair | None, padding: Pair, dilation: Pair = 1
) -> tuple[Tensor, Tensor | None]:
    """Windows of ``x``, and of a mask that is true inside it (None without padding)."""
    if len(x.shape) != 4:
        raise ShapeError(f"{op}: input {x.shape} must be (N, C, H, W)")
    sizes = _pair(op, "size", size, 1)
    strides = sizes if stride is None else _pair(op, "stride", stride, 1)
    pads, spread = _pair(op, "padding", padding, 0), _pair(op, "dilation", dilation, 1)
    if any(2 * p > k for p, k in zip(pads, sizes, strict=True)):
        raise ShapeError(
            f"{op}: padding {pads} is more than half of window {sizes} on input {x.shape}"
        )
    ends = (pads[0], pads[0]), (pads[1], pads[1])
    windows = _windows(op, x, sizes, strides, spread, ends)
    if pads == (0, 0):
        return windows, None
    return windows, _windows(op, x.full_like(True, BOOL), sizes, strides, spread, ends)


def _lowest(dtype: DType) -> float | int | bool:
    if dtype.is_float:
        return -math.inf
    return False if dtype.is_bool else int(np.iinfo(dtype.numpy.name).min)


def max_pool2d(
    x: Tensor, size: Pair, stride: Pair | None = None, padding: Pair = 0, dilation: Pair = 1
) -> Tensor:
    """The largest element of each window; padding never wins.

    The stride is the size unless given.
    """
    windows, mask = _pool("max_pool2d", x, size, stride, padding, dilation)
    if mask is not None:
        windows = mask.where(windows, _lowest(x.dtype))
    return windows.max((-2, -1))


def avg_pool2d(
    x: Tensor,
    size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    count_include_pad: bool = True,
) -> Tensor:
    """The average of each window, padding counted as zeros, or not at all."""
    windows, mask = _pool("avg_pool2d", _float(x), size, stride, padding)
    if mask is None or count_include_pad:
        result = windows.mean((-2, -1))
    else:
        result = windows.sum((-2, -1)) / mask.cast(windows.dtype).sum((-2, -1))
    return result.cast(_float_type(x))


def global_avg_pool2d(x: Tensor) -> Tensor:
    """The average of each channel: (N, C, H, W) to (N, C, 1, 1)."""
    if len(x.shape) != 4:
        raise ShapeError(f"global_avg_pool2d: input {x.shape} must be (N, C, H, W)")
    return mean(x, (2, 3), keepdims=True)


def adaptive_avg_pool2d(x: Tensor, size: Pair) -> Tensor:
    """Averages of equal windows, as many as ``size`` says; it must divide the extents."""
    rows, columns = _pair("adaptive_avg_pool2d", "size", size, 1)
    if len(x.shape) != 4 or x.shape[2] % rows or x.shape[3] % columns:
        raise ShapeError(
            f"adaptive_avg_pool2d: size {(rows, columns)} does not divide the last two of {x.shape}"
        )
    return avg_pool2d(x, (x.shape[2] // rows, x.shape[3] // columns))


def one_hot(x: Tensor, classes: int) -> Tensor:
    """i64 ones at the positions that ``x`` holds, along a new last axis."""
    if not x.dtype.is_int:
        raise DTypeError(
            f"one_hot: positions of shape {x.shape} are {x.dtype}, they must be integers"
        )
    count = integer("one_hot", "classes", classes, 0)
    positions = type(x).of(graph.iota((count,), 0, x.dtype))
    return x.unsqueeze(-1).equal(positions).cast(I64)
