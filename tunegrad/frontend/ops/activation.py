"""Activations of ``torch.nn.functional``: 16-bit floats are computed in f32 and rounded once."""

from __future__ import annotations

import math
from typing import Literal

from tunegrad.errors import DTypeError, ShapeError

from ..handle import Handle, TensorLike, lift, where
from ..nodes.movement import axis_of
from ..operation import floating, operation
from ..vjp import custom_vjp
from .movement import chunk
from .special import expm1, log1p, tanh


def _relu_vjp(g: Handle, y: Handle, _: Handle) -> Handle:
    """d(relu x): to what is above zero, which the result says: products then read that alone"""
    return where(y <= 0, 0.0, g)


@operation
@custom_vjp(_relu_vjp)
def relu(input: Handle) -> Handle:
    """The larger of input and zero; NaN stays NaN."""
    return input.maximum(0)


def _relu6_vjp(g: Handle, _: Handle, input: Handle) -> Handle:
    """d(relu6 x): to what is between the bounds"""
    return where((input > 0) & (input < 6), g, 0.0)


@operation
@custom_vjp(_relu6_vjp)
def relu6(input: Handle) -> Handle:
    """input between 0 and 6."""
    return input.clamp(0, 6)


def _sigmoid_vjp(g: Handle, y: Handle, _: Handle) -> Handle:
    """d(sigmoid x) = y (1 - y) dx"""
    return g * y * (1 - y)


@operation
@floating
@custom_vjp(_sigmoid_vjp)
def sigmoid(input: Handle) -> Handle:
    """1 / (1 + exp(-input))."""
    return ((-input).exp() + 1).reciprocal()


def _logsigmoid_vjp(g: Handle, _: Handle, input: Handle) -> Handle:
    """d(log sigmoid x) = sigmoid(-x) dx"""
    return g * sigmoid(-input)


@operation
@floating
@custom_vjp(_logsigmoid_vjp)
def logsigmoid(input: Handle) -> Handle:
    """log(sigmoid(input)), without overflow on the way."""
    return input.minimum(0) - log1p((-input.abs()).exp())


@operation
@floating
def silu(input: Handle) -> Handle:
    """input * sigmoid(input)."""
    return input * sigmoid(input)


@operation
@floating
def gelu(input: Handle, approximate: Literal["none", "tanh"] = "none") -> Handle:
    """input * P(Z <= input) of a standard normal Z: by erf, or by the tanh formula of Hendrycks
    and Gimpel 2016.
    """
    x = input
    if approximate == "none":
        return x * 0.5 * ((x * math.sqrt(0.5)).erf() + 1)
    if approximate == "tanh":
        return x * 0.5 * (tanh((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)) + 1)
    raise ShapeError(f"gelu: approximate={approximate!r} is not one of 'none', 'tanh'")


@operation
@floating
def leaky_relu(input: Handle, negative_slope: float = 0.01) -> Handle:
    """input where positive, else negative_slope * input."""
    return where(input > 0, input, input * negative_slope)


@operation
@floating
def prelu(input: Handle, weight: TensorLike) -> Handle:
    """input where positive, else weight * input, one weight for all channels (axis 1) or each."""
    w = lift(weight, "prelu")._wide()
    if w.ndim == 1 and w.shape[0] != 1 and input.ndim > 1:
        if w.shape[0] != input.shape[1]:
            raise ShapeError(f"prelu: weight {w.shape} for the channels of {input.shape}")
        w = w.reshape(-1, *(1 for _ in input.shape[2:]))
    return where(input > 0, input, input * w)


@operation
@floating
def rrelu(input: Handle, lower: float = 1 / 8, upper: float = 1 / 3) -> Handle:
    """input where positive, else input by the mean of the two slopes, as in inference."""
    return where(input > 0, input, input * ((lower + upper) / 2))


def _elu_vjp(g: Handle, y: Handle, input: Handle, alpha: float = 1.0) -> Handle:
    """d(elu x) = dx above zero, else (y + alpha) dx"""
    return where(input > 0, g, g * (y + alpha))


@operation
@floating
@custom_vjp(_elu_vjp)
def elu(input: Handle, alpha: float = 1.0) -> Handle:
    """input where positive, else alpha * (exp(input) - 1)."""
    return where(input > 0, input, expm1(input.minimum(0)) * alpha)


@operation
@floating
def selu(input: Handle) -> Handle:
    """``elu``, scaled so that means and variances stay (Klambauer et al. 2017)."""
    return elu(input, 1.6732632423543772) * 1.0507009873554805


def _celu_vjp(g: Handle, y: Handle, input: Handle, alpha: float = 1.0) -> Handle:
    """d(celu x) = dx above zero, else (y / alpha + 1) dx"""
    return where(input > 0, g, g * (y / alpha + 1))


@operation
@floating
@custom_vjp(_celu_vjp)
def celu(input: Handle, alpha: float = 1.0) -> Handle:
    """input where positive, else alpha * (exp(input / alpha) - 1)."""
    return where(input > 0, input, expm1(input.minimum(0) / alpha) * alpha)


def _softplus_vjp(
    g: Handle, _: Handle, input: Handle, beta: float = 1.0, threshold: float = 20.0
) -> Handle:
    """d(softplus x) = sigmoid(beta x) dx; dx beyond the threshold"""
    x = input * beta
    return where(x > threshold, g, g * sigmoid(x))


@operation
@floating
@custom_vjp(_softplus_vjp)
def softplus(input: Handle, beta: float = 1.0, threshold: float = 20.0) -> Handle:
    """log(1 + exp(beta * input)) / beta; input where beta * input is beyond the threshold."""
    x = input * beta
    return where(x > threshold, input, (x.maximum(0) + log1p((-x.abs()).exp())) / beta)


@operation
@floating
def softsign(input: Handle) -> Handle:
    """input / (1 + |input|)."""
    return input / (input.abs() + 1)


@operation
@floating
def mish(input: Handle) -> Handle:
    """input * tanh(softplus(input))."""
    return input * tanh(softplus(input))


def _hardtanh_vjp(
    g: Handle, _: Handle, input: Handle, min_val: float = -1.0, max_val: float = 1.0
) -> Handle:
    """d(hardtanh x): to what is between the bounds"""
    return where((input > min_val) & (input < max_val), g, 0.0)


@operation
@custom_vjp(_hardtanh_vjp)
def hardtanh(input: Handle, min_val: float = -1.0, max_val: float = 1.0) -> Handle:
    """input between two bounds; of integers, bounds are rounded towards zero.

    Raises DTypeError for a bound that its type does not hold.
    """
    if not input.dtype.is_int:
        return input.clamp(min_val, max_val)
    low, high = int(min_val), int(max_val)
    return input.clamp(_held("min_val", low, input), _held("max_val", high, input))


def _held(name: str, bound: int, input: Handle) -> int:
    if not input.dtype.least <= bound <= input.dtype.greatest:
        raise DTypeError(f"hardtanh: {name}={bound} is not a value of {input.dtype}")
    return bound


def _hardsigmoid_vjp(g: Handle, _: Handle, input: Handle) -> Handle:
    """d(hardsigmoid x) = dx / 6 between the bounds"""
    return where((input > -3) & (input < 3), g * (1 / 6), 0.0)


@operation
@floating
@custom_vjp(_hardsigmoid_vjp)
def hardsigmoid(input: Handle) -> Handle:
    """(input + 3) / 6, between 0 and 1."""
    return (input + 3).clamp(0, 6) * (1 / 6)


def _hardswish_vjp(g: Handle, _: Handle, input: Handle) -> Handle:
    """d(hardswish x) = (x / 3 + 1 / 2) dx between the bounds, dx above"""
    return where(input <= -3, 0.0, where(input < 3, g * (input / 3 + 0.5), g))


@operation
@floating
@custom_vjp(_hardswish_vjp)
def hardswish(input: Handle) -> Handle:
    """input * hardsigmoid(input)."""
    return input * (input + 3).clamp(0, 6) * (1 / 6)


@operation
def hardshrink(input: Handle, lambd: float = 0.5) -> Handle:
    """input beyond ``lambd`` on either side, else zero."""
    return where((input >= -lambd) & (input <= lambd), 0, input)


@operation
def softshrink(input: Handle, lambd: float = 0.5) -> Handle:
    """Elements beyond ``lambd`` on either side, moved towards zero by it; else zero."""
    return where(input > lambd, input - lambd, where(input < -lambd, input + lambd, input * 0))


@operation
@floating
def tanhshrink(input: Handle) -> Handle:
    """input - tanh(input)."""
    return input - tanh(input)


@operation
def threshold(input: Handle, threshold: float, value: float) -> Handle:
    """input where it is beyond the threshold or NaN, else ``value``; of integers, both are rounded
    towards zero.
    """
    if input.dtype.is_int:
        threshold, value = int(threshold), int(value)
    return where(input <= threshold, value, input)


@operation
def glu(input: Handle, dim: int = -1) -> Handle:
    """The first half along ``dim`` by the sigmoid of the second.

    Raises ShapeError for an odd extent.
    """
    at = axis_of("glu", dim, input.shape)
    if input.shape[at] % 2:
        raise ShapeError(f"glu: extent {input.shape[at]} of dimension {at} of {input.shape} is odd")
    a, b = chunk(input._wide(), 2, at)
    return (a * sigmoid(b))._as(input.float_type)
