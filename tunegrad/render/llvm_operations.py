"""LLVM IR of operations: conversions, arithmetic of floats and integers, products of bytes."""

from __future__ import annotations

from math import nan

from tunegrad.errors import InternalError
from tunegrad.ir.dtypes import F32, I8, I16, I32, U8, U8X4, U16, DType
from tunegrad.ir.expr import Op
from tunegrad.ir.program import ROUNDING, VType

from .llvm_values import Byte, LlvmValues, literal, ltype, mask_type, scalar_type, suffix_of

# ---- conversions
#
# LLVM IR of conversions between dtypes; of bf16 and of pairs of them, whose halves are moved.


def converted(to: LlvmValues, v: str, s: VType, t: VType) -> str:
    """A value of type ``s`` as one of type ``t``."""
    if s.dtype == t.dtype:
        return v
    if "bf16" in (s.dtype.name, t.dtype.name):
        return _bf16(to, v, s, t)
    a, b = ltype(s), ltype(t)
    if t.dtype == F32 and v in to.saturated:  # floats again: no detour by bytes
        suffix = suffix_of(scalar_type(F32), t.lanes)
        return to.named(to.call(b, f"llvm.trunc.{suffix}", [(b, to.saturated[v])]))
    if t.dtype.is_bool:
        zero = literal(0, s)
        return to.named(f"{'fcmp une' if s.dtype.is_float else 'icmp ne'} {a} {v}, {zero}")
    if s.dtype.is_float and t.dtype.is_float:
        return to.named(f"{'fpext' if t.dtype.bits > s.dtype.bits else 'fptrunc'} {a} {v} to {b}")
    if t.dtype in (I8, U8) and v in to.steps and s.lanes in to.nearest:
        return _stepped(to, v, s, t)
    if s.dtype in (I8, U8) and t.dtype == F32:
        return _of_byte(to, v, s, t)
    if s.dtype == F32 and s.lanes > 1 and t.dtype in (I8, I16, I32, U8, U16):
        return _whole(to, v, s, t)
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


def _whole(to: LlvmValues, v: str, s: VType, t: VType) -> str:
    """Lanes of f32 as integers that saturate, NaN as 0; LLVM's own goes lane by lane."""
    word, mask = VType(I32, s.lanes), mask_type(s.lanes)
    floats, words = ltype(s), ltype(word)
    least, most = t.dtype.least, t.dtype.greatest
    top = min(float(most), 2.0**31 - 128)  # the greatest f32 that an i32 holds
    x = v
    if not least:  # a NaN becomes the least number, one instruction a bound
        for compare, bound in (("ogt", 0.0), ("olt", top)):
            inside = to.named(f"fcmp {compare} {floats} {x}, {literal(bound, s)}")
            x = to.named(f"select {mask} {inside}, {floats} {x}, {floats} {literal(bound, s)}")
        found = to.named(f"fptosi {floats} {x} to {words}")
        made = to.named(f"trunc {words} {found} to {ltype(t)}")
        to.saturated[made] = x
        return made
    for compare, bound in (("olt", top), ("ogt", float(least))):
        inside = to.named(f"fcmp {compare} {floats} {x}, {literal(bound, s)}")
        x = to.named(f"select {mask} {inside}, {floats} {x}, {floats} {literal(bound, s)}")
    found = to.named(f"fptosi {floats} {x} to {words}")
    if top < most:
        beyond = to.named(f"fcmp ogt {floats} {v}, {literal(top, s)}")
        found = to.named(f"select {mask} {beyond}, {words} {literal(most, word)}, {words} {found}")
    number = to.named(f"fcmp ord {floats} {v}, {v}")
    found = to.named(f"select {mask} {number}, {words} {found}, {words} {literal(0, word)}")
    return found if t.dtype == I32 else to.named(f"trunc {words} {found} to {ltype(t)}")


# Floats that are rounded, and bytes: most units of a core compute on integers, few round and
# compare floats.
#
#     u8(round(y) + z)          -->    u8(clamp(nearest(min(y, 512)) + z, 0, 255))
#     f32(that) - z             -->    f32(clamp(nearest(min(y, 512)), -z, 255 - z))
#     f32(q) - z                -->    f32(q - z)
#     nearest(fma(a, b, C) - C) -->    bits(max(fma(a, b, C), C - z)) - bits(C)
#
# ``nearest`` gives the least i32 for a NaN, and for what is below that; z is a byte. With a sign it
# may be below 0, so that y is at least -512, and a NaN, which is the byte 0, is -z. C is where
# floats are integers, so that their bits count: what is above C - 256 is as bits in the same order.


_ABOVE = 512.0
"""A number of steps, and so is all above it, that is the greatest byte with any zero point."""
_BITS = 0x4B400000
"""ROUNDING as bits."""


def _stepped(to: LlvmValues, v: str, s: VType, t: VType) -> str:
    (y, zero), word, mask = to.steps[v], VType(I32, s.lanes), mask_type(s.lanes)
    ty, far, signed = ltype(word), to.far.get(y), t.dtype.signed
    if far is not None:
        whole, bits = _nearest_far(to, far, zero, s, signed)
    else:
        whole, bits = _nearest(to, y, s, signed or (zero is not None and zero[1].signed)), ""
    if signed:
        number = to.named(f"fcmp ord {ltype(s)} {y}, {y}")
        none = to.splat(_less_byte(to, 0, zero), word) if zero else literal(0, word)
        whole = to.named(f"select {mask} {number}, {ty} {whole}, {ty} {none}")
    if bits and not signed:  # not below 0; the byte and the bits of C are one number
        less = to.named(f"sub i32 {_widened(to, zero) if zero else 0}, {_BITS}")
        total = to.named(f"add {ty} {bits}, {to.splat(less, word)}")
        ends = [(ty, total), (ty, literal(t.dtype.greatest, word))]
        total = to.named(to.call(ty, f"llvm.umin.v{s.lanes}i32", ends))
    else:
        total = whole
        if zero:
            total = to.named(f"add {ty} {whole}, {to.splat(_widened(to, zero), word)}")
        least, most = (literal(end, word) for end in (t.dtype.least, t.dtype.greatest))
        total = _clamped(to, total, (least, most), word)
    made = to.named(f"trunc {ty} {total} to {ltype(t)}")
    to.stepped[made, t.dtype] = whole, zero
    return made


def _nearest(to: LlvmValues, y: str, s: VType, signed: bool) -> str:
    word, floats, mask = VType(I32, s.lanes), ltype(s), mask_type(s.lanes)
    most, least = literal(_ABOVE, s), literal(-_ABOVE, s)
    over = to.named(f"fcmp olt {floats} {most}, {y}")  # a NaN stays
    y = to.named(f"select {mask} {over}, {floats} {most}, {floats} {y}")
    if signed:
        inside = to.named(f"fcmp ogt {floats} {y}, {least}")
        y = to.named(f"select {mask} {inside}, {floats} {y}, {floats} {least}")
    name = {4: "sse2.cvtps2dq", 8: "avx.cvt.ps2dq.256", 16: "avx512.mask.cvtps2dq.512"}[s.lanes]
    arguments = [(floats, y)]
    if s.lanes == 16:
        arguments += [(ltype(word), literal(0, word)), ("i16", "-1"), ("i32", "4")]
    return to.named(to.call(ltype(word), f"llvm.x86.{name}", arguments))


def _nearest_far(
    to: LlvmValues, far: str, zero: Byte | None, s: VType, signed: bool
) -> tuple[str, str]:
    """The integer that is nearest, and the bits that it is less those of C."""
    word, floats, low = VType(I32, s.lanes), ltype(s), literal(ROUNDING - 256, s)
    if not signed:
        one = literal(ROUNDING, VType(F32, 1))
        if zero:
            one = to.named(
                f"fsub float {one}, {to.named(f'sitofp i32 {_widened(to, zero)} to float')}"
            )
        low = to.splat(one, s)
    over = to.named(f"fcmp ogt {floats} {far}, {low}")
    far = to.named(f"select {mask_type(s.lanes)} {over}, {floats} {far}, {floats} {low}")
    bits = to.named(f"bitcast {floats} {far} to {ltype(word)}")
    return to.named(f"sub {ltype(word)} {bits}, {literal(_BITS, word)}"), bits


def _of_byte(to: LlvmValues, v: str, s: VType, t: VType) -> str:
    word, kind = VType(I32, s.lanes), "sitofp" if s.dtype.signed else "uitofp"
    made = to.named(f"{kind} {ltype(s)} {v} to {ltype(t)}")
    if (v, s.dtype) not in to.stepped:
        to.whole[made] = v, s.dtype
        return made
    whole, zero = to.stepped[v, s.dtype]
    if zero:
        ends = [to.splat(_less_byte(to, e, zero), word) for e in (s.dtype.least, s.dtype.greatest)]
        clamped = _clamped(to, whole, (ends[0], ends[1]), word)
        centred = to.named(f"sitofp {ltype(word)} {clamped} to {ltype(t)}")
        to.centred[made] = centred, zero
    return made


def _widened(to: LlvmValues, byte: Byte, lanes: int = 1) -> str:
    """A byte, or lanes of them, as i32."""
    (name, dtype), word = byte, ltype(VType(I32, lanes))
    return to.named(
        f"{'sext' if dtype.signed else 'zext'} {ltype(VType(dtype, lanes))} {name} to {word}"
    )


def _less_byte(to: LlvmValues, number: int, byte: Byte) -> str:
    return to.named(f"sub i32 {number}, {_widened(to, byte)}")


def _clamped(to: LlvmValues, v: str, ends: tuple[str, str], word: VType) -> str:
    ty = ltype(word)
    for name, end in zip(("smax", "smin"), ends, strict=True):
        v = to.named(to.call(ty, f"llvm.{name}.v{word.lanes}i32", [(ty, v), (ty, end)]))
    return v


def with_steps(to: LlvmValues, op: Op, a: list[str], s: VType, made: str) -> str:
    """A sum or rounding of floats, ``made`` of ``a``; or what is cheaper of bytes."""
    if op is Op.ROUND:
        to.steps[made] = a[0], None
    elif op is Op.ADD:
        for x, y in (a, a[::-1]):
            zero = _byte_of(to, y)
            if zero and x in to.steps and not to.steps[x][1]:
                to.steps[made] = to.steps[x][0], zero
    elif op is Op.SUB and a[1] == literal(ROUNDING, s):
        to.far[made] = a[0]
    elif op is Op.SUB and (zero := _byte_of(to, a[1])):
        if a[0] in to.centred and to.centred[a[0]][1] == zero:
            return to.centred[a[0]][0]
        if a[0] in to.whole:
            word = VType(I32, s.lanes)
            wide, by = _widened(to, to.whole[a[0]], s.lanes), to.splat(_widened(to, zero), word)
            less = to.named(f"sub {ltype(word)} {wide}, {by}")
            return to.named(f"sitofp {ltype(word)} {less} to {ltype(s)}")
    return made


def _byte_of(to: LlvmValues, v: str) -> Byte | None:
    """The byte that is the same float in every lane; None of another."""
    return to.whole.get(to.shared[v][0]) if v in to.shared else None


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
        code = f"fptrunc {ltype(single)} {x} to {narrow}"
        if s.lanes > 4:
            # The same instruction by its name. Where lanes turn out constant after types were made
            # legal, LLVM 22 folds an fptrunc to scalars of bf16, which are not, and ends the
            # process. Four lanes are no legal type, so theirs is the instruction before that.
            name = f"llvm.x86.avx512bf16.cvtneps2bf16.{32 * s.lanes}"
            code = to.call(narrow, name, [(ltype(single), x)])
        rounded = to.named(code)
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


# ---- floats
#
# LLVM IR of floating-point arithmetic.


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
    unary = {Op.SQRT: "sqrt", Op.ABS: "fabs", Op.FLOOR: "floor", Op.ROUND: "roundeven"}
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
        if c == literal(nan, s):
            return c
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


# ---- integers
#
# LLVM IR of integer arithmetic, and of bools, which are integers of one bit.


_INT = {Op.ADD: "add", Op.SUB: "sub", Op.MUL: "mul", Op.AND: "and", Op.OR: "or", Op.XOR: "xor"}


def of_integers(to: LlvmValues, op: Op, a: list[str], s: VType) -> str:
    """An operation on integers; on bools a sum is the union, a product the meet."""
    ty, suffix = ltype(s), suffix_of(scalar_type(s.dtype), s.lanes)
    if s.dtype.is_bool:
        op = {Op.MUL: Op.AND, Op.MIN: Op.AND, Op.ADD: Op.OR, Op.MAX: Op.OR, Op.SUB: Op.XOR}.get(
            op, op
        )
    if op in _INT:
        return to.named(f"{_INT[op]} {ty} {a[0]}, {a[1]}")
    if op is Op.NOT:
        return to.named(f"xor {ty} {a[0]}, {literal(True if s.dtype.is_bool else -1, s)}")
    if op is Op.NEG:
        return to.named(f"sub {ty} {literal(0, s)}, {a[0]}")
    if op is Op.ABS and not s.dtype.signed:
        return a[0]
    if op is Op.ABS:
        return _extreme_int(
            to, "smax", a[0], to.named(f"sub {ty} {literal(0, s)}, {a[0]}"), ty, suffix
        )
    if op is Op.FMA:
        return to.named(f"add {ty} {to.named(f'mul {ty} {a[0]}, {a[1]}')}, {a[2]}")
    if op in (Op.MAX, Op.MIN):
        name = f"{'s' if s.dtype.signed else 'u'}{op}"
        return _extreme_int(to, name, a[0], a[1], ty, suffix)
    if op in (Op.FLOORDIV, Op.MOD):
        return _division(to, op, a, s) if s.dtype.signed else _unsigned(to, op, a, s)
    if op in (Op.SHL, Op.SHR):
        return _shift(to, op, a, s)
    raise InternalError(f"no LLVM for {op} on {s}")


def _extreme_int(to: LlvmValues, name: str, x: str, y: str, ty: str, suffix: str) -> str:
    return to.named(to.call(ty, f"llvm.{name}.{suffix}", [(ty, x), (ty, y)]))


def _unsigned(to: LlvmValues, op: Op, a: list[str], s: VType) -> str:
    """Division by 0 gives 0."""
    ty, mask = ltype(s), mask_type(s.lanes)
    zero = literal(0, s)
    none = to.named(f"icmp eq {ty} {a[1]}, {zero}")
    d = to.named(f"select {mask} {none}, {ty} {literal(1, s)}, {ty} {a[1]}")
    result = to.named(f"{'udiv' if op is Op.FLOORDIV else 'urem'} {ty} {a[0]}, {d}")
    return to.named(f"select {mask} {none}, {ty} {zero}, {ty} {result}")


def _shift(to: LlvmValues, op: Op, a: list[str], s: VType) -> str:
    """By all bits or more (as a number without a sign) nothing is left but the sign."""
    ty, mask, bits = ltype(s), mask_type(s.lanes), s.dtype.bits
    all_bits = literal(bits - 1, s)
    inside = to.named(f"icmp ule {ty} {a[1]}, {all_bits}")
    by = to.named(f"select {mask} {inside}, {ty} {a[1]}, {ty} {all_bits}")
    if op is Op.SHR and s.dtype.signed:
        return to.named(f"ashr {ty} {a[0]}, {by}")
    moved = to.named(f"{'shl' if op is Op.SHL else 'lshr'} {ty} {a[0]}, {by}")
    return to.named(f"select {mask} {inside}, {ty} {moved}, {ty} {literal(0, s)}")


def _division(to: LlvmValues, op: Op, a: list[str], s: VType) -> str:
    """Python's: the quotient rounds down and the remainder has the divisor's sign.

    X // 0 is 0 and x % 0 is 0, like numpy. Neither 0 nor -1 reaches the division: the least
    integer over -1 traps.
    """
    ty, mask = ltype(s), mask_type(s.lanes)
    zero, one, minus_one = literal(0, s), literal(1, s), literal(-1, s)
    none = to.named(f"icmp eq {ty} {a[1]}, {zero}")
    minus = to.named(f"icmp eq {ty} {a[1]}, {minus_one}")
    special = to.named(f"or {mask} {none}, {minus}")
    d = to.named(f"select {mask} {special}, {ty} {one}, {ty} {a[1]}")
    r = to.named(f"srem {ty} {a[0]}, {d}")
    signs = to.named(f"xor {ty} {r}, {d}")
    opposite = to.named(f"icmp slt {ty} {signs}, {zero}")
    left = to.named(f"icmp ne {ty} {r}, {zero}")
    fix = to.named(f"and {mask} {opposite}, {left}")
    if op is Op.MOD:
        moved = to.named(f"add {ty} {r}, {d}")
        result = to.named(f"select {mask} {fix}, {ty} {moved}, {ty} {r}")
    else:
        q = to.named(f"sdiv {ty} {a[0]}, {d}")
        less = to.named(f"sub {ty} {q}, {one}")
        rounded = to.named(f"select {mask} {fix}, {ty} {less}, {ty} {q}")
        negated = to.named(f"sub {ty} {zero}, {a[0]}")
        result = to.named(f"select {mask} {minus}, {ty} {negated}, {ty} {rounded}")
    return to.named(f"select {mask} {none}, {ty} {zero}, {ty} {result}")


# ---- words of four bytes
#
# LLVM IR of words of four bytes: how they are put together, and sums of their products.
#
#     dot4_add p q c    p u8x4, q i8x4     -->    vpdpbusd, where vectors of the target have it
#                       any, else          -->    two vpmaddwd of even and odd bytes in 16 bits
#                       others             -->    each pair of bytes widened, multiplied and added
#     dot2i_add p q c   of two halves      -->    vpdpwssd; vpmaddwd and a sum; each widened
#
# ``vpdpbusds``, which saturates, would be another sum; ``vpmaddubsw`` saturates on the way.


def quad_of(to: LlvmValues, a: list[str], s: VType) -> str:
    """Four bytes, the first the lowest."""
    word = VType(I32, s.lanes)
    total = ""
    for i, x in enumerate(a):
        wide = to.named(f"zext {ltype(s)} {x} to {ltype(word)}")
        moved = to.named(f"shl {ltype(word)} {wide}, {literal(8 * i, word)}") if i else wide
        total = to.named(f"or {ltype(word)} {total}, {moved}") if total else moved
    return total


def dot_of_quads(to: LlvmValues, a: list[str], types: tuple[DType, DType], lanes: int) -> str:
    """The sum of four products of bytes, and of ``a[2]`` where that is given."""
    word = VType(I32, lanes)
    ty, total = ltype(word), a[2] if len(a) == 3 else literal(0, word)
    widths = (4, 8, 16) if to.avx512 else (4, 8)
    if to.vnni and lanes in widths and types[0] != types[1]:
        x, y = a[:2] if types[0] == U8X4 else (a[1], a[0])
        arguments = [(ty, total), (ty, x), (ty, y)]
        return to.named(to.call(ty, f"llvm.x86.avx512.vpdpbusd.{32 * lanes}", arguments))
    if to.widens_bytes and lanes in widths:
        for odd in (False, True):
            factors = [_halves(to, v, t, odd, word) for v, t in zip(a, types, strict=False)]
            product = _sum_of_pairs(to, factors, lanes)
            total = to.named(f"add {ty} {total}, {product}")
        return total
    for i in range(4):
        x, y = (_byte(to, v, t, i, word) for v, t in zip(a[:2], types, strict=True))
        product = to.named(f"mul {ty} {x}, {y}")
        total = to.named(f"add {ty} {total}, {product}")
    return total


def dot_of_halves(to: LlvmValues, a: list[str], lanes: int) -> str:
    """The sum of the products of two numbers of 16 bits, and of ``a[2]`` where that is given."""
    word, half = VType(I32, lanes), VType(I16, 2 * lanes)
    ty, total = ltype(word), a[2] if len(a) == 3 else literal(0, word)
    widths = (4, 8, 16) if to.avx512 else (4, 8)
    if to.vnni and lanes in widths:
        arguments = [(ty, total), (ty, a[0]), (ty, a[1])]
        return to.named(to.call(ty, f"llvm.x86.avx512.vpdpwssd.{32 * lanes}", arguments))
    if to.widens_bytes and lanes in widths:
        x, y = (to.named(f"bitcast {ty} {v} to {ltype(half)}") for v in a[:2])
        return to.named(f"add {ty} {total}, {_sum_of_pairs(to, [x, y], lanes)}")
    for up in (True, False):
        factors = []
        for v in a[:2]:
            high = to.named(f"shl {ty} {v}, {literal(16, word)}") if up else v
            factors.append(to.named(f"ashr {ty} {high}, {literal(16, word)}"))
        product = to.named(f"mul {ty} {factors[0]}, {factors[1]}")
        total = to.named(f"add {ty} {total}, {product}")
    return total


def halves_of(to: LlvmValues, v: str, s: VType, odd: bool) -> str:
    """The even bytes of words, or the odd ones, as two numbers of 16 bits."""
    word, half = VType(I32, s.lanes), ltype(VType(U16, 2 * s.lanes))
    return to.named(f"bitcast {half} {_halves(to, v, s.dtype, odd, word)} to {ltype(word)}")


def _sum_of_pairs(to: LlvmValues, factors: list[str], lanes: int) -> str:
    """Products of numbers of 16 bits, neighbours added."""
    name = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}[lanes]
    halves = f"<{2 * lanes} x i16>"
    arguments = [(halves, x) for x in factors]
    return to.named(to.call(ltype(VType(I32, lanes)), f"llvm.x86.{name}", arguments))


def _halves(to: LlvmValues, v: str, dtype: DType, odd: bool, word: VType) -> str:
    """The even bytes of words, or the odd ones, each in 16 bits."""
    half = VType(U16, 2 * word.lanes)
    ty = ltype(half)
    x = to.named(f"bitcast {ltype(word)} {v} to {ty}")
    if dtype.signed:
        up = x if odd else to.named(f"shl {ty} {x}, {literal(8, half)}")
        return to.named(f"ashr {ty} {up}, {literal(8, half)}")
    if odd:
        return to.named(f"lshr {ty} {x}, {literal(8, half)}")
    return to.named(f"and {ty} {x}, {literal(255, half)}")


def _byte(to: LlvmValues, v: str, dtype: DType, i: int, word: VType) -> str:
    """Byte ``i`` of words, as i32."""
    up = to.named(f"shl {ltype(word)} {v}, {literal(24 - 8 * i, word)}") if i < 3 else v
    kind = "ashr" if dtype.signed else "lshr"
    return to.named(f"{kind} {ltype(word)} {up}, {literal(24, word)}")
