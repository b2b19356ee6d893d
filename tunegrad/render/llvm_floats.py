"""LLVM IR of floating-point arithmetic."""

from __future__ import annotations

from tunegrad.errors import InternalError
from tunegrad.ir.dtypes import F32, I32
from tunegrad.ir.expr import Op
from tunegrad.ir.program import VType

from .llvm_values import LlvmValues, literal, ltype, mask_type, scalar_type, suffix_of

__all__ = ["of_floats"]

_FLOAT = {Op.ADD: "fadd", Op.SUB: "fsub", Op.MUL: "fmul", Op.DIV: "fdiv"}


def of_floats(to: LlvmValues, op: Op, a: list[str], s: VType) -> str:
    """An operation on floats that has no function of ``math``."""
    ty, suffix = ltype(s), suffix_of(scalar_type(s.dtype), s.lanes)
    if op in _FLOAT:
        return to.named(f"{_FLOAT[op]} {ty} {a[0]}, {a[1]}")
    if op is Op.NEG:
        return to.named(f"fneg {ty} {a[0]}")
    if op is Op.RECIP:
        return to.named(f"fdiv {ty} {literal(1.0, s)}, {a[0]}")
    unary = {Op.SQRT: "sqrt", Op.ABS: "fabs", Op.FLOOR: "floor"}
    if op in unary:
        return to.named(to.call(ty, f"llvm.{unary[op]}.{suffix}", [(ty, a[0])]))
    if op in (Op.MAX, Op.MIN):
        return _extreme(to, op, a, s)
    if op in (Op.FLOORDIV, Op.MOD):
        return _remainder(to, op, a, s)
    if op is Op.TF32:
        return _tf32(to, a[0], s)
    raise InternalError(f"no LLVM for {op} on {s}")


def _tf32(to: LlvmValues, x: str, s: VType) -> str:
    """To 10 bits of a fraction, ties away from zero; infinities and NaN as they are."""
    word, mask = VType(I32, s.lanes), mask_type(s.lanes)
    ty, exponent = ltype(word), literal(0x7F800000, word)
    bits = to.named(f"bitcast {ltype(s)} {x} to {ty}")
    more = to.named(f"add {ty} {bits}, {literal(0x1000, word)}")
    cut = to.named(f"and {ty} {more}, {literal(-0x2000, word)}")
    held = to.named(f"and {ty} {bits}, {exponent}")
    special = to.named(f"icmp eq {ty} {held}, {exponent}")
    found = to.named(f"bitcast {ty} {cut} to {ltype(s)}")
    return to.named(f"select {mask} {special}, {ltype(s)} {x}, {ltype(s)} {found}")


def _remainder(to: LlvmValues, op: Op, a: list[str], s: VType) -> str:
    """numpy's: the remainder is exact but for the divisor that is added where signs differ, and
    the quotient follows from it. ``frem`` is a call of the C library for each lane.
    """
    ty, mask = ltype(s), mask_type(s.lanes)
    zero, suffix = literal(0.0, s), suffix_of(scalar_type(s.dtype), s.lanes)

    def chosen(test: str, yes: str, no: str) -> str:
        return to.named(f"select {mask} {test}, {ty} {yes}, {ty} {no}")

    def sign_of(x: str) -> str:
        call = to.call(ty, f"llvm.copysign.{suffix}", [(ty, zero), (ty, x)])
        return to.named(call)

    rest = to.named(f"frem {ty} {a[0]}, {a[1]}")
    left = to.named(f"fcmp une {ty} {rest}, {zero}")
    signs = [to.named(f"fcmp olt {ty} {x}, {zero}") for x in (rest, a[1])]
    apart = to.named(f"xor {mask} {signs[0]}, {signs[1]}")
    fix = to.named(f"and {mask} {apart}, {left}")
    if op is Op.MOD:
        moved = chosen(fix, to.named(f"fadd {ty} {rest}, {a[1]}"), rest)
        return chosen(left, moved, sign_of(a[1]))
    whole = to.named(f"fsub {ty} {a[0]}, {rest}")
    quotient = to.named(f"fdiv {ty} {whole}, {a[1]}")
    less = to.named(f"fsub {ty} {quotient}, {literal(1.0, s)}")
    quotient = chosen(fix, less, quotient)
    floor = to.named(to.call(ty, f"llvm.floor.{suffix}", [(ty, quotient)]))
    beyond = to.named(f"fsub {ty} {quotient}, {floor}")
    half = to.named(f"fcmp ogt {ty} {beyond}, {literal(0.5, s)}")
    up = to.named(f"fadd {ty} {floor}, {literal(1.0, s)}")
    plain = to.named(f"fdiv {ty} {a[0]}, {a[1]}")
    some = to.named(f"fcmp une {ty} {quotient}, {zero}")
    result = chosen(some, chosen(half, up, floor), sign_of(plain))
    by_zero = to.named(f"fcmp oeq {ty} {a[1]}, {zero}")
    return chosen(by_zero, plain, result)


def _extreme(to: LlvmValues, op: Op, a: list[str], s: VType) -> str:
    """NaN wins, and which zero wins is open.

    With one constant side a single compare does it: the other side is kept when unordered.
    Otherwise the hardware's maximum, which keeps its second side (the one so far, in a fold),
    and a repair of the first: by name where there is a name, since LLVM makes two compares and
    a union of masks out of two selects.
    """
    ty, mask = ltype(s), mask_type(s.lanes)
    greater, less = ("ugt", "ogt") if op is Op.MAX else ("ult", "olt")
    constant = [not x.startswith("%") for x in a]
    if any(constant) and not all(constant):
        x, c = (a[1], a[0]) if constant[0] else (a[0], a[1])
        held = to.named(f"fcmp {greater} {ty} {x}, {c}")
        return to.named(f"select {mask} {held}, {ty} {x}, {ty} {c}")
    old, new = a
    name = f"{'max' if op is Op.MAX else 'min'}.ps"
    if to.avx512 and s.dtype == F32 and s.lanes == 16:
        arguments = [(ty, new), (ty, old), ("i32", "4")]
        chosen = to.named(to.call(ty, f"llvm.x86.avx512.{name}.512", arguments))
    elif to.avx512 and s.dtype == F32 and s.lanes in (4, 8):
        arguments = [(ty, new), (ty, old)]
        chosen = to.named(
            to.call(
                ty,
                f"llvm.x86.{f'avx.{name}.256' if s.lanes == 8 else f'sse.{name}'}",
                arguments,
            )
        )
    else:
        held = to.named(f"fcmp {less} {ty} {new}, {old}")
        chosen = to.named(f"select {mask} {held}, {ty} {new}, {ty} {old}")
    unordered = to.named(f"fcmp uno {ty} {new}, {new}")
    return to.named(f"select {mask} {unordered}, {ty} {new}, {ty} {chosen}")
