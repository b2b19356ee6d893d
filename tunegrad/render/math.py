"""Elementary functions as text: definitions in LLVM IR that a renderer appends to its module and calls.

f32 is vector code without any call. f64, which only the reference uses, is one call of the C library for each lane.
Lanes are independent, no rounding mode but the default is supported, and floating-point exception flags mean nothing.

Every function is ``internal alwaysinline``: a pass pipeline without an always-inliner leaves them as calls of local
functions, whose vectors then pass through memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tunegrad.errors import InternalError
from tunegrad.ir.dtypes import F32, F64, DType
from tunegrad.ir.expr import Op

from . import math_f32
from .math_body import Body, Scalar, Val, vector_type

__all__ = ["FUNCTIONS", "declarations", "definition", "library"]

FUNCTIONS = frozenset((Op.EXP, Op.LOG, Op.TANH, Op.ERF, Op.SIN, Op.POW))
"""The operations that have a definition here."""

_UNARY: dict[Op, Callable[[Body, Val], Val]] = {
    Op.EXP: math_f32.exp,
    Op.LOG: math_f32.log,
    Op.TANH: math_f32.tanh,
    Op.ERF: math_f32.erf,
    Op.SIN: math_f32.sin,
}


def definition(op: Op, dtype: DType, lanes: int) -> tuple[str, str]:
    """The name, without ``@``, and the text of ``op`` on vectors of ``lanes`` (1: scalars) of f32 or f64.

        definition(Op.EXP, F32, 16)  ->  "tg.exp.f32x16",
                                         "define internal <16 x float> @tg.exp.f32x16(<16 x float> %x) ..."

    POW has two parameters. The text needs ``declarations`` of the same arguments in the module.
    Raises InternalError for an operation, dtype or lane count without a definition: a cast was forgotten.
    """
    name = f"tg.{op}.{dtype}x{lanes}"
    scalar, body, result = _body(op, dtype, lanes)
    kind = vector_type(scalar, lanes)
    parameters = ", ".join(f"{kind} {p.text}" for p in _parameters(op, scalar))
    head = f"define internal {kind} @{name}({parameters}) alwaysinline nounwind {{"
    return name, "\n".join((head, *body.lines, f"  ret {kind} {result.text}", "}", ""))


def declarations(op: Op, dtype: DType, lanes: int) -> tuple[str, ...]:
    """The ``declare`` lines that the definition needs; a module must hold each line once, whoever asked for it."""
    return tuple(sorted(_body(op, dtype, lanes)[1].declared))


def library(wanted: Iterable[tuple[Op, DType, int]]) -> str:
    """All that a module needs to call these functions: each declaration and definition once, sorted."""
    distinct = sorted(set(wanted), key=lambda w: (w[0].value, w[1].name, w[2]))
    declared = sorted({line for w in distinct for line in declarations(*w)})
    return "\n".join((*declared, *(definition(*w)[1] for w in distinct)))


def _body(op: Op, dtype: DType, lanes: int) -> tuple[Scalar, Body, Val]:
    if op not in FUNCTIONS or dtype not in (F32, F64) or lanes < 1:
        have = ", ".join(sorted(FUNCTIONS))
        rule = f"definitions exist for {have} on 1 or more lanes of f32 or f64"
        raise InternalError(f"{op} on {lanes} lanes of {dtype}: {rule}")
    body = Body(lanes)
    scalar: Scalar = "float" if dtype == F32 else "double"
    parameters = _parameters(op, scalar)
    if dtype == F64:
        return scalar, body, _by_lane(body, op.value, parameters)
    if op is Op.POW:
        return scalar, body, math_f32.power(body, *parameters)
    return scalar, body, _UNARY[op](body, *parameters)


def _parameters(op: Op, scalar: Scalar) -> tuple[Val, ...]:
    return tuple(Val(name, scalar) for name in ("%x", "%y")[: op.arity])


def _by_lane(b: Body, name: str, parameters: tuple[Val, ...]) -> Val:
    """The C library's function of that name on each lane in turn."""
    result: Val | None = None
    for index in range(b.lanes):
        result = b.insert(result, b.call(name, [b.lane(p, index) for p in parameters]), index)
    assert result is not None
    return result
