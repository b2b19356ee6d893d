"""Normalisation by statistics of the input, or known ones; 16 bits computed in f32 throughout."""

from __future__ import annotations

import math

from tunegrad.errors import ShapeError

from ..handle import Handle, TensorLike, lift, optional
from ..nodes.movement import Axes, axes_of, integer
from ..operation import T, operation
from ..vjp import custom_vjp
from .movement import pad
from .special import finite, fma


def _standard_vjp(g: Handle, y: Handle, x: Handle, over: tuple[int, ...], eps: float) -> Handle:
    """dx = (dy - mean(dy) - y mean(y dy)) / deviation"""
    part = g - g.mean(over, True) - y * (g * y).mean(over, True)
    return part * _centred(x, over, eps)[1]


@custom_vjp(_standard_vjp)
def _standard(x: Handle, over: tuple[int, ...], eps: float) -> Handle:
    """Zero mean and unit variance."""
    centred, inverse = _centred(x, over, eps)
    return centred * inverse


def _centred(x: Handle, over: tuple[int, ...], eps: float) -> tuple[Handle, Handle]:
    """Distances from the mean, and 1 over the deviation."""
    centred = x - x.mean(over, True)
    variance = (centred * centred).mean(over, True)
    return centred, _inverse_root(variance + eps)


@operation
def layer_norm(
    input: Handle,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    eps: float = 1e-5,
    dim: Axes = -1,
) -> Handle:
    """Zero mean and unit variance over ``dim``, then ``* weight + bias``, both of the shape of
    those dimensions.

    Raises:
        ShapeError: ``weight`` or ``bias`` has another shape.
    """
    over = tuple(sorted(axes_of("layer_norm", dim, input.shape)))
    return scaled(input, "layer_norm", _standard(input._wide(), over, eps), over, weight, bias)


def _unit_vjp(g: Handle, y: Handle, x: Handle, over: tuple[int, ...], eps: float) -> Handle:
    """dx = (dy - y mean(y dy)) / root"""
    return (g - y * (g * y).mean(over, True)) * _inverse_size(x, over, eps)


@custom_vjp(_unit_vjp)
def _unit(x: Handle, over: tuple[int, ...], eps: float) -> Handle:
    """Divided by the root of the mean square."""
    return x * _inverse_size(x, over, eps)


def _inverse_size(x: Handle, over: tuple[int, ...], eps: float) -> Handle:
    return ((x * x).mean(over, True) + eps).sqrt().reciprocal()


@operation
def rms_norm(
    input: Handle, weight: TensorLike | None = None, eps: float | None = None, dim: Axes = -1
) -> Handle:
    """Divided by the root of the mean square over ``dim``, then ``* weight``; ``eps`` is the
    smallest step of the dtype unless given.
    """
    over = tuple(sorted(axes_of("rms_norm", dim, input.shape)))
    x = input._wide()
    small = _STEP[x.dtype.name] if eps is None else eps
    return scaled(input, "rms_norm", _unit(x, over, small), over, weight, None)


def scaled(
    input: Handle, op: str, result: T, over: tuple[int, ...], weight: TensorLike | None,
    bias: TensorLike | None,
) -> T:  # fmt: skip
    """A result for the input, times ``weight`` and plus ``bias``, which have the extents of
    dimensions ``over``.
    """
    inner = tuple(input.shape[a] for a in over)
    spread = tuple(s if i in over else 1 for i, s in enumerate(input.shape))
    for what, given in (("weight", weight), ("bias", bias)):
        p = optional(given, op)
        if p is None:
            continue
        if p.shape != inner:
            raise ShapeError(
                f"{op}: {what} {p.shape} for input {input.shape} over axes {over}, must be {inner}"
            )
        term = p._wide().reshape(spread)
        result = result * term if what == "weight" else result + term
    return result._as(input.float_type)


@operation
def batch_norm(
    input: Handle,
    weight: TensorLike | None,
    bias: TensorLike | None,
    mean: TensorLike,
    var: TensorLike,
    eps: float = 1e-5,
) -> Handle:
    """Normalised by known statistics of the channels (axis 1): ``(x - mean) * scale + bias``,
    scale being an expression of constants. ``x * scale + shift`` would lose the digits of what
    lies far from zero.
    """
    if input.ndim < 2:
        raise ShapeError(
            f"batch_norm: input {input.shape} has no channel axis; its shape must be (batch, "
            "channels, ...)"
        )
    channels = (input.shape[1],)
    w, b = optional(weight, "batch_norm"), optional(bias, "batch_norm")
    m, v = lift(mean, "batch_norm"), lift(var, "batch_norm")
    for what, p in (("weight", w), ("bias", b), ("mean", m), ("var", v)):
        if p is not None and p.shape != channels:
            raise ShapeError(
                f"batch_norm: {what} {p.shape} for input {input.shape}, must be {channels}"
            )
    spread = (-1 if channels[0] else 0, *(1 for _ in input.shape[2:]))
    scale = _inverse_root(v._wide() + eps)
    scale = (scale if w is None else scale * w._wide()).reshape(spread)
    about = input._wide() - m._wide().reshape(spread)
    found = about * scale if b is None else fma(about, scale, b._wide().reshape(spread))
    return found._as(input.float_type)


@operation
def group_norm(
    input: Handle,
    num_groups: int,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    eps: float = 1e-5,
) -> Handle:
    """Zero mean and unit variance over the channels of a group and what is behind them, then
    ``* weight + bias`` by channel (axis 1).

    Raises ShapeError for groups that do not divide the channels.
    """
    groups = integer("group_norm", "num_groups", num_groups, 1)
    if input.ndim < 2 or input.shape[1] % groups:
        raise ShapeError(
            f"group_norm: num_groups={groups} does not divide the channels of {input.shape}"
        )
    n, channels, *rest = input.shape
    x = input._wide().reshape(n, groups, channels // groups * math.prod(rest))
    result = layer_norm(x, None, None, eps, -1).reshape(input.shape)
    return scaled(input, "group_norm", result, (1,), weight, bias)


@operation
def instance_norm(
    input: Handle,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    eps: float = 1e-5,
) -> Handle:
    """Zero mean, unit variance of each channel of each image, then ``* weight + bias``."""
    if input.ndim < 3:
        raise ShapeError(f"instance_norm: input {input.shape} must be (N, C, ...)")
    over = tuple(range(2, input.ndim))
    x = input._wide()
    about = x - x.mean(over, True)
    off = about.mean(over, True)  # what rounding took from the mean
    variance = ((about * about).mean(over, True) - off * off).maximum(0.0)
    result = (about - off) * _inverse_root(variance + eps)
    return scaled(input, "instance_norm", result, (1,), weight, bias)


@operation
def local_response_norm(
    input: Handle, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Handle:
    """Divided by a power of the mean square of ``size`` neighbouring channels."""
    if input.ndim < 3:
        raise ShapeError(f"local_response_norm: input {input.shape} must be (N, C, ...)")
    x = input._wide()
    if not input.shape[1]:
        return x._as(input.float_type)
    ends = [(0, 0)] * input.ndim
    ends[1] = (size // 2, (size - 1) // 2)
    mean = pad(x * x, ends).window(1, size).mean(-1)
    return (x / (mean * alpha + k) ** beta)._as(input.float_type)


def _inverse_root_vjp(g: Handle, y: Handle, _: Handle) -> Handle:
    """d(1 / sqrt x) = -y^3 / 2 dx"""
    return g * y * y * y * -0.5


@custom_vjp(_inverse_root_vjp)
def _inverse_root(x: Handle) -> Handle:
    """1 / sqrt(x), rounded about once: what the root and its reciprocal left over is added."""
    root = x.sqrt()
    found = root.reciprocal()
    left = fma(-root, root, x) * found * found * 0.5
    return found + finite(found * (fma(-found, root, 1.0) - left))


_STEP = {"f32": 1.1920928955078125e-07, "f64": 2.220446049250313e-16}
