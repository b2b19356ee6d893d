"""Layers with weights: linear, tables, convolutions, normalisations. Argument names and order are
PyTorch's; the fans of drawn weights are He's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from tunegrad.errors import ShapeError
from tunegrad.ir.dtypes import F32, I64

from ..functional import batch_norm, embedding
from ..ops.convolution import Extent, Sides, convolve, convolve_transposed, extents_of
from ..spelling import spelled
from ..tensor import Tensor
from .module import Buffer, Module, Parameter, kaiming, value_of

__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Bilinear", "Conv1d", "Conv2d", "Conv3d",
    "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Embedding", "EmbeddingBag",
    "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LayerNorm", "Linear",
    "PReLU", "RMSNorm", "SyncBatchNorm", "conv_norm",
]  # fmt: skip


class Linear(Module):
    """``x @ weight.T + bias`` with weight (out, in)."""

    @spelled
    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        self.weight = Parameter(out_features, in_features, spread=kaiming(in_features, 1.0))
        self.bias = Parameter(out_features, spread=0.1) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """(.., in) to (.., out)."""
        return x.linear(self.weight.tensor, value_of(self.bias))


class Embedding(Module):
    """A table whose rows are read by number: weight is (num_embeddings, embedding_dim)."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None
    ) -> None:
        self.weight = Parameter(num_embeddings, embedding_dim)
        self.padding_idx = padding_idx

    def forward(self, input: Tensor) -> Tensor:
        """Integers of any shape to (*shape, embedding_dim)."""
        return embedding(input, self.weight.tensor, self.padding_idx)


class EmbeddingBag(Module):
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


class Bilinear(Module):
    """``x1' weight[o] x2 + bias[o]`` with weight (out, in1, in2)."""

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True
    ) -> None:
        spread = kaiming(in1_features * in2_features, 1.0)
        self.weight = Parameter(out_features, in1_features, in2_features, spread=spread)
        self.bias = Parameter(out_features, spread=0.1) if bias else None

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        """(.., in1) and (.., in2) to (.., out)."""
        return input1.bilinear(input2, self.weight.tensor, value_of(self.bias))


def _windows(
    conv: _Conv | _ConvTranspose, channels: tuple[int, int], kernel_size: Extent, groups: int,
    bias: bool,
) -> tuple[Parameter, Parameter | None]:  # fmt: skip
    """A weight (out, in / groups, ..), or (in, out / groups, ..) of a transposed one, and a bias.

    Windows have ``rank`` axes. Raises ShapeError where groups do not divide the channels.
    """
    name, (taken, given) = type(conv).__name__, channels
    if groups < 1 or taken % groups or given % groups:
        raise ShapeError(f"{name}: groups={groups} does not divide channels {taken} and {given}")
    size = extents_of(name, "kernel_size", kernel_size, conv.rank, 1)
    first, second = (given, taken) if isinstance(conv, _Conv) else (taken, given)
    spread = kaiming(taken // groups * math.prod(size), 2.0)
    weight = Parameter(first, second // groups, *size, spread=spread)
    return weight, Parameter(given, spread=0.1) if bias else None


class _Conv(Module):
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
        channels = in_channels, out_channels
        self.weight, self.bias = _windows(self, channels, kernel_size, groups, bias)
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self.padding_mode = padding_mode

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, ..) to (N, O, ..)."""
        return self.apply(x, self.weight.tensor, value_of(self.bias))

    def apply(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """This convolution with other constants."""
        padding = self.padding
        if self.padding_mode != "zeros" and not isinstance(padding, str):
            ends = extents_of("conv", "padding", padding, self.rank, 0)
            mode: Any = self.padding_mode
            x, padding = x.pad([n for p in reversed(ends) for n in (p, p)], mode), 0
        return convolve(
            x, self.rank, weight, bias, self.stride, padding, self.dilation, self.groups
        )


class Conv1d(_Conv):
    """A convolution of (N, C, L)."""

    rank = 1


class Conv2d(_Conv):
    """A convolution of (N, C, H, W) with square or rectangular windows."""

    rank = 2


class Conv3d(_Conv):
    """A convolution of (N, C, D, H, W)."""

    rank = 3


class _ConvTranspose(Module):
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
        channels = in_channels, out_channels
        self.weight, self.bias = _windows(self, channels, kernel_size, groups, bias)
        self.options = (stride, padding, output_padding, groups, dilation)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, ..) to (N, O, ..)."""
        weight, bias = self.weight.tensor, value_of(self.bias)
        return convolve_transposed(x, self.rank, weight, bias, *self.options)


class ConvTranspose1d(_ConvTranspose):
    """A transposed convolution of (N, C, L)."""

    rank = 1


class ConvTranspose2d(_ConvTranspose):
    """A transposed convolution of (N, C, H, W)."""

    rank = 2


class ConvTranspose3d(_ConvTranspose):
    """A transposed convolution of (N, C, D, H, W)."""

    rank = 3


class PReLU(Module):
    """x where positive, else weight * x, one weight for all channels or each."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25) -> None:
        self.weight = Parameter(num_parameters, mean=init, spread=0.1, law="uniform")

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return x.prelu(self.weight.tensor)


def _affine(
    *extents: int, weight: bool, bias: bool, scale: float = 1.0
) -> tuple[Parameter | None, Parameter | None]:
    """The weight and the bias of a normalisation; ``scale`` is where drawn weights lie around."""
    around = Parameter(*extents, mean=scale, spread=0.1 * scale, law="uniform")
    return around if weight else None, Parameter(*extents, spread=0.1) if bias else None


class BatchNorm2d(Module):
    """Batch normalisation: by the running statistics, or in ``train()`` by the batch's own, of
    which the running ones take ``momentum``; with None they are means of all batches so far.
    ``scale`` is where drawn weights lie around.
    """

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
        self.weight, self.bias = _affine(num_features, weight=affine, bias=affine, scale=scale)
        self.running_mean = Buffer(num_features, spread=0.1)
        self.running_var = Buffer(num_features, mean=1.0, spread=0.2, law="uniform")
        self.eps, self.momentum = eps, momentum
        if momentum is None:
            self.num_batches_tracked = Buffer(spread=0.0, dtype=I64)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, ..) to the same."""
        mean, var = self.running_mean.tensor, self.running_var.tensor
        weight, bias = value_of(self.weight), value_of(self.bias)
        if not self.training:
            return x.batch_norm(weight, bias, mean, var, self.eps)
        found = batch_norm(x, mean, var, weight, bias, True, eps=self.eps)
        self._count(x.detach())
        return found

    def _count(self, x: Tensor) -> None:
        """Move the running statistics towards the batch's, whose variance is the unbiased one."""
        name, over = type(self).__name__, tuple(a for a in range(x.ndim) if a != 1)
        count = math.prod(x.shape[a] for a in over)
        if count < 2:
            raise ShapeError(f"{name}: input {x.shape} has one value a channel; train() needs more")
        part: float | Tensor | None = self.momentum
        if part is None:
            self.num_batches_tracked.update(self.num_batches_tracked.tensor + 1)
            part = 1 / self.num_batches_tracked.tensor.cast(F32)
        wide = x._wide()
        mean = wide.mean(over, True)
        centred = wide - mean
        var = (centred * centred).mean(over, True)
        for place, new in (
            (self.running_mean, mean * part),
            (self.running_var, var * (part * count / (count - 1))),
        ):
            old = place.tensor
            place.update((old * (1 - part) + new.reshape(-1)).cast(old.dtype))

    def scale_and_shift(self) -> tuple[Tensor, Tensor]:
        """The layer as ``x * scale + shift``: expressions of constants, one number a channel."""
        scale = (self.running_var.tensor + self.eps).rsqrt()
        scale = scale if self.weight is None else self.weight.tensor * scale
        shift = self.running_mean.tensor * scale
        return scale, -shift if self.bias is None else self.bias.tensor - shift


class BatchNorm1d(BatchNorm2d):
    """``BatchNorm2d`` of (N, C) or (N, C, L)."""


class SyncBatchNorm(BatchNorm2d):
    """``BatchNorm2d`` of one process."""


class BatchNorm3d(BatchNorm2d):
    """``BatchNorm2d`` of (N, C, D, H, W)."""


def conv_norm(x: Tensor, conv: Conv2d, norm: BatchNorm2d) -> Tensor:
    """``norm(conv(x))`` with the scale folded into the convolution's weight and the shift into its
    bias.

        conv(x, w, b) * scale + shift    -->    conv(x, w * scale, b * scale + shift)

    Both constants are expressions of constants; folding evaluates them once, when the model is
    loaded. In ``train()`` it is the norm of the convolution.
    """
    if norm.training:
        normed: Tensor = norm(conv(x))
        return normed
    scale, shift = norm.scale_and_shift()
    weight = conv.weight.tensor * scale.reshape(-1, 1, 1, 1)
    bias = shift if conv.bias is None else conv.bias.tensor * scale + shift
    return conv.apply(x, weight, bias)


def _last(shape: int | Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The extents of the last axes, and these axes."""
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    return extents, tuple(range(-len(extents), 0))


class LayerNorm(Module):
    """Layer normalisation over the last axes, whose extents are ``normalized_shape``."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
    ) -> None:
        extents, self.axes = _last(normalized_shape)
        both = elementwise_affine and bias
        self.weight, self.bias = _affine(*extents, weight=elementwise_affine, bias=both)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(.., normalized_shape) to the same."""
        return x.layer_norm(value_of(self.weight), value_of(self.bias), self.eps, self.axes)


class RMSNorm(Module):
    """Division by the root of the mean square over the last axes."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
    ) -> None:
        extents, self.axes = _last(normalized_shape)
        self.weight, _ = _affine(*extents, weight=elementwise_affine, bias=False)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(.., normalized_shape) to the same."""
        return x.rms_norm(value_of(self.weight), self.eps, self.axes)


class GroupNorm(Module):
    """Normalisation of groups of channels."""

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True
    ) -> None:
        if num_groups < 1 or num_channels % num_groups:
            raise ShapeError(
                f"GroupNorm: {num_groups} groups do not divide {num_channels} channels"
            )
        self.weight, self.bias = _affine(num_channels, weight=affine, bias=affine)
        self.num_groups, self.eps = num_groups, eps

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, ..) to the same."""
        return x.group_norm(self.num_groups, value_of(self.weight), value_of(self.bias), self.eps)


class InstanceNorm2d(Module):
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
            raise ShapeError(f"{type(self).__name__}: track_running_stats=True is not supported")
        self.weight, self.bias = _affine(num_features, weight=affine, bias=affine)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, ..) to the same."""
        return x.instance_norm(value_of(self.weight), value_of(self.bias), self.eps)


class InstanceNorm1d(InstanceNorm2d):
    """``InstanceNorm2d`` of (N, C, L)."""


class InstanceNorm3d(InstanceNorm2d):
    """``InstanceNorm2d`` of (N, C, D, H, W)."""
