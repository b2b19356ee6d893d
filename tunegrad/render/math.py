"""Elementary functions as text: definitions in LLVM IR that a renderer appends to its module and
calls.

f32 is vector code without any call; sin and cos have one branch, for sizes that are rare. f64,
which only the reference uses, is one call of the C library for each lane. With AVX-512, exp and erf
have bodies of sixteen lanes of their own; other lane counts go through those, so that an element is
the same bits wherever a schedule computes it. Lanes are independent, no rounding mode but the
default is supported, and floating-point exception flags mean nothing.

Every function is ``internal alwaysinline``: a pass pipeline without an always-inliner leaves them
as calls of local functions, whose vectors then pass through memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache

from tunegrad.errors import InternalError
from tunegrad.ir.dtypes import F32, F64, DType
from tunegrad.ir.expr import Op
from tunegrad.lazy import dataclass

from . import math_avx512, math_f32
from .llvm_values import shuffle_mask
from .math_body import Body, Scalar, Val, vector_type

FUNCTIONS = frozenset(
    (Op.EXP, Op.LOG, Op.LOG2, Op.LOG10, Op.TANH, Op.ERF, Op.SIN, Op.COS, Op.TAN, Op.POW)
)
"""The operations that have a definition here."""

_UNARY: dict[Op, Callable[[Body, Val], Val]] = {
    Op.EXP: math_f32.exp,
    Op.LOG: math_f32.log,
    Op.LOG2: math_f32.log2,
    Op.LOG10: math_f32.log10,
    Op.TANH: math_f32.tanh,
    Op.ERF: math_f32.erf,
    Op.SIN: math_f32.sin,
    Op.COS: math_f32.cos,
    Op.TAN: math_f32.tan,
}

_AVX512: dict[Op, Callable[[Body, Val], Val]] = {Op.EXP: math_avx512.exp, Op.ERF: math_avx512.erf}


@dataclass(frozen=True, slots=True)
class Definition:
    """A function's name, without ``@``, its text, and its ``declare`` lines, sorted."""

    name: str
    text: str
    declared: tuple[str, ...] = ()


@cache
def definitions(op: Op, dtype: DType, lanes: int, avx512: bool = False) -> tuple[Definition, ...]:
    """All that a call of ``op`` on vectors of ``lanes`` (1: scalars) of f32 or f64 needs, the
    function to call last.

        definitions(Op.EXP, F32, 16)  ->  "tg.exp.f32x16",
                                          "define internal <16 x float> @tg.exp.f32x16(...) ..."

    Written once for each width that is asked for. POW has two parameters. Raises InternalError for
    an operation, dtype or lane count without a definition: a cast was forgotten.
    """
    if op is Op.POW and dtype.is_int:
        return (_integer_power(dtype, lanes),)
    if not avx512 or op not in _AVX512 or dtype != F32 or lanes < 1:
        return (_definition(op, dtype, lanes),)
    body = Body(math_avx512.LANES)
    result = _AVX512[op](body, Val("%x", "float"))
    whole = _function(_name(op, dtype, math_avx512.LANES), body, [Val("%x", "float")], result)
    if lanes == math_avx512.LANES:
        return (whole,)
    name = _name(op, dtype, lanes)
    return whole, Definition(name, _through(name, whole.name, lanes))


def _through(name: str, whole: str, lanes: int) -> str:
    """A function of any number of lanes that calls the one of sixteen."""
    part, kind = vector_type("float", math_avx512.LANES), vector_type("float", lanes)
    vector = f"<{lanes} x float>"
    lines = [] if lanes > 1 else [f"  %v = insertelement {vector} poison, float %x, i32 0"]
    source, parts, joined = (
        ("%x" if lanes > 1 else "%v"),
        range(-(-lanes // math_avx512.LANES)),
        "poison",
    )
    for i in parts:
        first = i * math_avx512.LANES
        count = min(math_avx512.LANES, lanes - first)
        taken = [first + j if j < count else None for j in range(math_avx512.LANES)]
        placed = [
            j if j < first else lanes + j - first if j < first + count else None
            for j in range(lanes)
        ]
        spread = [j if j < count else None for j in range(lanes)]
        lines += [
            f"  %p{i} = shufflevector {vector} {source}, {vector} poison, {shuffle_mask(taken)}",
            f"  %q{i} = call {part} @{whole}({part} %p{i})",
            f"  %r{i} = shufflevector {part} %q{i}, {part} poison, {shuffle_mask(spread)}",
            f"  %s{i} = shufflevector {vector} {joined}, {vector} %r{i}, {shuffle_mask(placed)}",
        ]
        joined = f"%s{i}"
    result = joined
    if lanes == 1:
        lines.append(f"  %y = extractelement {vector} {joined}, i32 0")
        result = "%y"
    head = f"define internal {kind} @{name}({kind} %x) alwaysinline nounwind {{"
    return "\n".join((head, *lines, f"  ret {kind} {result}", "}", ""))


@cache
def _definition(op: Op, dtype: DType, lanes: int) -> Definition:
    if op not in FUNCTIONS or dtype not in (F32, F64) or lanes < 1:
        have = ", ".join(sorted(FUNCTIONS))
        rule = f"definitions exist for {have} on 1 or more lanes of f32 or f64"
        raise InternalError(f"{op} on {lanes} lanes of {dtype}: {rule}")
    scalar: Scalar = "float" if dtype == F32 else "double"
    parameters = tuple(Val(name, scalar) for name in ("%x", "%y")[: op.arity])
    body = Body(lanes)
    return _function(
        _name(op, dtype, lanes), body, parameters, _result(op, dtype, body, parameters)
    )


def _integer_power(dtype: DType, lanes: int) -> Definition:
    """By squaring, a step for each bit of the exponent.

    As a number without a sign an exponent has the same parity, which is all that counts for 1 and
    -1; other numbers to a negative power are 0.
    """
    one, name = f"i{dtype.bits}", _name(Op.POW, dtype, lanes)
    kind, mask = (one, "i1") if lanes == 1 else (f"<{lanes} x {one}>", f"<{lanes} x i1>")

    def number(value: int) -> str:
        return str(value) if lanes == 1 else f"splat ({one} {value})"

    lines = [
        f"define internal {kind} @{name}({kind} %x, {kind} %y) alwaysinline nounwind {{",
        "entry:", "  br label %loop", "loop:",
        f"  %r = phi {kind} [ {number(1)}, %entry ], [ %r2, %loop ]",
        f"  %b = phi {kind} [ %x, %entry ], [ %b2, %loop ]",
        f"  %e = phi {kind} [ %y, %entry ], [ %e2, %loop ]",
        "  %i = phi i32 [ 0, %entry ], [ %i2, %loop ]",
        f"  %bit = trunc {kind} %e to {mask}", f"  %m = mul {kind} %r, %b",
        f"  %r2 = select {mask} %bit, {kind} %m, {kind} %r", f"  %b2 = mul {kind} %b, %b",
        f"  %e2 = lshr {kind} %e, {number(1)}", "  %i2 = add i32 %i, 1",
        f"  %done = icmp eq i32 %i2, {dtype.bits}", "  br i1 %done, label %end, label %loop",
        "end:",
    ]  # fmt: skip
    result = "%r2"
    if dtype.signed:
        lines += [
            f"  %up = add {kind} %x, {number(1)}",
            f"  %far = icmp ugt {kind} %up, {number(2)}",
            f"  %zero = icmp eq {kind} %x, {number(0)}",
            f"  %other = or {mask} %far, %zero", f"  %neg = icmp slt {kind} %y, {number(0)}",
            f"  %none = and {mask} %other, %neg",
            f"  %z = select {mask} %none, {kind} {number(0)}, {kind} %r2",
        ]  # fmt: skip
        result = "%z"
    return Definition(name, "\n".join((*lines, f"  ret {kind} {result}", "}", "")))


def _name(op: Op, dtype: DType, lanes: int) -> str:
    return f"tg.{op}.{dtype}x{lanes}"


def _function(name: str, body: Body, parameters: Sequence[Val], result: Val) -> Definition:
    kind = vector_type(result.scalar, body.lanes)
    arguments = ", ".join(f"{kind} {p.text}" for p in parameters)
    head = f"define internal {kind} @{name}({arguments}) alwaysinline nounwind {{"
    text = "\n".join((head, *body.lines, f"  ret {kind} {result.text}", "}", ""))
    return Definition(name, text, tuple(sorted(body.declared)))


def library(wanted: Iterable[tuple[Op, DType, int]], avx512: bool = False) -> str:
    """All that a module needs to call these functions: each text once, sorted."""
    found = {
        d.name: d for op, dtype, lanes in set(wanted) for d in definitions(op, dtype, lanes, avx512)
    }
    declared = sorted({line for d in found.values() for line in d.declared})
    return "\n".join((*declared, *(found[name].text for name in sorted(found))))


def _result(op: Op, dtype: DType, body: Body, parameters: tuple[Val, ...]) -> Val:
    """Writes the lines of ``op`` into ``body``; what they compute."""
    if dtype == F64:
        return _by_lane(body, op.value, parameters)
    if op is Op.POW:
        return math_f32.power(body, *parameters)
    return _UNARY[op](body, *parameters)


def _by_lane(b: Body, name: str, parameters: tuple[Val, ...]) -> Val:
    """The C library's function of that name on each lane in turn."""
    result: Val | None = None
    for index in range(b.lanes):
        result = b.insert(result, b.call(name, [b.lane(p, index) for p in parameters]), index)
    assert result is not None
    return result
