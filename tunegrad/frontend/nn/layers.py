"""Layers with weights: linear, convolutions, normalisations. Argument names and order are
PyTorch's; the fans of drawn weights are He's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from tunegrad.errors import ShapeError

from ..methods.convolution import Extent, Sides, extents_of
from ..spelling import spelled
from ..tensor import Tensor
from .module import Layer, Parameter, kaiming

__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Bilinear", "Conv1d", "Conv2d", "Conv3d",
    "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Embedding", "EmbeddingBag",
    "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LayerNorm", "Linear",
    "PReLU", "RMSNorm", "SyncBatchNorm", "conv_norm",
]  # fmt: skip


def _value(p: Parameter | None) -> Tensor | None:
    return None if p is None else p.tensor


class Linear(Layer):
    """``x @ weight.T + bias`` with weight (out, in)."""

    @spelled
    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        self.weight = Parameter(out_features, in_features, spread=kaiming(in_features, 1.0))
        self.bias = Parameter(out_features, spread=0.1) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """(.., in) to (.., out)."""
        return x.linear(self.weight.tensor, _value(self.bias))


class Embedding(Layer):
    """A table whose rows are read by number: weight is (num_embeddings, embedding_dim)."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None
    ) -> None:
        self.weight = Parameter(num_embeddings, embedding_dim)
        self.padding_idx = padding_idx

    def forward(self, input: Tensor) -> Tensor:
        """Integers of any shape to (*shape, embedding_dim)."""
        return self.weight.tensor.take(input, 0)


class EmbeddingBag(Layer):
    """Means, sums or maxima of rows of a table: (bags, numbers) to (bags, embedding_dim)."""

    def __init__(self, num_embeddings: int, embedding_dim: int, *, mode: str = "mean") -> None:
        if mode not in ("mean", "sum", "max"):
            raise ShapeError(f"EmbeddingBag: mode={mode!r} is not one of 'mean', 'sum', 'max'")
        self.weight = Parameter(num_embeddings, embedding_dim)
        self.mode = mode

    def forward(self, input: Tensor) -> Tensor:
        """Bags are the rows of ``input``; bags of different lengths (offsets) are not there."""
        if input.ndim != 2:
            raise ShapeError(f"EmbeddingBag: input {input.shape} must be (bags, numbers)")
        rows = self.weight.tensor.take(input, 0)
        folds = {"mean": rows.mean, "sum": rows.sum, "max": rows.amax}
        return folds[self.mode](1)


class Bilinear(Layer):
    """``x1' weight[o] x2 + bias[o]`` with weight (out, in1, in2)."""

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True
    ) -> None:
        spread = kaiming(in1_features * in2_features, 1.0)
        self.weight = Parameter(out_features, in1_features, in2_features, spread=spread)
        self.bias = Parameter(out_features, spread=0.1) if bias else None

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        """(.., in1) and (.., in2) to (.., out)."""
        return input1.bilinear(input2, self.weight.tensor, _value(self.bias))


class _Conv(Layer):
    rank: ClassVar[int]

    @spelled
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Extent,
        stride: Extent = 1,
        padding: Sides = 0,
        dilation: Extent = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
    ) -> None:
        name = type(self).__name__
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ShapeError(
                f"{name}: groups={groups} does not divide channels {in_channels} and {out_channels}"
            )
        size = extents_of(name, "kernel_size", kernel_size, self.rank, 1)
        part = in_channels // groups
        self.weight = Parameter(
            out_channels, part, *size, spread=kaiming(part * math.prod(size), 2.0)
        )
        self.bias = Parameter(out_channels, spread=0.1) if bias else None
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self.padding_mode = padding_mode

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, ..) to (N, O, ..)."""
        return self.apply(x, self.weight.tensor, _value(self.bias))

    def apply(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """This convolution with other constants."""
        padding = self.padding
        if self.padding_mode != "zeros" and not isinstance(padding, str):
            ends = extents_of("conv", "padding", padding, self.rank, 0)
            mode: Any = self.padding_mode
            x, padding = x.pad([n for p in reversed(ends) for n in (p, p)], mode), 0
        convolve = getattr(x, f"conv{self.rank}d")
        y: Tensor = convolve(weight, bias, self.stride, padding, self.dilation, self.groups)
        return y


class Conv1d(_Conv):
    """A convolution of (N, C, L)."""

    rank = 1


class Conv2d(_Conv):
    """A convolution of (N, C, H, W) with square or rectangular windows."""

    rank = 2


class Conv3d(_Conv):
    """A convolution of (N, C, D, H, W)."""

    rank = 3


class _ConvTranspose(Layer):
    rank: ClassVar[int]

    @spelled
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Extent,
        stride: Extent = 1,
        padding: Extent = 0,
        output_padding: Extent = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Extent = 1,
    ) -> None:
        name = type(self).__name__
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ShapeError(
                f"{name}: groups={groups} does not divide channels {in_channels} and {out_channels}"
            )
        size = extents_of(name, "kernel_size", kernel_size, self.rank, 1)
        part = out_channels // groups
        spread = kaiming(in_channels // groups * math.prod(size), 2.0)
        self.weight = Parameter(in_channels, part, *size, spread=spread)
        self.bias = Parameter(out_channels, spread=0.1) if bias else None
        self.options = (stride, padding, output_padding, groups, dilation)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, ..) to (N, O, ..)."""
        turn = getattr(x, f"conv_transpose{self.rank}d")
        y: Tensor = turn(self.weight.tensor, _value(self.bias), *self.options)
        return y


class ConvTranspose1d(_ConvTranspose):
    """A transposed convolution of (N, C, L)."""

    rank = 1


class ConvTranspose2d(_ConvTranspose):
    """A transposed convolution of (N, C, H, W)."""

    rank = 2


class ConvTranspose3d(_ConvTranspose):
    """A transposed convolution of (N, C, D, H, W)."""

    rank = 3


class BatchNorm2d(Layer):
    """Batch normalisation as used for inference. ``scale`` is where drawn weights lie around."""

    weight: Parameter | None
    bias: Parameter | None

    @spelled
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        *,
        scale: float = 1.0,
    ) -> None:
        del momentum
        if affine:
            self.weight = Parameter(num_features, mean=scale, spread=0.1 * scale, law="uniform")
            self.bias = Parameter(num_features, spread=0.1)
        else:
            self.weight = self.bias = None
        self.running_mean = Parameter(num_features, spread=0.1)
        self.running_var = Parameter(num_features, mean=1.0, spread=0.2, law="uniform")
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, ..) to the same."""
        mean, var = self.running_mean.tensor, self.running_var.tensor
        return x.batch_norm(_value(self.weight), _value(self.bias), mean, var, self.eps)

    def scale_and_shift(self) -> tuple[Tensor, Tensor]:
        """The layer as ``x * scale + shift``: expressions of constants, one number a channel."""
        scale = (self.running_var.tensor + self.eps).rsqrt()
        scale = scale if self.weight is None else self.weight.tensor * scale
        shift = self.running_mean.tensor * scale
        return scale, -shift if self.bias is None else self.bias.tensor - shift


class BatchNorm1d(BatchNorm2d):
    """``BatchNorm2d`` of (N, C) or (N, C, L)."""


class SyncBatchNorm(BatchNorm2d):
    """``BatchNorm2d``, as it is in inference."""


class BatchNorm3d(BatchNorm2d):
    """``BatchNorm2d`` of (N, C, D, H, W)."""


def conv_norm(x: Tensor, conv: Conv2d, norm: BatchNorm2d) -> Tensor:
    """``norm(conv(x))`` with the scale folded into the convolution's weight and the shift into its
    bias.

        conv(x, w, b) * scale + shift    -->    conv(x, w * scale, b * scale + shift)

    Both constants are expressions of constants; folding evaluates them once, when the model is
    loaded.
    """
    scale, shift = norm.scale_and_shift()
    weight = conv.weight.tensor * scale.reshape(-1, 1, 1, 1)
    bias = shift if conv.bias is None else conv.bias.tensor * scale + shift
    return conv.apply(x, weight, bias)


class LayerNorm(Layer):
    """Layer normalisation over the last axes, whose extents are ``normalized_shape``."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
    ) -> None:
        extents = _tuple(normalized_shape)
        self.axes = tuple(range(-len(extents), 0))
        one = Parameter(*extents, mean=1.0, spread=0.1, law="uniform")
        self.weight = one if elementwise_affine else None
        self.bias = Parameter(*extents, spread=0.1) if elementwise_affine and bias else None
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(.., normalized_shape) to the same."""
        return x.layer_norm(_value(self.weight), _value(self.bias), self.eps, self.axes)


class RMSNorm(Layer):
    """Division by the root of the mean square over the last axes."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
    ) -> None:
        extents = _tuple(normalized_shape)
        self.axes = tuple(range(-len(extents), 0))
        one = Parameter(*extents, mean=1.0, spread=0.1, law="uniform")
        self.weight = one if elementwise_affine else None
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(.., normalized_shape) to the same."""
        return x.rms_norm(_value(self.weight), self.eps, self.axes)


class GroupNorm(Layer):
    """Normalisation of groups of channels."""

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True
    ) -> None:
        if num_groups < 1 or num_channels % num_groups:
            raise ShapeError(
                f"GroupNorm: {num_groups} groups do not divide {num_channels} channels"
            )
        one = Parameter(num_channels, mean=1.0, spread=0.1, law="uniform")
        self.weight = one if affine else None
        self.bias = Parameter(num_channels, spread=0.1) if affine else None
        self.num_groups, self.eps = num_groups, eps

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, ..) to the same."""
        return x.group_norm(self.num_groups, _value(self.weight), _value(self.bias), self.eps)


class InstanceNorm2d(Layer):
    """Normalisation of each channel of each image, by its own statistics."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
    ) -> None:
        del momentum
        if track_running_stats:
            raise ShapeError(f"{type(self).__name__}: track_running_stats=True is not there")
        one = Parameter(num_features, mean=1.0, spread=0.1, law="uniform")
        self.weight = one if affine else None
        self.bias = Parameter(num_features, spread=0.1) if affine else None
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, ..) to the same."""
        return x.instance_norm(_value(self.weight), _value(self.bias), self.eps)


class InstanceNorm1d(InstanceNorm2d):
    """``InstanceNorm2d`` of (N, C, L)."""


class InstanceNorm3d(InstanceNorm2d):
    """``InstanceNorm2d`` of (N, C, D, H, W)."""


class PReLU(Layer):
    """x where positive, else weight * x, one weight for all channels or each."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25) -> None:
        self.weight = Parameter(num_parameters, mean=init, spread=0.1, law="uniform")

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return x.prelu(self.weight.tensor)


def _tuple(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)
