"""Constructors of expressions that simplify what is certain.

Each rule keeps every bit of the result.

op(Const ...)            -> Const          cast(cast(x: f16 -> f32) -> f16) -> x
x * 1, x / 1             -> x              x / 2^k -> x * 2^-k
where(Const, a, b)       -> a or b         where(c, true, false) -> c
inside(u) and inside(v)  -> inside(u & v)  where(inside(v), x, 0) -> x  when x is 0 outside v
"""

from __future__ import annotations

from math import frexp, isfinite

import numpy as np

from ..dtypes import BOOL, F32, DType
from ..expr import Apply, Cast, Const, Expr, IndexValue, Inside, Load, Op
from ..index import Index, Valid
from ..interpret.numeric import compute, convert

__all__ = ["apply_op", "as_compute", "cast_to", "index_value", "literal", "masked"]

_ZERO_STAYS = (Op.SQRT, Op.TANH, Op.ERF, Op.SIN, Op.ABS, Op.FLOOR, Op.TF32)


def literal(value: float | int | bool, dtype: DType) -> Const:
    """The constant as the Python type that ``dtype`` calls for, rounded to what it can hold."""
    array = convert(np.asarray(value), dtype)
    return Const(array.item(), dtype.compute)


def apply_op(op: Op, args: tuple[Expr, ...], dtype: DType) -> Expr:
    """``op`` on ``args``, simplified; ``dtype`` is the result's compute type."""
    if all(isinstance(a, Const) for a in args):
        arrays = [np.asarray(a.value, a.dtype.numpy) for a in args if isinstance(a, Const)]
        return Const(compute(op, *arrays).astype(dtype.numpy).item(), dtype)
    if op is Op.MUL and any(_is(a, 1) for a in args):
        return args[1] if _is(args[0], 1) else args[0]
    if op is Op.DIV and isinstance(args[1], Const):
        return _divided(args[0], args[1])
    if op is Op.WHERE:
        return _where(args[0], args[1], args[2])
    if op is Op.AND and isinstance(args[0], Inside) and isinstance(args[1], Inside):
        return inside(args[0].valid & args[1].valid)
    if op is Op.AND and dtype.is_bool and any(_is(a, True) for a in args):
        return args[1] if _is(args[0], True) else args[0]
    return Apply(op, args, dtype)


def _is(x: Expr, value: float | bool) -> bool:
    return isinstance(x, Const) and x.value == value


def _divided(x: Expr, by: Const) -> Expr:
    """x / 1 -> x;  x / 2^k -> x * 2^-k"""
    value = float(by.value)
    if value == 1.0:
        return x
    if (
        value
        and isfinite(value)
        and abs(frexp(value)[0]) == 0.5
        and 2.0**-100 < abs(value) < 2.0**100
    ):
        return Apply(Op.MUL, (x, Const(1.0 / value, by.dtype)), by.dtype)
    return Apply(Op.DIV, (x, by), by.dtype)


def _where(c: Expr, a: Expr, b: Expr) -> Expr:
    """where(true, a, b) -> a;  where(c, true, false) -> c;  where(c, a, a) -> a"""
    if isinstance(c, Const):
        return a if c.value else b
    if a is b:
        return a
    if _is(a, True) and _is(b, False) and a.dtype.is_bool:
        return c
    return Apply(Op.WHERE, (c, a, b), a.dtype)


def cast_to(x: Expr, dtype: DType) -> Expr:
    """``x`` as ``dtype``, which may be a stored type (f16, bf16)."""
    if x.dtype == dtype:
        return x
    if isinstance(x, Const) and not dtype.is_half:
        return literal(x.value, dtype)
    if isinstance(x, Cast) and x.dtype == F32 and x.x.dtype == dtype and dtype.is_half:
        return x.x
    return Cast(cast_to(x, F32) if dtype.is_half else x, dtype)


def as_compute(x: Expr) -> Expr:
    """``x`` in the type that arithmetic on it happens in."""
    return cast_to(x, x.dtype.compute)


def inside(valid: Valid) -> Expr:
    """The condition as an expression."""
    return Const(not valid.never, BOOL) if valid.always or valid.never else Inside(valid)


def index_value(index: Index, dtype: DType) -> Expr:
    """An index as a number."""
    return literal(index.const, dtype) if index.is_const else IndexValue(index, dtype)


def masked(valid: Valid, x: Expr) -> Expr:
    """where(inside(valid), x, 0), for an ``x`` whose loads are masked by ``valid`` already.

    A pad of a pad is one: where(inside(u), where(inside(v), x, 0), 0) -> where(inside(u & v), x,
    0). That 0 is the constant: a load is 0 outside ``u`` alone.
    """
    if valid.always or _vanishes(x):
        return x
    zero = literal(0, x.dtype)
    if valid.never:
        return zero
    if (
        isinstance(x, Apply)
        and x.op is Op.WHERE
        and isinstance(x.args[0], Inside)
        and isinstance(x.args[2], Const)
        and _vanishes(x.args[2])
    ):
        return masked(valid & x.args[0].valid, x.args[1])
    return _where(inside(valid), x, zero)


def _vanishes(x: Expr) -> bool:
    """True if ``x`` is +0 when all its loads are."""
    if isinstance(x, Load):
        return True
    if isinstance(x, Const):
        return x.value == 0 and not str(x.value).startswith("-")
    if isinstance(x, Cast):
        return _vanishes(x.x)
    if not isinstance(x, Apply):
        return False
    if x.op in _ZERO_STAYS:
        return _vanishes(x.args[0])
    if x.op in (Op.PAIR, Op.LOW, Op.HIGH, Op.QUAD):
        return all(_vanishes(a) for a in x.args)
    if x.op in (Op.ADD, Op.SUB, Op.MAX, Op.MIN, Op.AND, Op.OR, Op.XOR):
        return _vanishes(x.args[0]) and _vanishes(x.args[1])
    if x.op is Op.MUL:
        a, b = x.args
        return (_vanishes(a) and (_vanishes(b) or _positive(b))) or (_vanishes(b) and _positive(a))
    if x.op is Op.WHERE:
        return _vanishes(x.args[1]) and _vanishes(x.args[2])
    return False


def _positive(x: Expr) -> bool:
    return isinstance(x, Const) and x.value > 0 and isfinite(x.value)
