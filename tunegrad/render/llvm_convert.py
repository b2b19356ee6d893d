"""LLVM IR of conversions between dtypes; of bf16 and of pairs of them, whose halves are moved."""

from __future__ import annotations

from tunegrad.ir.dtypes import F32, I32
from tunegrad.ir.expr import Op
from tunegrad.ir.program import VType

from .llvm_values import LlvmValues, literal, ltype, mask_type, scalar_type, suffix_of

__all__ = ["converted", "of_pairs", "pair_of"]


def converted(to: LlvmValues, v: str, s: VType, t: VType) -> str:
    """A value of type ``s`` as one of type ``t``."""
    if s.dtype == t.dtype:
        return v
    if "bf16" in (s.dtype.name, t.dtype.name):
        return _bf16(to, v, s, t)
    a, b = ltype(s), ltype(t)
    if t.dtype.is_bool:
        zero = literal(0, s)
        return to.named(f"{'fcmp une' if s.dtype.is_float else 'icmp ne'} {a} {v}, {zero}")
    if s.dtype.is_float and t.dtype.is_float:
        return to.named(f"{'fpext' if t.dtype.bits > s.dtype.bits else 'fptrunc'} {a} {v} to {b}")
    if s.dtype.is_float:
        suffix = (
            f"{suffix_of(scalar_type(t.dtype), t.lanes)}.{suffix_of(scalar_type(s.dtype), s.lanes)}"
        )
        kind = "fptosi" if t.dtype.signed else "fptoui"
        return to.named(to.call(b, f"llvm.{kind}.sat.{suffix}", [(a, v)]))
    if t.dtype.is_float:
        return to.named(f"{'sitofp' if s.dtype.signed else 'uitofp'} {a} {v} to {b}")
    if a == b:
        return v
    if t.dtype.bits < s.dtype.bits:
        return to.named(f"trunc {a} {v} to {b}")
    return to.named(f"{'sext' if s.dtype.signed else 'zext'} {a} {v} to {b}")


def _bf16(to: LlvmValues, v: str, s: VType, t: VType) -> str:
    """To or from bf16; rounded to even, and NaN stays one."""
    word, single = VType(I32, s.lanes), VType(F32, s.lanes)
    if s.dtype.name == "bf16":
        wide = to.named(f"zext {ltype(s)} {v} to {ltype(word)}")
        bits = to.named(f"shl {ltype(word)} {wide}, {literal(16, word)}")
        return converted(
            to, to.named(f"bitcast {ltype(word)} {bits} to {ltype(single)}"), single, t
        )
    x = converted(to, v, s, single)
    if to.bf16_dot and s.lanes in (4, 8, 16):
        narrow = f"<{s.lanes} x bfloat>"
        rounded = to.named(f"fptrunc {ltype(single)} {x} to {narrow}")
        return to.named(f"bitcast {narrow} {rounded} to {ltype(t)}")
    bits = to.named(f"bitcast {ltype(single)} {x} to {ltype(word)}")
    high = to.named(f"lshr {ltype(word)} {bits}, {literal(16, word)}")
    odd = to.named(f"and {ltype(word)} {high}, {literal(1, word)}")
    round_up = to.named(f"add {ltype(word)} {odd}, {literal(0x7FFF, word)}")
    rounded = to.named(f"add {ltype(word)} {bits}, {round_up}")
    top = to.named(f"lshr {ltype(word)} {rounded}, {literal(16, word)}")
    quiet = to.named(f"or {ltype(word)} {high}, {literal(0x40, word)}")
    mask = mask_type(s.lanes)
    nan = to.named(f"fcmp uno {ltype(single)} {x}, {x}")
    chosen = to.named(f"select {mask} {nan}, {ltype(word)} {quiet}, {ltype(word)} {top}")
    return to.named(f"trunc {ltype(word)} {chosen} to {ltype(t)}")


def pair_of(to: LlvmValues, a: list[str], s: VType) -> str:
    """The first in the low half: bf16 as they are, of f32 the upper halves."""
    word = VType(I32, s.lanes)
    ty = ltype(word)
    if s.dtype == F32:
        first, second = (to.named(f"bitcast {ltype(s)} {x} to {ty}") for x in a)
        low = to.named(f"lshr {ty} {first}, {literal(16, word)}")
        high = to.named(f"and {ty} {second}, {literal(-65536, word)}")
    else:
        low, second = (to.named(f"zext {ltype(s)} {x} to {ty}") for x in a)
        high = to.named(f"shl {ty} {second}, {literal(16, word)}")
    return to.named(f"or {ty} {low}, {high}")


def of_pairs(to: LlvmValues, op: Op, a: list[str], lanes: int) -> str:
    """An operation on pairs of bf16: a half as f32, or sums of products."""
    if op in (Op.LOW, Op.HIGH):
        return _half(to, op, a[0], lanes)
    single = VType(F32, lanes)
    total = a[2] if op is Op.DOT2_ADD else literal(0.0, single)
    if to.bf16_dot and lanes in (4, 8, 16):
        pairs = f"<{2 * lanes} x bfloat>"
        x, y = (to.named(f"bitcast <{lanes} x i32> {v} to {pairs}") for v in a[:2])
        arguments = [(ltype(single), total), (pairs, x), (pairs, y)]
        return to.named(
            to.call(ltype(single), f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}", arguments)
        )
    for half in (Op.HIGH, Op.LOW):
        factors = [(ltype(single), _half(to, half, v, lanes)) for v in a[:2]]
        name = f"llvm.fmuladd.{suffix_of('float', lanes)}"
        total = to.named(to.call(ltype(single), name, [*factors, (ltype(single), total)]))
    return total


def _half(to: LlvmValues, op: Op, pair: str, lanes: int) -> str:
    word = VType(I32, lanes)
    code = f"shl {ltype(word)} {pair}, {literal(16, word)}"
    if op is Op.HIGH:
        code = f"and {ltype(word)} {pair}, {literal(-65536, word)}"
    return to.named(f"bitcast {ltype(word)} {to.named(code)} to {ltype(VType(F32, lanes))}")
