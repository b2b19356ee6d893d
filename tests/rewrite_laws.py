"""The laws of rewrites, each as a function that draws both sides from the rule itself.

A law raises AssertionError where a rule changes a value. Expressions are evaluated by the
interpreter before and after the rule, and compared bit by bit. Small domains are enumerated, larger
ones are drawn from the given random numbers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from tunegrad.ir.dtypes import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, U32, DType
from tunegrad.ir.expr import Apply, Cast, Const, Expr, IndexValue, Inside, Load, Op
from tunegrad.ir.fusion import build as simplify
from tunegrad.ir.index import ALWAYS, NEVER, Range, Valid
from tunegrad.ir.interpret.kernel import interpret
from tunegrad.ir.interpret.numeric import to_memory
from tunegrad.ir.kernel import Axis, Kernel, Param, Store

__all__ = ["LAWS", "Law"]

Array = NDArray[np.generic]
Law = Callable[[random.Random], None]

PLACE, VALUE = Axis("i", 3), Axis("j", 16)
"""Masks are of places, and at each place a load reads every value."""

FLOATS = (
    0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -2.5, 1e-45, -1e-40, 3e38, 65504.0, 2.0**31, np.inf, -np.inf,
    np.nan, 1 / 3,
)  # fmt: skip
WHOLE = (0, 1, -1, 2, -3, 7, 127, -128, 255, 256, 65535, 1 << 20, (1 << 31) - 1, -(1 << 31), 5, 31)
COMPUTED = (F32, F64, I32, I64, U8, BOOL)


def memory(name: str, dtype: DType) -> Array:
    """The values that a load of parameter ``name`` reads: those of its type, in an order of its
    own.
    """
    values = np.asarray(FLOATS if dtype.is_float else WHOLE)
    if name == "y":
        values = values[[(5 * k + 3) % len(values) for k in range(len(values))]]
    with np.errstate(all="ignore"):
        if dtype.is_half:
            return to_memory(values.astype(np.float32), dtype)
        return np.asarray(values % 2 == 1 if dtype.is_bool else values.astype(dtype.numpy))


def load(name: str, dtype: DType = F32, valid: Valid = ALWAYS) -> Load:
    return Load(f"{name}_{dtype}", (VALUE.index,), dtype, valid)


PARAMS = {
    f"{name}_{dtype}": (
        Param.dense(f"{name}_{dtype}", dtype, (VALUE.extent,), "in"),
        memory(name, dtype),
    )
    for name in "xy"
    for dtype in (F32, F64, F16, BF16, I8, I32, I64, U8, U32, BOOL)
}


def values(expressions: Iterable[Expr]) -> list[Array]:
    """What each expression is at every point, by the interpreter."""
    listed = list(expressions)
    at = (PLACE.index, VALUE.index)
    shape = (PLACE.extent, VALUE.extent)
    found: list[Array] = []
    for first in range(0, len(listed), 64):
        part = listed[first : first + 64]
        out = [Param.dense(f"o{n}", x.dtype, shape, "out") for n, x in enumerate(part)]
        stores = tuple(Store(p.name, at, x) for p, x in zip(out, part, strict=True))
        kernel = Kernel((*out, *(p for p, _ in PARAMS.values())), (PLACE, VALUE), stores)
        made = interpret(kernel, {p.name: a for p, a in PARAMS.values()})
        found += [made[p.name].reshape(shape) for p in out]
    return found


def same(a: Array, b: Array) -> bool:
    """Whether two arrays have the same type and the same bits; every NaN is one."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind != "f":
        return bool((a == b).all())
    nan = np.isnan(a) & np.isnan(b)
    return bool(((a == b) & (np.signbit(a) == np.signbit(b)) | nan).all())


def holds(valid: Valid) -> NDArray[np.bool_]:
    """Where a condition of the place holds, at every point."""
    true = [valid.holds({"i": i}) for i in range(PLACE.extent)]
    return np.repeat(np.array(true)[:, None], VALUE.extent, axis=1)


def equal(rule: str, pairs: Iterable[tuple[Expr, Expr]]) -> None:
    """Assert that two expressions of each pair are equal everywhere."""
    listed = list(pairs)
    sides = [values(side) for side in zip(*listed, strict=True)]
    for (one, other), a, b in zip(listed, *sides, strict=True):
        assert same(a, b), f"{rule}: {one} is not {other}"


MASKS = [
    *(Valid((Range(PLACE.index, lo, hi),)) for lo in range(3) for hi in range(lo + 1, 4)),
    NEVER,
]


def _masked_atoms(u: Valid, v: Valid) -> list[Expr]:
    """What is read under ``u``, some of it under ``v`` as well, and what is not read."""
    return [
        load("x", F32, u), load("y", F32, u & v), Const(0.0, F32), Const(-0.0, F32),
        Const(2.0, F32), IndexValue(PLACE.index + 1, F32),
    ]  # fmt: skip


FLOAT_UNARY = tuple(
    op for op in Op if op.arity == 1 and op not in (Op.NOT, Op.LOW, Op.HIGH)
)  # fmt: skip
FLOAT_BINARY = (
    Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.FLOORDIV, Op.MOD, Op.MAX, Op.MIN, Op.POW, Op.LT, Op.EQ,
    Op.NE,
)  # fmt: skip
INT_BINARY = (*FLOAT_BINARY[:3], *FLOAT_BINARY[4:], Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR)


def _computed(op: Op, dtype: DType) -> DType:
    return BOOL if op.compares else dtype


def _chosen(u: Valid, v: Valid) -> list[Expr]:
    """Choices by a mask of places, and by a condition of values."""
    atoms = _masked_atoms(u, v)
    return [
        Apply(Op.WHERE, (c, a, b), F32)
        for a, b in product(atoms, atoms)
        for c in (Inside(v), Apply(Op.LT, (a, b), BOOL))
    ]


def _masked_expressions(u: Valid, v: Valid, rng: random.Random) -> Iterator[Expr]:
    atoms = _masked_atoms(u, v)
    made: list[Expr] = list(atoms)
    made += [Apply(op, (a,), F32) for op in FLOAT_UNARY for a in atoms]
    made += [Cast(Cast(a, I32), F32) for a in atoms]
    made += [Apply(op, p, F32) for op in FLOAT_BINARY[:9] for p in product(atoms, atoms)]
    yield from made
    for _ in range(80):
        a, b, c = rng.choice(made), rng.choice(made), rng.choice(atoms)
        w = rng.choice(MASKS[:-1])
        sides: list[Expr] = [Apply(Op.WHERE, (Inside(w), a, b), F32), c]
        yield Apply(Op.WHERE, (Inside(v), *rng.sample(sides, 2)), F32)
    whole: list[Expr] = [load("x", I32, u), Const(0, I32), Const(3, I32)]
    yield from (
        Apply(op, p, _computed(op, I32)) for op in INT_BINARY for p in product(whole, whole)
    )


def masked(rng: random.Random) -> None:
    """masked(u, x) is where(inside(u), x, 0), for an x whose loads are masked by u."""
    for u in MASKS:
        drawn = [x for v in MASKS[:-1] for x in _chosen(u, v)]
        drawn += _masked_expressions(u, rng.choice(MASKS[:-1]), rng)
        made = values(simplify.masked(u, x) for x in drawn)
        for x, plain, found in zip(drawn, values(drawn), made, strict=True):
            want = np.where(holds(u), plain, np.zeros((), plain.dtype))
            assert same(found, want), f"masked({u}, {x}) is not where(inside({u}), {x}, 0)"


LAWS: dict[str, Law] = {"masked": masked}


CONSTANTS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    2.0,
    -0.5,
    3.0,
    13421773 / 2**27,
    2.0**-101,
    2.0**120,
    np.inf,
    np.nan,
)


def _operands(dtype: DType, name: str) -> list[Expr]:
    """A load, constants that rules look for, and conditions."""
    if dtype.is_bool:
        conditions = [Inside(MASKS[0]), Inside(MASKS[3]), Inside(MASKS[4])]
        return [load(name, BOOL), Const(True, BOOL), Const(False, BOOL), *conditions]
    if dtype.is_int:
        return [load(name, dtype), *(Const(v, dtype) for v in (0, 1, 2, 7))]
    return [load(name, dtype), *(Const(v, dtype) for v in CONSTANTS)]


def computed(rng: random.Random) -> None:
    """apply_op(op, args) is Apply(op, args): what it leaves out or folds changes no bit."""
    drawn: list[Apply] = []
    for dtype in COMPUTED:
        x, y = _operands(dtype, "x"), _operands(dtype, "y")
        if dtype.is_bool:
            drawn += [Apply(op, p, BOOL) for op in (Op.AND, Op.OR, Op.XOR) for p in product(x, y)]
            drawn += [Apply(Op.NOT, (a,), BOOL) for a in x]
        else:
            for op in FLOAT_BINARY if dtype.is_float else INT_BINARY:
                if dtype.is_int and op is Op.POW:
                    continue
                drawn += [Apply(op, p, _computed(op, dtype)) for p in product(x, y)]
        for c in _operands(BOOL, "x"):
            drawn += [Apply(Op.WHERE, (c, a, b), dtype) for a in x for b in (*x[:4], y[0])]
    equal("apply_op", [(x, simplify.apply_op(x.op, x.args, x.dtype)) for x in drawn])


def cast(rng: random.Random) -> None:
    """cast_to(x, t) is the cast of x; a constant is rounded, and f16 -> f32 -> f16 is the same."""
    types = (F32, F64, F16, BF16, I8, I32, I64, U8, U32, BOOL)
    pairs: list[tuple[Expr, Expr]] = []
    for dtype in types:
        inner: list[Expr] = [load("x", dtype)]
        if not dtype.is_half:
            numbers = (
                (True, False) if dtype.is_bool else CONSTANTS if dtype.is_float else (0, 1, 99)
            )
            inner += [Const(v, dtype) for v in numbers]
            inner += [Cast(load("x", t), dtype) for t in (F16, BF16, F32, I32)]
        for x, to in product(inner, types):
            want = x if x.dtype == to else Cast(x, to)
            if to.is_half and x.dtype not in (F32, to):
                want = Cast(Cast(x, F32), to)
            pairs.append((_seen(want), _seen(simplify.cast_to(x, to))))
    equal("cast_to", pairs)


def _seen(x: Expr) -> Expr:
    """What is stored, as numbers that can be compared."""
    return Cast(x, F32) if x.dtype.is_half else x


def index_values(rng: random.Random) -> None:
    """index_value(i, t) is i as a number of t, and inside(v) whether v holds."""
    for index in (PLACE.index, PLACE.index * 0 + 5, PLACE.index * -3 + 1):
        for dtype in (F32, I32, I64, F64):
            want = IndexValue(index, dtype)
            equal("index_value", [(want, simplify.index_value(index, dtype))])
    for u in (*MASKS, ALWAYS):
        (found,) = values([simplify.inside(u)])
        assert (found == holds(u)).all(), f"inside({u})"


LAWS |= {"computed": computed, "cast": cast, "index values": index_values}
