"""Normalisations with weights. Argument names and order are PyTorch's."""

from __future__ import annotations

from collections.abc import Sequence

from tunegrad.errors import ShapeError

from ..spelling import spelled
from ..tensor import Tensor
from .layers import Conv2d
from .module import Layer, Parameter, value_of

__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d",
    "InstanceNorm3d", "LayerNorm", "RMSNorm", "SyncBatchNorm", "conv_norm",
]  # fmt: skip


class _Norm(Layer):
    """The common part of normalisations: a weight that lies around one, and a bias, or neither."""

    weight: Parameter | None
    bias: Parameter | None

    def _affine(self, *extents: int, weight: bool, bias: bool, scale: float = 1.0) -> None:
        """Make those that are wanted; ``scale`` is where drawn weights lie around."""
        around = Parameter(*extents, mean=scale, spread=0.1 * scale, law="uniform")
        self.weight = around if weight else None
        self.bias = Parameter(*extents, spread=0.1) if bias else None


class BatchNorm2d(_Norm):
    """Batch normalisation as used for inference. ``scale`` is where drawn weights lie around."""

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
        self._affine(num_features, weight=affine, bias=affine, scale=scale)
        self.running_mean = Parameter(num_features, spread=0.1)
        self.running_var = Parameter(num_features, mean=1.0, spread=0.2, law="uniform")
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, ..) to the same."""
        mean, var = self.running_mean.tensor, self.running_var.tensor
        return x.batch_norm(value_of(self.weight), value_of(self.bias), mean, var, self.eps)

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


class _LastAxesNorm(_Norm):
    """A normalisation over the last axes, whose extents are ``normalized_shape``."""

    def _over(self, normalized_shape: int | Sequence[int], weight: bool, bias: bool) -> None:
        """Set the axes that are normalised, and weights of their extents."""
        shape = normalized_shape
        extents = (shape,) if isinstance(shape, int) else tuple(shape)
        self.axes = tuple(range(-len(extents), 0))
        self._affine(*extents, weight=weight, bias=bias)


class LayerNorm(_LastAxesNorm):
    """Layer normalisation over the last axes, whose extents are ``normalized_shape``."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
    ) -> None:
        self._over(normalized_shape, elementwise_affine, elementwise_affine and bias)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(.., normalized_shape) to the same."""
        return x.layer_norm(value_of(self.weight), value_of(self.bias), self.eps, self.axes)


class RMSNorm(_LastAxesNorm):
    """Division by the root of the mean square over the last axes."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
    ) -> None:
        self._over(normalized_shape, elementwise_affine, False)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(.., normalized_shape) to the same."""
        return x.rms_norm(value_of(self.weight), self.eps, self.axes)


class GroupNorm(_Norm):
    """Normalisation of groups of channels."""

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True
    ) -> None:
        if num_groups < 1 or num_channels % num_groups:
            raise ShapeError(
                f"GroupNorm: {num_groups} groups do not divide {num_channels} channels"
            )
        self._affine(num_channels, weight=affine, bias=affine)
        self.num_groups, self.eps = num_groups, eps

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, ..) to the same."""
        return x.group_norm(self.num_groups, value_of(self.weight), value_of(self.bias), self.eps)


class InstanceNorm2d(_Norm):
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
        self._affine(num_features, weight=affine, bias=affine)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, ..) to the same."""
        return x.instance_norm(value_of(self.weight), value_of(self.bias), self.eps)


class InstanceNorm1d(InstanceNorm2d):
    """``InstanceNorm2d`` of (N, C, L)."""


class InstanceNorm3d(InstanceNorm2d):
    """``InstanceNorm2d`` of (N, C, D, H, W)."""
