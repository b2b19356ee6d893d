"""Bounds on the distance of a kernel's result from its float64 value, where it is computed in its
own dtypes.

A running error analysis (N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 3.3):
next to each value v stands a bound on the error that it brings,

    x + y    ex + ey + u |v|                  exp(x)    |v| (e^ex - 1) + 64 u |v|
    x * y    |x| ey + |y| ex + ex ey + u |v|  sum of t  sum of et + 16 sqrt(n) u (sum of |t|)

with u the unit roundoff. A result that is exact and of numbers that are exact is not rounded: the
sum of small integers, exp(0). A sum is exact where all its terms are multiples of a unit, and their
sizes add up to fewer units than a significand holds, so any order gives it.

A bound is infinite where the result is undecided: next to a jump of ``floor``, where a comparison
may go either way, where something overflows on the way to a result that does not, and where both
signs of a sum overflow. It is NaN where nothing is known: a difference that may be 0 is divided by,
or no rule is given here.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from ..dtypes import F64, DType
from ..expr import FUNCTIONS, Apply, Cast, Const, Expr, IndexValue, Inside, Load, Op, Value, nodes
from ..kernel import Kernel, Reduce, Store
from .kernel import CHUNK, Points, Run, boxes_of, own_points, parts_of
from .numeric import Array

__all__ = ["IN_STEPS", "error_bounds_at", "has_jumps"]

IN_STEPS = FUNCTIONS | {Op.RECIP, Op.DIV}
"""Operations that are rounded in more than one step."""

_STEADY = frozenset((Op.NEG, Op.ABS, Op.MAX, Op.MIN, Op.TANH, Op.ERF, Op.EXP))
"""Operations with one result for an infinity and for a number beyond f32."""

_DECIDES = frozenset((Op.LOG, Op.LOG2, Op.SQRT, Op.POW, Op.SIN, Op.COS, Op.FLOOR, Op.ROUND))
"""Operations that jump, or are no number, on the other side of some argument."""

_STEPS = 64.0
"""Roundings that a function pays for: see ``tolerance``."""

_TURNS = 2.0**24
"""Sines of numbers beyond it are those of their roundings."""

_WALK = 16.0
_OVERFLOWS = 2.0**128 * (1 - 2.0**-16)
_LEAST = 2.0**-126
"""The least normal number of f32: what is smaller may be rounded to zero by a function."""


def has_jumps(k: Kernel) -> bool:
    """True if a kernel compares, floors or converts floats that it computed: a rounding may then
    change a result altogether.
    """
    return any(_jumps(x) for s in k.stages for x in nodes(s.expr))


def _jumps(x: Expr) -> bool:
    if isinstance(x, Cast):
        return not x.dtype.is_float and _computed(x.x)
    if not isinstance(x, Apply) or not any(map(_computed, x.args)):
        return False
    return x.op in (Op.FLOOR, Op.ROUND, Op.FLOORDIV, Op.MOD) or x.op.compares


def _computed(x: Expr) -> bool:
    return x.dtype.is_float and not isinstance(x, Load | Const)


def error_bounds_at(
    k: Kernel, arrays: Mapping[str, Array], points: Mapping[str, Array] | None
) -> dict[str, tuple[Array, Array]] | None:
    """Per output the offsets of the elements that the given points of the shared axes write, all of
    them for None, and the bounds of their absolute errors, both flat.

    Values are those of ``interpret_at`` in float64. None for a kernel with rows, or with values of
    16 bits on the way.
    """
    if any(r.rows for r in k.reduces) or any(
        isinstance(x, Cast) and x.dtype.is_half for s in k.stages for x in nodes(s.expr)
    ):
        return None
    run = _Bounds(k, arrays)
    found: dict[str, list[tuple[Array, Array]]] = {}
    with np.errstate(all="ignore"):
        for part in boxes_of(k) if points is None else (p for _, p in parts_of(k, points)):
            for param, offsets, bounds in run.bounds(part):
                found.setdefault(param, []).append((offsets, bounds))
    return {
        p: (np.concatenate([o for o, _ in f]), np.concatenate([e for _, e in f]))
        for p, f in found.items()
    }


def _unit(dtype: DType) -> float:
    return 2.0**-53 if dtype.compute == F64 else 2.0**-24


class _Bounds(Run):
    """A kernel on one set of arrays, with bounds beside the values. Mutable, as ``Run`` is."""

    def __init__(self, k: Kernel, arrays: Mapping[str, Array]) -> None:
        super().__init__(k, arrays, as_float64=True)
        self.sums: dict[str, Array] = {}
        """Bounds of the reductions at the points."""

    def bounds(self, points: Points) -> list[tuple[str, Array, Array]]:
        """(parameter, offsets, bounds) of every store at points of the shared axes."""
        values: dict[str, Array] = {}
        self.sums = {}
        for r in self.kernel.reduces:
            values[r.name], self.sums[r.name] = self._summed(r, points, values)
        return [
            self._bounded(s, points, values) for s in self.kernel.stages if isinstance(s, Store)
        ]

    def _bounded(
        self, s: Store, points: Points, values: dict[str, Array]
    ) -> tuple[str, Array, Array]:
        memo: dict[int, Array] = {}
        _, offsets, _ = self._store(s, points, values, memo)
        error = np.broadcast_to(self._error(s.expr, values, memo, {}), self.points.shape)
        return s.param, offsets, self._kept(s, error)

    def _summed(self, s: Reduce, points: Points, values: dict[str, Array]) -> tuple[Array, Array]:
        """A reduction and its bound."""
        value = self._fold(s, points, values)
        error, size = np.zeros(points.shape), np.zeros(points.shape)
        count, unit = np.zeros(points.shape), np.full(points.shape, np.inf)
        extent = prod(a.extent for a in s.axes)
        for first in range(0, extent, CHUNK):
            self._go_to(points, own_points(s.axes, first, min(CHUNK, extent - first)))
            memo: dict[int, Array] = {}
            x = self._flat(self._eval(s.expr, values, memo), points)
            e = self._flat(self._error(s.expr, values, memo, {}), points)
            if s.op in (Op.MAX, Op.MIN):
                error = np.maximum(error, e.max(axis=-1))
                continue
            error = _either(error + e.sum(axis=-1), error, e.max(axis=-1, initial=0.0))
            if s.op is Op.ADD and s.dtype.is_float:
                size = size + np.abs(x).sum(axis=-1)
                count = count + np.count_nonzero(x, axis=-1)
                unit = np.minimum(unit, _units(x).min(axis=-1, initial=np.inf))
        if s.op in (Op.MAX, Op.MIN):
            return value, error
        if s.op is not Op.ADD or not s.dtype.is_float:
            return value, np.where(error == 0, 0.0, np.nan)
        u = _unit(s.dtype)
        exact = (error == 0) & (size * u <= unit)
        walk = (_WALK * np.sqrt(count) + 1.0) * u * size
        found = _either(np.where(exact, 0.0, error + walk), error)
        against = (size - np.abs(value)) / 2  # what the terms of the other sign add up to
        lost = _beyond(size, s.dtype) & (~_beyond(value, s.dtype) | _beyond(against, s.dtype))
        return value, np.where(lost, np.inf, found)

    def _flat(self, x: Array, points: Points) -> Array:
        """At every point of the shared axes, its own points in a row."""
        return np.broadcast_to(x, self.points.shape).reshape(*points.shape, -1)

    def _error(
        self, x: Expr, values: dict[str, Array], memo: dict[int, Array], known: dict[int, Array]
    ) -> Array:
        found = known.get(id(x))
        if found is None:
            found = known[id(x)] = np.asarray(self._bound(x, values, memo, known))
        return found

    def _bound(
        self, x: Expr, values: dict[str, Array], memo: dict[int, Array], known: dict[int, Array]
    ) -> Array:
        if isinstance(x, Const):
            near = float(np.float32(x.value)) if x.dtype.is_float and x.dtype != F64 else x.value
            return np.asarray(abs(near - x.value) if np.isfinite(near) else 0.0)
        if isinstance(x, Load | IndexValue | Inside):
            return np.zeros(())
        if isinstance(x, Value):
            error = self.sums[x.stage]
            return error.reshape(error.shape + (1,) * self.own)
        v = self._eval(x, values, memo)
        if isinstance(x, Cast):
            inner, e = self._eval(x.x, values, memo), self._error(x.x, values, memo, known)
            if not x.dtype.is_float:
                return _certain(e, np.trunc(inner - e) == np.trunc(inner + e))
            return np.asarray(e + _rounded(v, e == 0, x.dtype))
        args = [self._eval(a, values, memo) for a in x.args]
        errors = [self._error(a, values, memo, known) for a in x.args]
        if x.op.compares:
            apart = np.abs(_float(args[0]) - _float(args[1]))
            e = errors[0] + errors[1]
            return np.where((e == 0) | (apart > e), 0.0, np.inf)
        if not x.dtype.is_float:
            total = sum(errors, start=np.zeros(()))
            return _either(np.where(total == 0, 0.0, np.nan), *errors)
        if x.op is Op.WHERE:
            chosen = np.where(args[0], errors[1], errors[2])
            return np.where(errors[0] == 0, chosen, errors[0])
        if x.op in _STEADY:
            return np.asarray(_applied(x, v, args, errors))
        found = np.asarray(_applied(x, v, args, errors))
        undecided = np.isinf(found) & (x.op in _DECIDES)
        found = np.where(undecided, np.inf, _either(found, *errors))
        over = [_beyond(a, x.dtype) for a in map(_float, args)]
        if x.op in (Op.DIV, Op.RECIP):
            found = np.where(over[-1] & np.isfinite(found), found + np.abs(v), found)
            over = over[:-1]
        lost = np.logical_or.reduce(np.broadcast_arrays(*over, np.zeros(v.shape, bool)))
        lost = lost & ~_beyond(v, x.dtype)
        if x.op in (Op.ADD, Op.SUB, Op.FMA):
            a, b = map(_float, args) if x.op is not Op.FMA else (v - _float(args[2]), args[2])
            opposite = (np.sign(a) == np.sign(b)) == (x.op is Op.SUB)
            lost = lost | (opposite & _beyond(a, x.dtype) & _beyond(b, x.dtype))
        return np.where(lost, np.inf, found)


def _float(x: Array) -> Array:
    return np.asarray(x, np.float64)


def _either(found: Array, *errors: Array) -> Array:
    """Undecided where an argument is; not known where a bound of known ones is no number."""
    undecided = np.logical_or.reduce(np.broadcast_arrays(*(np.isinf(e) for e in errors)))
    return np.where(undecided, np.inf, np.where(np.isfinite(found), found, np.nan))


def _beyond(v: Array, dtype: DType) -> Array:
    """Mask of the numbers that overflow f32, but not f64."""
    if dtype.compute == F64:
        return np.zeros(np.shape(v), bool)
    return (np.abs(v) > _OVERFLOWS) & np.isfinite(v)


def _units(x: Array) -> Array:
    """The greatest power of two that each number is a multiple of; infinity for 0."""
    fraction, exponent = np.frexp(x)
    whole = np.where(np.isfinite(x), fraction * 2.0**53, 0.0).astype(np.int64)
    return np.where(
        whole == 0, np.inf, np.ldexp((whole & -whole).astype(np.float64), exponent - 53)
    )


def _rounded(v: Array, exact: Array, dtype: DType, steps: float = 1.0) -> Any:
    """The rounding of a result, none where it is exact and representable."""
    if dtype.compute == F64:
        return steps * 2.0**-53 * np.abs(v)
    with np.errstate(all="ignore"):
        same = exact & (np.asarray(v, np.float32).astype(np.float64) == v)
    return np.where(same, 0.0, steps * 2.0**-24 * np.abs(v) + 2.0**-149)


def _certain(error: Array, same: Array) -> Array:
    return np.where((error == 0) | same, 0.0, np.inf)


def _applied(x: Apply, v: Array, args: list[Array], errors: list[Array]) -> Any:
    """The bound of a float result."""
    u, a, ea = _unit(x.dtype), _float(args[0]), errors[0]
    b, eb = (_float(args[1]), errors[1]) if len(args) > 1 else (a, ea)
    size = np.abs(v)
    rounded = _rounded(v, (ea == 0) & (eb == 0), x.dtype)
    function = _STEPS * u * size + _LEAST
    match x.op:
        case Op.NEG | Op.ABS:
            return ea
        case Op.ADD | Op.SUB:
            return ea + eb + rounded
        case Op.MUL:
            return np.abs(a) * eb + np.abs(b) * ea + ea * eb + rounded
        case Op.FMA:
            product, c = a * b, errors[2]
            once = _rounded(product, (ea == 0) & (eb == 0), x.dtype)
            both = np.abs(a) * eb + np.abs(b) * ea + ea * eb + c + once
            return both + _rounded(v, both == 0, x.dtype)
        case Op.DIV:
            left = np.maximum(np.abs(b) - eb, 0.0)
            found = (ea + size * eb) / left + 4 * u * size + _LEAST
            return np.where((ea == 0) & (eb == 0) & (v == 0), 0.0, found)
        case Op.RECIP:
            left = np.maximum(np.abs(a) - ea, 0.0)
            return ea / (np.abs(a) * left) + 4 * u * size + _LEAST
        case Op.SQRT:
            moved = ea / (size + np.sqrt(np.maximum(a - ea, 0.0)))
            found = np.where((ea > 0) & (np.abs(a) <= ea), np.inf, moved + 4 * u * size)
            return np.where((ea == 0) & (a == 0), 0.0, found)
        case Op.EXP:
            return np.where((ea == 0) & (a == 0), 0.0, size * np.expm1(ea) + function)
        case Op.LOG | Op.LOG2:
            share = ea / np.abs(a)
            moved = -np.log1p(-share) * (1.0 if x.op is Op.LOG else 1 / np.log(2))
            return np.where(share < 1, moved, np.inf) + function + 4 * u
        case Op.SIN | Op.COS:
            found = np.minimum(1.2 * ea, 2.0) + function + 8 * u
            return np.where(np.abs(a) < _TURNS, found, np.inf)
        case Op.TANH | Op.ERF:
            return np.minimum(1.2 * ea, 2.0) + function + 8 * u
        case Op.POW:
            grown = np.abs(b) * ea / np.abs(a) + np.abs(np.log(np.abs(a))) * eb
            bits = np.abs(b * np.log(np.abs(a)))
            found = size * np.expm1(grown) + (_STEPS + 4 * np.nan_to_num(bits)) * u * size + _LEAST
            return np.where((ea > 0) & (np.abs(a) <= ea), np.inf, found)
        case Op.MAX | Op.MIN:
            return np.maximum(ea, eb)
        case Op.FLOOR:
            return _certain(ea, np.floor(a - ea) == np.floor(a + ea))
        case Op.ROUND:
            return _certain(ea, np.rint(a - ea) == np.rint(a + ea))
        case _:
            return np.full(v.shape, np.nan)
