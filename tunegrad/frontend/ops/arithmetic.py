"""Arithmetic, bounds, comparisons and logic by name, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Concatenate, Literal, ParamSpec

import numpy as np

from tunegrad.errors import DTypeError, ShapeError
from tunegrad.ir import graph

from ..handle import Handle, TensorLike, beside, floats, lift, where
from ..nodes import tracing
from ..nodes.arrays import representable
from ..nodes.elementwise import Scalar, constant, result_type
from ..operation import Operation, named, operation
from ..vjp import custom_vjp

P = ParamSpec("P")


def _operator(
    method: Callable[Concatenate[Handle, P], Handle], name: str, says: str
) -> Operation[P]:
    """An operator of handles as an operation of this module."""
    made: Operation[P] = named(method, name, says)
    made.__module__ = __name__
    return made


mul = _operator(Handle.__mul__, "mul", "``input * other``.")
floor_divide = _operator(
    Handle.__floordiv__, "floor_divide",
    "``input // other``, rounded down; of integers by a 0 in a tensor it is 0, as in numpy.",
)  # fmt: skip
remainder = _operator(
    Handle.__mod__, "remainder",
    "The rest of the division, with the divisor's sign: ``input % other``.",
)  # fmt: skip
eq = _operator(Handle.__eq__, "eq", "True where an element equals the other's.")
ne = _operator(Handle.__ne__, "ne", "True where an element differs from the other's.")
lt = _operator(Handle.__lt__, "lt", "True where an element is less.")
le = _operator(Handle.__le__, "le", "True where an element is less or equal.")
gt = _operator(Handle.__gt__, "gt", "True where an element is greater.")
ge = _operator(Handle.__ge__, "ge", "True where an element is greater or equal.")
bitwise_and = _operator(Handle.__and__, "bitwise_and", "``input & other``.")
bitwise_or = _operator(Handle.__or__, "bitwise_or", "``input | other``.")
bitwise_xor = _operator(Handle.__xor__, "bitwise_xor", "``input ^ other``.")
bitwise_left_shift = _operator(Handle.__lshift__, "bitwise_left_shift", "``input << other``.")
bitwise_right_shift = _operator(Handle.__rshift__, "bitwise_right_shift", "``input >> other``.")
bitwise_not = _operator(Handle.__invert__, "bitwise_not", "``~input``.")


@operation
def add(input: Handle, other: TensorLike, *, alpha: Scalar = 1) -> Handle:
    """``input + alpha * other``."""
    return input + other if alpha == 1 else _sum("add", input, other, alpha)


@operation
def sub(input: Handle, other: TensorLike, *, alpha: Scalar = 1) -> Handle:
    """``input - alpha * other``."""
    return input - other if alpha == 1 else _sum("sub", input, other, alpha, -1)


@operation
def rsub(input: Handle, other: TensorLike, *, alpha: Scalar = 1) -> Handle:
    """``other - alpha * input``."""
    y = beside(input, other, "rsub")
    return y - input if alpha == 1 else _sum("rsub", y, input, alpha, -1)


def _sum(op: str, input: Handle, other: TensorLike, by: Scalar, sign: int = 1) -> Handle:
    """``input + sign * by * other``. Of floats all are rounded to the result's type first, ``by``
    too, and the sum once.
    """
    y = beside(input, other, op)
    if input.dtype.is_float or y.dtype.is_float:
        kind, (first, second) = floats(op, input, y)
        return (first + second * (sign * representable(by, kind, op)))._as(kind)
    term = scaled(op, input, y, by)
    return input + term if sign > 0 else input - term


def scaled(op: str, input: Handle, other: TensorLike, by: Scalar, name: str = "alpha") -> Handle:
    """``other`` as often as ``name`` says, to be added to input; integers remain such.

    Raises DTypeError for tensors of integers and a number that is none.
    """
    x = beside(input, other, op)
    if by == 1 or input.dtype.is_float or x.dtype.is_float:
        return x if by == 1 else x * by
    if not math.isfinite(by) or by != int(by):
        raise DTypeError(
            f"{op}: {name}={by} is no integer, and the tensors are {input.dtype} and {x.dtype}"
        )
    return (x * int(by))._as(x.dtype)


@operation
def div(
    input: Handle, other: TensorLike, *, rounding_mode: Literal["trunc", "floor"] | None = None
) -> Handle:
    """``input / other``; rounded towards zero or down, where that is asked for.

    Raises ShapeError for another ``rounding_mode``.
    """
    if rounding_mode is None:
        return input / other
    if rounding_mode == "floor":
        return input // other
    if rounding_mode != "trunc":
        raise ShapeError(f"div: rounding_mode={rounding_mode!r} is not None, 'trunc' or 'floor'")
    below = beside(input, other, "div")
    if input.dtype.is_float or below.dtype.is_float:
        return trunc(input / other)
    down, exact = input // other, input % other == 0
    return down + ((down < 0) & ~exact).cast(down.dtype)


def _fmod_vjp(g: Handle, _: Handle, input: Handle, other: TensorLike) -> tuple[Handle, Handle]:
    """d(fmod(a, b)) = da - trunc(a / b) db"""
    return g, -g * trunc(input / other)


@operation
@custom_vjp(_fmod_vjp)
def fmod(input: Handle, other: TensorLike) -> Handle:
    """The rest of the division, with the dividend's sign."""
    by = beside(input, other, "fmod")
    if input.dtype.is_float or by.dtype.is_float:
        kind = result_type(input.node, by.node)  # the smallest integer has no absolute value
        x, y = input._as(kind), by._as(kind)
        return copysign(x.abs() % y.abs(), x)
    rest = input % by  # with the divisor's sign
    return where((rest != 0) & ((rest < 0) != (input < 0)), rest - by, rest)


def _fmax_vjp(g: Handle, _: Handle, input: Handle, other: TensorLike) -> tuple[Handle, Handle]:
    """d(fmax(a, b)): to the larger one, the first of equal ones"""
    y = lift(other, "fmax")
    first = (input >= y) | (y != y)
    return where(first, g, 0.0), where(first, 0.0, g)


@operation
@custom_vjp(_fmax_vjp)
def fmax(input: Handle, other: TensorLike) -> Handle:
    """The larger one; the other one where either is NaN."""
    y = beside(input, other, "fmax")
    return where(input != input, y, where(y != y, input, input.maximum(y)))


def _fmin_vjp(g: Handle, _: Handle, input: Handle, other: TensorLike) -> tuple[Handle, Handle]:
    """d(fmin(a, b)): to the smaller one, the first of equal ones"""
    y = lift(other, "fmin")
    first = (input <= y) | (y != y)
    return where(first, g, 0.0), where(first, 0.0, g)


@operation
@custom_vjp(_fmin_vjp)
def fmin(input: Handle, other: TensorLike) -> Handle:
    """The smaller one; the other one where either is NaN."""
    y = beside(input, other, "fmin")
    return where(input != input, y, where(y != y, input, input.minimum(y)))


def _copysign_vjp(g: Handle, y: Handle, input: Handle, _: TensorLike) -> tuple[Handle, Handle]:
    """d(copysign(a, b)) = da where the signs are equal, else -da; 0 where a is; 0 db"""
    same, none = signbit(input) == signbit(y), Handle.of(constant(0.0, g.shape, g.dtype))
    return where(input == 0, 0.0, where(same, g, -g)), none


@operation
@custom_vjp(_copysign_vjp)
def copysign(input: Handle, other: TensorLike) -> Handle:
    """The size of input with the sign of ``other``."""
    kind, (x, y) = floats("copysign", input, other)
    return where(signbit(y), -x.abs(), x.abs())._as(kind)


@operation
def lerp(input: Handle, end: TensorLike, weight: TensorLike) -> Handle:
    """``input + weight * (end - input)``.

    From weights of a half on it is reckoned from the end, which a weight of 1 gives to the bit.
    """
    kind, (first, last, part) = floats("lerp", input, end, weight)
    way = last - first
    near, far = first + part * way, last - way * (1 - part)
    if isinstance(weight, int | float):
        return (near if abs(weight) < 0.5 else far)._as(kind)
    return where(abs(part) < 0.5, near, far)._as(kind)


def _in_one_type(op: str, input: Handle, *others: TensorLike) -> list[Handle]:
    """The others in the type that all have together with input."""
    found = [beside(input, x, op) for x in others]
    kind = result_type(input.node, *(x.node for x in found))
    return [x._as(kind) for x in found]


@operation
def addcmul(
    input: Handle, tensor1: TensorLike, tensor2: TensorLike, *, value: Scalar = 1
) -> Handle:
    """``input + value * tensor1 * tensor2``."""
    one, two = _in_one_type("addcmul", input, tensor1, tensor2)
    if one.dtype.is_half:  # which are rounded once
        return (input._wide() + one._wide() * value * two._wide())._as(one.dtype)
    return input + scaled("addcmul", input, one, value, "value") * two


@operation
def addcdiv(
    input: Handle, tensor1: TensorLike, tensor2: TensorLike, *, value: Scalar = 1
) -> Handle:
    """``input + value * tensor1 / tensor2``."""
    one, two = _in_one_type("addcdiv", input, tensor1, tensor2)
    if one.dtype.is_half:
        return (input._wide() + one._wide() * value / two._wide())._as(one.dtype)
    return input + one * value / two


@operation
def masked_fill(input: Handle, mask: TensorLike, value: TensorLike) -> Handle:
    """``value`` where the bool ``mask`` holds, else input."""
    return where(lift(mask, "masked_fill"), value, input)._as(input.dtype)


@operation
def clamp_min(input: Handle, min: TensorLike) -> Handle:
    """At least ``min``."""
    return input.clamp(min)


@operation
def clamp_max(input: Handle, max: TensorLike) -> Handle:
    """At most ``max``."""
    return input.clamp(None, max)


@operation
def nan_to_num(
    input: Handle,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Handle:
    """NaN and infinities as numbers; by default zero and the largest and smallest float."""
    if not input.dtype.is_float:
        return input
    top = _LARGEST[input.dtype.name]
    high, low = top if posinf is None else posinf, -top if neginf is None else neginf
    finite = where(input == math.inf, high, where(input == -math.inf, low, input))
    return where(input != input, nan, finite)


@operation
def sign(input: Handle) -> Handle:
    """-1, 0 or 1; 0 of NaN, as PyTorch has it."""
    if input.dtype.is_bool:
        return input
    found = (input > 0).cast(input.dtype) - (input < 0).cast(input.dtype)
    if not input.dtype.is_float or not tracing.marks(input.node):
        return found
    return Handle.of(tracing.as_if(found.node, input.floor().node), found.bindings)  # as level


@operation
def ceil(input: Handle) -> Handle:
    """The smallest whole number that is not smaller."""
    return -(-input).floor() if input.dtype.is_float else input


@operation
def trunc(input: Handle) -> Handle:
    """The whole part."""
    if not input.dtype.is_float:
        return input
    return where(input < 0, ceil(input), input.floor())


@operation
def frac(input: Handle) -> Handle:
    """The fraction that ``trunc`` cuts off."""
    return input - trunc(input)


_LARGEST = {
    "bf16": 3.3895313892515355e38, "f16": 65504.0, "f32": float(np.finfo(np.float32).max),
    "f64": float(np.finfo(np.float64).max),
}  # fmt: skip
"""The largest finite float of each type."""


@operation
def isclose(
    input: Handle,
    other: TensorLike,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> Handle:
    """True where ``|input - other| <= atol + rtol * |other|``; infinities are close to
    themselves alone, and NaN to nothing unless ``equal_nan``.
    """
    x, y = input._wide(), beside(input, other, "isclose")._wide()
    near = ((x - y).abs() <= y.abs() * rtol + atol) & (y.abs() != math.inf)
    close = (x == y) | near
    return close | ((x != x) & (y != y)) if equal_nan else close


@operation
def isnan(input: Handle) -> Handle:
    """True where an element is no number."""
    return input != input


@operation
def isinf(input: Handle) -> Handle:
    """True where an element is infinite, of either sign."""
    return _float_or_zero(input).abs() == math.inf


@operation
def isposinf(input: Handle) -> Handle:
    """True where an element is plus infinity."""
    return _float_or_zero(input) == math.inf


@operation
def isneginf(input: Handle) -> Handle:
    """True where an element is minus infinity."""
    return _float_or_zero(input) == -math.inf


@operation
def isfinite(input: Handle) -> Handle:
    """True where an element is a number and not infinite."""
    return _float_or_zero(input).abs() < math.inf


@operation
def signbit(input: Handle) -> Handle:
    """True where an element has a minus sign; zeros have one, too."""
    if not input.dtype.is_float:
        return input < 0 if input.dtype.is_int else input & False
    return (input < 0) | ((input == 0) & (input._wide().reciprocal() < 0))


@operation
def heaviside(input: Handle, values: TensorLike) -> Handle:
    """0 below zero and of NaN, 1 above, ``values`` at zero."""
    return where(input == 0, beside(input, values, "heaviside"), (input > 0).cast(input.dtype))


@operation
def logical_and(input: Handle, other: TensorLike) -> Handle:
    """True where both are other than zero."""
    return _truth(input) & _truth(lift(other, "logical_and"))


@operation
def logical_or(input: Handle, other: TensorLike) -> Handle:
    """True where at least one is other than zero."""
    return _truth(input) | _truth(lift(other, "logical_or"))


@operation
def logical_xor(input: Handle, other: TensorLike) -> Handle:
    """True where exactly one is other than zero."""
    return _truth(input) ^ _truth(lift(other, "logical_xor"))


@operation
def logical_not(input: Handle) -> Handle:
    """True where an element is zero."""
    return ~_truth(input)


def _truth(input: Handle) -> Handle:
    return input.cast("bool")


def _float_or_zero(input: Handle) -> Handle:
    """input, or zeros where its type has no infinities."""
    if input.dtype.is_float:
        return input
    return input._with(graph.full(0.0, input.shape, input.float_type))
