"""Layers: small modules that hold named parameters and build graphs.

Parameter names are torch's: attributes joined by dots, list positions as numbers
(``layer1.0.conv1.weight``). A module has no weights until ``load``; then they are CONST nodes. A
module is the one mutable thing in the front end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from tunegrad.errors import ShapeError, WeightsError
from tunegrad.ir.dtypes import F32, DType

from .functional import Pair
from .tensor import Tensor
from .weights import ParameterSpec, Weights, load_weights

__all__ = ["BatchNorm2d", "Conv2d", "LayerNorm", "Linear", "Module", "Parameter", "conv_norm"]


class Parameter:
    """A place for one array: its spec (named by the module that is loaded) and, once loaded, its
    tensor.
    """

    __slots__ = ("_tensor", "spec")

    def __init__(
        self,
        *shape: int,
        mean: float = 0.0,
        spread: float = 1.0,
        law: Literal["normal", "uniform"] = "normal",
        dtype: DType = F32,
    ) -> None:
        self.spec = ParameterSpec("", shape, dtype, mean, spread, law)
        self._tensor: Tensor | None = None

    @property
    def tensor(self) -> Tensor:
        """The loaded constant.

        Raises:
            WeightsError: nothing was loaded.
        """
        if self._tensor is None:
            raise WeightsError(
                f"a parameter of shape {self.spec.shape} has no value yet; call load() on its "
                "module"
            )
        return self._tensor

    def fill(self, tensor: Tensor) -> None:
        """Give it its value."""
        self._tensor = tensor


class Module:
    """Base of all layers.

    Parameters and modules in attributes, lists and tuples are found by name.
    """

    __call__: Callable[..., Tensor]

    def named(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """Every parameter and its dotted name, in the order of definition."""
        for name, value in vars(self).items():
            yield from _named(f"{prefix}{name}", value)

    def parameters(self) -> dict[str, ParameterSpec]:
        """What ``load`` needs, by name."""
        return {name: replace(p.spec, name=name) for name, p in self.named()}

    def load(self, weights: Weights | str | Path | None = None, seed: int = 0) -> None:
        """Take all parameters from a dict or ``.safetensors`` file, or draw them from the seed.

        Raises:
            WeightsError: missing, unexpected or misshapen ones; nothing is loaded then.
        """
        arrays = load_weights(tuple(self.parameters().values()), weights, seed, type(self).__name__)
        for name, p in self.named():
            p.fill(Tensor.constant(arrays[name], p.spec.dtype, name))


def _named(name: str, value: object) -> Iterator[tuple[str, Parameter]]:
    if isinstance(value, Parameter):
        yield name, value
    elif isinstance(value, Module):
        yield from value.named(f"{name}.")
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _named(f"{name}.{i}", item)


def _kaiming(fan_in: int, gain: float) -> float:
    """Standard deviation that keeps the mean square of activations at ``gain`` times the input's
    (He et al.

    2015).
    """
    return float((gain / max(1, fan_in)) ** 0.5)


class Conv2d(Module):
    """A convolution of (N, C, H, W) with square or rectangular windows."""

    def __init__(
        self,
        channels_in: int,
        channels_out: int,
        size: Pair,
        stride: Pair = 1,
        padding: Pair | Literal["same", "valid"] = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        if groups < 1 or channels_in % groups or channels_out % groups:
            raise ShapeError(
                f"Conv2d: groups={groups} does not divide channels {channels_in} and {channels_out}"
            )
        rows, columns = (size, size) if isinstance(size, int) else size
        part = channels_in // groups
        self.weight = Parameter(
            channels_out, part, rows, columns, spread=_kaiming(part * rows * columns, 2.0)
        )
        self.bias = Parameter(channels_out, spread=0.1) if bias else None
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups

    def __call__(self, x: Tensor) -> Tensor:
        return self.apply(x, self.weight.tensor, None if self.bias is None else self.bias.tensor)

    def apply(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """This convolution with other constants."""
        return x.conv2d(weight, bias, self.stride, self.padding, self.dilation, self.groups)


class BatchNorm2d(Module):
    """Batch normalisation as used for inference. ``scale`` is where drawn weights lie around."""

    def __init__(self, channels: int, eps: float = 1e-5, scale: float = 1.0) -> None:
        self.weight = Parameter(channels, mean=scale, spread=0.1 * scale, law="uniform")
        self.bias = Parameter(channels, spread=0.1)
        self.running_mean = Parameter(channels, spread=0.1)
        self.running_var = Parameter(channels, mean=1.0, spread=0.2, law="uniform")
        self.eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        weight, bias, mean, var = (p.tensor for _, p in self.named())
        return x.batch_norm(weight, bias, mean, var, self.eps)

    def scale_and_shift(self) -> tuple[Tensor, Tensor]:
        """The layer as ``x * scale + shift``: expressions of constants, one number a channel."""
        scale = self.weight.tensor * (self.running_var.tensor + self.eps).rsqrt()
        return scale, self.bias.tensor - self.running_mean.tensor * scale


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


class Linear(Module):
    """``x @ weight.T + bias`` with weight (out, in)."""

    def __init__(self, features_in: int, features_out: int, bias: bool = True) -> None:
        self.weight = Parameter(features_out, features_in, spread=_kaiming(features_in, 1.0))
        self.bias = Parameter(features_out, spread=0.1) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        return x.linear(self.weight.tensor, None if self.bias is None else self.bias.tensor)


class LayerNorm(Module):
    """Layer normalisation over the last axes, whose extents are ``shape``."""

    def __init__(self, shape: int | Sequence[int], eps: float = 1e-5) -> None:
        extents = (shape,) if isinstance(shape, int) else tuple(shape)
        self.weight = Parameter(*extents, mean=1.0, spread=0.1, law="uniform")
        self.bias = Parameter(*extents, spread=0.1)
        self.eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        axes = tuple(range(-len(self.weight.spec.shape), 0))
        return x.layer_norm(self.weight.tensor, self.bias.tensor, self.eps, axes)
