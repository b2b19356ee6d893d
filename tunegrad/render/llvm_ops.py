"""LLVM IR of single operations: arithmetic, conversions, loads and stores of one address."""

from __future__ import annotations

import struct
from abc import abstractmethod
from math import isinf, isnan, nan

import numpy as np

from tunegrad.errors import InternalError
from tunegrad.ir.dtypes import BF16, BOOL, F32, I32, I64, DType
from tunegrad.ir.expr import Op
from tunegrad.ir.numeric import to_memory
from tunegrad.ir.program import Compute, Convert, Fold, VType

from .llvm_shuffle import shuffle_mask
from .math import definitions

__all__ = ["Ops", "literal", "ltype", "memory_type"]

_SCALAR = {
    "bool": "i1", "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64",
    "u8": "i8", "u16": "i16", "u32": "i32", "u64": "i64",
    "f16": "half", "bf16": "i16", "f32": "float", "f64": "double", "bf16x2": "i32",
}  # fmt: skip
_FLOAT = {Op.ADD: "fadd", Op.SUB: "fsub", Op.MUL: "fmul", Op.DIV: "fdiv"}
_INT = {Op.ADD: "add", Op.SUB: "sub", Op.MUL: "mul", Op.AND: "and", Op.OR: "or", Op.XOR: "xor"}
_COMPARE = {
    Op.LT: ("olt", "slt", "ult"), Op.EQ: ("oeq", "eq", "eq"), Op.NE: ("une", "ne", "ne")
}  # fmt: skip
"""Of floats, of integers with a sign, of those without (bools among them)."""
_MATH = frozenset((Op.EXP, Op.LOG, Op.TANH, Op.ERF, Op.SIN, Op.POW))


def ltype(t: VType) -> str:
    """The LLVM type of a value."""
    one = _SCALAR[t.dtype.name]
    return one if t.lanes == 1 else f"<{t.lanes} x {one}>"


def memory_type(dtype: DType) -> str:
    """The LLVM type of one element in memory (a bool is a byte)."""
    return "i8" if dtype.is_bool else _SCALAR[dtype.name]


def literal(value: float | int | bool, t: VType) -> str:
    """A constant of any lane count."""
    one = _literal(value, t.dtype)
    if t.lanes == 1:
        return one
    scalar = _SCALAR[t.dtype.name]
    return f"splat ({scalar} {one})"


def _literal(value: float | int | bool, dtype: DType) -> str:
    if dtype.is_bool:
        return "true" if value else "false"
    if dtype.is_int or dtype.is_pair:  # LLVM's integers have no sign of their own
        whole = int(value)
        return str(whole if whole < 1 << (dtype.bits - 1) else whole - (1 << dtype.bits))
    v = float(value)
    if dtype == F32 and not isnan(v) and not isinf(v):
        v = struct.unpack("f", struct.pack("f", v))[0] if abs(v) < 3.5e38 else v
    if dtype == BF16:  # an i16 in LLVM IR
        return str(int(to_memory(np.asarray(v), BF16)))
    if dtype.name == "f16":
        return f"0xH{struct.unpack('H', struct.pack('e', v))[0]:04X}"
    return f"0x{struct.unpack('Q', struct.pack('d', v))[0]:016X}"


class Ops:
    """Turns instructions without control flow into text; a subclass has the lines and the
    addresses.
    """

    def __init__(self, avx512: bool = False, bf16_dot: bool = False) -> None:
        self.avx512, self.bf16_dot = avx512, bf16_dot
        self.count = 0
        self.names: dict[int, str] = {}
        self.types: dict[int, VType] = {}
        self.declared: set[str] = set()
        self.defined: dict[str, str] = {}
        self._fma: dict[tuple[str, int], tuple[str, str]] = {}

    @abstractmethod
    def emit(self, text: str) -> None:
        """Appends an instruction."""

    def number(self) -> int:
        self.count += 1
        return self.count

    def fresh(self) -> str:
        self.count += 1
        return f"%t{self.count}"

    def bind(self, to: int, t: VType, name: str) -> None:
        self.names[to], self.types[to] = name, t

    def bind_bool(self, to: int, lanes: int, name: str) -> None:
        self.bind(to, VType(BOOL, lanes), name)

    def define(self, to: int, t: VType, code: str) -> None:
        name = self.fresh()
        self.emit(f"{name} = {code}")
        self.bind(to, t, name)

    def value(self, of: int) -> str:
        return self.names[of]

    def call(self, result: str, name: str, args: list[tuple[str, str]]) -> str:
        """A call of a declared intrinsic, as code."""
        types = ", ".join(t for t, _ in args)
        self.declared.add(f"{result} @{name}({types})")
        return f"call {result} @{name}({', '.join(f'{t} {v}' for t, v in args)})"

    # -- lanes

    def splat(self, value: str, t: VType) -> str:
        if t.lanes == 1:
            return value
        one = _SCALAR[t.dtype.name]
        if not value.startswith("%"):
            return f"splat ({one} {value})"
        first, whole = self.fresh(), self.fresh()
        self.emit(f"{first} = insertelement <{t.lanes} x {one}> poison, {one} {value}, i64 0")
        self.emit(
            f"{whole} = shufflevector <{t.lanes} x {one}> {first}, <{t.lanes} x {one}> poison, "
            f"<{t.lanes} x i32> zeroinitializer"
        )
        return whole

    def splat_i64(self, value: str, lanes: int) -> str:
        return self.splat(value, VType(I64, lanes))

    def assemble(self, raws: list[str], dtype: DType, lanes: int) -> str:
        """A vector (in memory form) of scalars."""
        one, total = memory_type(dtype), "poison"
        for lane, raw in enumerate(raws):
            name = self.fresh()
            self.emit(f"{name} = insertelement <{lanes} x {one}> {total}, {one} {raw}, i32 {lane}")
            total = name
        return total

    def assemble_bits(self, bits: list[str]) -> str:
        total = "poison"
        for lane, bit in enumerate(bits):
            name = self.fresh()
            self.emit(f"{name} = insertelement <{len(bits)} x i1> {total}, i1 {bit}, i32 {lane}")
            total = name
        return total

    def spread_mask(self, mask: str, lanes: list[int | None]) -> str:
        """A mask whose lanes are those of ``mask`` that are named, and false."""
        n = len(lanes)
        places = shuffle_mask(n if lane is None else lane for lane in lanes)
        return self._named(f"shufflevector <{n} x i1> {mask}, <{n} x i1> zeroinitializer, {places}")

    def extract_mask(self, mask: str, lanes: int, lane: int) -> str:
        if lanes == 1:
            return mask
        name = self.fresh()
        self.emit(f"{name} = extractelement <{lanes} x i1> {mask}, i32 {lane}")
        return name

    # -- memory

    def load_scalar(self, address: str, dtype: DType, mask: str | None) -> str:
        """One element; where the mask is false, the zero that stands at a fixed address."""
        if mask is not None:
            chosen = self.fresh()
            self.emit(f"{chosen} = select i1 {mask}, ptr {address}, ptr @tg.zero")
            address = chosen
        name = self.fresh()
        self.emit(f"{name} = load {memory_type(dtype)}, ptr {address}, align {dtype.itemsize}")
        return name

    def load_vector(self, address: str, dtype: DType, lanes: int, mask: str | None) -> str:
        t = f"<{lanes} x {memory_type(dtype)}>"
        name = self.fresh()
        if mask is None:
            self.emit(f"{name} = load {t}, ptr {address}, align {dtype.itemsize}")
        else:
            suffix = _suffix(memory_type(dtype), lanes)
            args = [
                ("ptr", address),
                ("i32", str(dtype.itemsize)),
                (f"<{lanes} x i1>", mask),
                (t, "zeroinitializer"),
            ]
            self.declared.add(
                f"{t} @llvm.masked.load.{suffix}.p0(ptr, i32 immarg, <{lanes} x i1>, {t})"
            )
            listed = ", ".join(f"{a} {v}" for a, v in args)
            self.emit(f"{name} = call {t} @llvm.masked.load.{suffix}.p0({listed})")
        return name

    def store_scalar(self, address: str, raw: str, dtype: DType, mask: str | None) -> None:
        if mask is not None:
            chosen = self.fresh()
            self.emit(f"{chosen} = select i1 {mask}, ptr {address}, ptr %sink")
            address = chosen
        self.emit(f"store {memory_type(dtype)} {raw}, ptr {address}, align {dtype.itemsize}")

    def store_vector(
        self, address: str, raw: str, dtype: DType, lanes: int, mask: str | None
    ) -> None:
        t = f"<{lanes} x {memory_type(dtype)}>"
        if mask is None:
            self.emit(f"store {t} {raw}, ptr {address}, align {dtype.itemsize}")
            return
        single = _single_lane(mask)
        if (
            single is not None
        ):  # LLVM 22 stores too many bytes of a truncated vector under a constant mask of one lane
            one = memory_type(dtype)
            piece = self._named(f"extractelement {t} {raw}, i32 {single}")
            self.emit(
                f"store {one} {piece}, ptr {self._lane_address(address, one, single)}, align "
                f"{dtype.itemsize}"
            )
            return
        suffix = _suffix(memory_type(dtype), lanes)
        self.declared.add(
            f"void @llvm.masked.store.{suffix}.p0({t}, ptr, i32 immarg, <{lanes} x i1>)"
        )
        self.emit(
            f"call void @llvm.masked.store.{suffix}.p0({t} {raw}, ptr {address}, i32 "
            f"{dtype.itemsize}, "
            f"<{lanes} x i1> {mask})"
        )

    def _lane_address(self, address: str, one: str, lane: int) -> str:
        return (
            address if lane == 0 else self._named(f"getelementptr {one}, ptr {address}, i64 {lane}")
        )

    def from_memory(self, raw: str, t: VType) -> str:
        """A loaded element as a value: bytes become bools."""
        if not t.dtype.is_bool:
            return raw
        name = self.fresh()
        kind = "i8" if t.lanes == 1 else f"<{t.lanes} x i8>"
        zero = "0" if t.lanes == 1 else "zeroinitializer"
        self.emit(f"{name} = icmp ne {kind} {raw}, {zero}")
        return name

    def to_memory(self, value: str, t: VType) -> str:
        if not t.dtype.is_bool:
            return value
        name = self.fresh()
        kind = "i8" if t.lanes == 1 else f"<{t.lanes} x i8>"
        self.emit(f"{name} = zext {ltype(t)} {value} to {kind}")
        return name

    # -- arithmetic

    def compute(self, i: Compute) -> None:
        names = self.names
        args = [names[a] for a in i.args]
        self.names[i.id], self.types[i.id] = self._apply(i.op, args, self.types[i.args[0]]), i.vtype

    def _sum_of_products(self, a: list[str], s: VType) -> str:
        """The operation of most instructions: its text is made of the same parts each time."""
        key = s.dtype.name, s.lanes
        parts = self._fma.get(key)
        if parts is None:
            ty = ltype(s)
            name = f"llvm.fmuladd.{_suffix(_SCALAR[s.dtype.name], s.lanes)}"
            self.declared.add(f"{ty} @{name}({ty}, {ty}, {ty})")
            parts = self._fma[key] = f"call {ty} @{name}({ty} ", f", {ty} "
        call, comma = parts
        return self._named(f"{call}{a[0]}{comma}{a[1]}{comma}{a[2]})")

    def _named(self, code: str) -> str:
        name = self.fresh()
        self.emit(f"{name} = {code}")
        return name

    def _apply(self, op: Op, a: list[str], s: VType) -> str:
        if op is Op.FMA and s.dtype.is_float:
            return self._sum_of_products(a, s)
        ty = ltype(s)
        if op in _COMPARE:
            kind = _COMPARE[op][0 if s.dtype.is_float else 1 if s.dtype.signed else 2]
            return self._named(
                f"{'fcmp' if s.dtype.is_float else 'icmp'} {kind} {ty} {a[0]}, {a[1]}"
            )
        if op in _MATH:
            return self._math(op, a, s)
        if op is Op.PAIR:
            return self._pair(a, s)
        if s.dtype.is_pair:
            return self._of_pairs(op, a, s.lanes)
        if s.dtype.is_float:
            return self._float(op, a, s)
        return self._int(op, a, s)

    def _math(self, op: Op, a: list[str], s: VType) -> str:
        found = definitions(op, s.dtype, s.lanes, self.avx512)
        for d in found:
            self.defined[d.name] = d.text
            self.declared.update(line.removeprefix("declare ") for line in d.declared)
        return self._named(
            f"call {ltype(s)} @{found[-1].name}({', '.join(f'{ltype(s)} {x}' for x in a)})"
        )

    def _float(self, op: Op, a: list[str], s: VType) -> str:
        ty, suffix = ltype(s), _suffix(_SCALAR[s.dtype.name], s.lanes)
        if op in _FLOAT:
            return self._named(f"{_FLOAT[op]} {ty} {a[0]}, {a[1]}")
        if op is Op.NEG:
            return self._named(f"fneg {ty} {a[0]}")
        if op is Op.RECIP:
            return self._named(f"fdiv {ty} {literal(1.0, s)}, {a[0]}")
        unary = {Op.SQRT: "sqrt", Op.ABS: "fabs", Op.FLOOR: "floor"}
        if op in unary:
            return self._named(self.call(ty, f"llvm.{unary[op]}.{suffix}", [(ty, a[0])]))
        if op in (Op.MAX, Op.MIN):
            return self._extreme(op, a, s)
        if op in (Op.FLOORDIV, Op.MOD):
            return self._remainder(op, a, s)
        raise InternalError(f"no LLVM for {op} on {s}")

    def _remainder(self, op: Op, a: list[str], s: VType) -> str:
        """numpy's: the remainder is exact but for the divisor that is added where signs differ, and
        the quotient follows from it. ``frem`` is a call of the C library for each lane.
        """
        ty, mask = ltype(s), "i1" if s.lanes == 1 else f"<{s.lanes} x i1>"
        zero, suffix = literal(0.0, s), _suffix(_SCALAR[s.dtype.name], s.lanes)

        def chosen(test: str, yes: str, no: str) -> str:
            return self._named(f"select {mask} {test}, {ty} {yes}, {ty} {no}")

        def sign_of(x: str) -> str:
            call = self.call(ty, f"llvm.copysign.{suffix}", [(ty, zero), (ty, x)])
            return self._named(call)

        rest = self._named(f"frem {ty} {a[0]}, {a[1]}")
        left = self._named(f"fcmp une {ty} {rest}, {zero}")
        signs = [self._named(f"fcmp olt {ty} {x}, {zero}") for x in (rest, a[1])]
        apart = self._named(f"xor {mask} {signs[0]}, {signs[1]}")
        fix = self._named(f"and {mask} {apart}, {left}")
        if op is Op.MOD:
            moved = chosen(fix, self._named(f"fadd {ty} {rest}, {a[1]}"), rest)
            return chosen(left, moved, sign_of(a[1]))
        whole = self._named(f"fsub {ty} {a[0]}, {rest}")
        quotient = self._named(f"fdiv {ty} {whole}, {a[1]}")
        less = self._named(f"fsub {ty} {quotient}, {literal(1.0, s)}")
        quotient = chosen(fix, less, quotient)
        floor = self._named(self.call(ty, f"llvm.floor.{suffix}", [(ty, quotient)]))
        beyond = self._named(f"fsub {ty} {quotient}, {floor}")
        half = self._named(f"fcmp ogt {ty} {beyond}, {literal(0.5, s)}")
        up = self._named(f"fadd {ty} {floor}, {literal(1.0, s)}")
        plain = self._named(f"fdiv {ty} {a[0]}, {a[1]}")
        some = self._named(f"fcmp une {ty} {quotient}, {zero}")
        result = chosen(some, chosen(half, up, floor), sign_of(plain))
        by_zero = self._named(f"fcmp oeq {ty} {a[1]}, {zero}")
        return chosen(by_zero, plain, result)

    def _pair(self, a: list[str], s: VType) -> str:
        """The first in the low half: bf16 as they are, of f32 the upper halves."""
        word = VType(I32, s.lanes)
        ty = ltype(word)
        if s.dtype == F32:
            first, second = (self._named(f"bitcast {ltype(s)} {x} to {ty}") for x in a)
            low = self._named(f"lshr {ty} {first}, {literal(16, word)}")
            high = self._named(f"and {ty} {second}, {literal(-65536, word)}")
        else:
            low, second = (self._named(f"zext {ltype(s)} {x} to {ty}") for x in a)
            high = self._named(f"shl {ty} {second}, {literal(16, word)}")
        return self._named(f"or {ty} {low}, {high}")

    def _of_pairs(self, op: Op, a: list[str], lanes: int) -> str:
        if op in (Op.LOW, Op.HIGH):
            return self._half(op, a[0], lanes)
        single = VType(F32, lanes)
        total = a[2] if op is Op.DOT2_ADD else literal(0.0, single)
        if self.bf16_dot and lanes in (4, 8, 16):
            pairs = f"<{2 * lanes} x bfloat>"
            x, y = (self._named(f"bitcast <{lanes} x i32> {v} to {pairs}") for v in a[:2])
            arguments = [(ltype(single), total), (pairs, x), (pairs, y)]
            return self._named(
                self.call(ltype(single), f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}", arguments)
            )
        for half in (Op.HIGH, Op.LOW):
            factors = [(ltype(single), self._half(half, v, lanes)) for v in a[:2]]
            name = f"llvm.fmuladd.{_suffix('float', lanes)}"
            total = self._named(self.call(ltype(single), name, [*factors, (ltype(single), total)]))
        return total

    def _half(self, op: Op, pair: str, lanes: int) -> str:
        word = VType(I32, lanes)
        code = f"shl {ltype(word)} {pair}, {literal(16, word)}"
        if op is Op.HIGH:
            code = f"and {ltype(word)} {pair}, {literal(-65536, word)}"
        return self._named(
            f"bitcast {ltype(word)} {self._named(code)} to {ltype(VType(F32, lanes))}"
        )

    def _extreme(self, op: Op, a: list[str], s: VType) -> str:
        """NaN wins, and which zero wins is open.

        With one constant side a single compare does it: the other side is kept when unordered.
        Otherwise the hardware's maximum, which keeps its second side (the one so far, in a fold),
        and a repair of the first: by name where there is a name, since LLVM makes two compares and
        a union of masks out of two selects.
        """
        ty, mask = ltype(s), "i1" if s.lanes == 1 else f"<{s.lanes} x i1>"
        greater, less = ("ugt", "ogt") if op is Op.MAX else ("ult", "olt")
        constant = [not x.startswith("%") for x in a]
        if any(constant) and not all(constant):
            x, c = (a[1], a[0]) if constant[0] else (a[0], a[1])
            held = self._named(f"fcmp {greater} {ty} {x}, {c}")
            return self._named(f"select {mask} {held}, {ty} {x}, {ty} {c}")
        old, new = a
        name = f"{'max' if op is Op.MAX else 'min'}.ps"
        if self.avx512 and s.dtype == F32 and s.lanes == 16:
            arguments = [(ty, new), (ty, old), ("i32", "4")]
            chosen = self._named(self.call(ty, f"llvm.x86.avx512.{name}.512", arguments))
        elif self.avx512 and s.dtype == F32 and s.lanes in (4, 8):
            arguments = [(ty, new), (ty, old)]
            chosen = self._named(
                self.call(
                    ty,
                    f"llvm.x86.{f'avx.{name}.256' if s.lanes == 8 else f'sse.{name}'}",
                    arguments,
                )
            )
        else:
            held = self._named(f"fcmp {less} {ty} {new}, {old}")
            chosen = self._named(f"select {mask} {held}, {ty} {new}, {ty} {old}")
        unordered = self._named(f"fcmp uno {ty} {new}, {new}")
        return self._named(f"select {mask} {unordered}, {ty} {new}, {ty} {chosen}")

    def _int(self, op: Op, a: list[str], s: VType) -> str:
        ty, suffix = ltype(s), _suffix(_SCALAR[s.dtype.name], s.lanes)
        if s.dtype.is_bool:
            op = {Op.MUL: Op.AND, Op.MIN: Op.AND, Op.ADD: Op.OR, Op.MAX: Op.OR, Op.SUB: Op.XOR}.get(
                op, op
            )
        if op in _INT:
            return self._named(f"{_INT[op]} {ty} {a[0]}, {a[1]}")
        if op is Op.NOT:
            return self._named(f"xor {ty} {a[0]}, {literal(True if s.dtype.is_bool else -1, s)}")
        if op is Op.NEG:
            return self._named(f"sub {ty} {literal(0, s)}, {a[0]}")
        if op is Op.ABS and not s.dtype.signed:
            return a[0]
        if op is Op.ABS:
            return self._extreme_int(
                "smax", a[0], self._named(f"sub {ty} {literal(0, s)}, {a[0]}"), ty, suffix
            )
        if op is Op.FMA:
            return self._named(f"add {ty} {self._named(f'mul {ty} {a[0]}, {a[1]}')}, {a[2]}")
        if op in (Op.MAX, Op.MIN):
            name = f"{'s' if s.dtype.signed else 'u'}{op}"
            return self._extreme_int(name, a[0], a[1], ty, suffix)
        if op in (Op.FLOORDIV, Op.MOD):
            return self._division(op, a, s) if s.dtype.signed else self._unsigned(op, a, s)
        if op in (Op.SHL, Op.SHR):
            return self._shift(op, a, s)
        raise InternalError(f"no LLVM for {op} on {s}")

    def _extreme_int(self, name: str, x: str, y: str, ty: str, suffix: str) -> str:
        return self._named(self.call(ty, f"llvm.{name}.{suffix}", [(ty, x), (ty, y)]))

    def _unsigned(self, op: Op, a: list[str], s: VType) -> str:
        """Division by 0 gives 0."""
        ty, mask = ltype(s), "i1" if s.lanes == 1 else f"<{s.lanes} x i1>"
        zero = literal(0, s)
        none = self._named(f"icmp eq {ty} {a[1]}, {zero}")
        d = self._named(f"select {mask} {none}, {ty} {literal(1, s)}, {ty} {a[1]}")
        result = self._named(f"{'udiv' if op is Op.FLOORDIV else 'urem'} {ty} {a[0]}, {d}")
        return self._named(f"select {mask} {none}, {ty} {zero}, {ty} {result}")

    def _shift(self, op: Op, a: list[str], s: VType) -> str:
        """By all bits or more (as a number without a sign) nothing is left but the sign."""
        ty, mask, bits = ltype(s), "i1" if s.lanes == 1 else f"<{s.lanes} x i1>", s.dtype.bits
        all_bits = literal(bits - 1, s)
        inside = self._named(f"icmp ule {ty} {a[1]}, {all_bits}")
        by = self._named(f"select {mask} {inside}, {ty} {a[1]}, {ty} {all_bits}")
        if op is Op.SHR and s.dtype.signed:
            return self._named(f"ashr {ty} {a[0]}, {by}")
        moved = self._named(f"{'shl' if op is Op.SHL else 'lshr'} {ty} {a[0]}, {by}")
        return self._named(f"select {mask} {inside}, {ty} {moved}, {ty} {literal(0, s)}")

    def _division(self, op: Op, a: list[str], s: VType) -> str:
        """Python's: the quotient rounds down and the remainder has the divisor's sign.

        X // 0 is 0 and x % 0 is 0, like numpy. Neither 0 nor -1 reaches the division: the least
        integer over -1 traps.
        """
        ty, mask = ltype(s), "i1" if s.lanes == 1 else f"<{s.lanes} x i1>"
        zero, one, minus_one = literal(0, s), literal(1, s), literal(-1, s)
        none = self._named(f"icmp eq {ty} {a[1]}, {zero}")
        minus = self._named(f"icmp eq {ty} {a[1]}, {minus_one}")
        special = self._named(f"or {mask} {none}, {minus}")
        d = self._named(f"select {mask} {special}, {ty} {one}, {ty} {a[1]}")
        r = self._named(f"srem {ty} {a[0]}, {d}")
        signs = self._named(f"xor {ty} {r}, {d}")
        opposite = self._named(f"icmp slt {ty} {signs}, {zero}")
        left = self._named(f"icmp ne {ty} {r}, {zero}")
        fix = self._named(f"and {mask} {opposite}, {left}")
        if op is Op.MOD:
            moved = self._named(f"add {ty} {r}, {d}")
            result = self._named(f"select {mask} {fix}, {ty} {moved}, {ty} {r}")
        else:
            q = self._named(f"sdiv {ty} {a[0]}, {d}")
            less = self._named(f"sub {ty} {q}, {one}")
            rounded = self._named(f"select {mask} {fix}, {ty} {less}, {ty} {q}")
            negated = self._named(f"sub {ty} {zero}, {a[0]}")
            result = self._named(f"select {mask} {minus}, {ty} {negated}, {ty} {rounded}")
        return self._named(f"select {mask} {none}, {ty} {zero}, {ty} {result}")

    def fold(self, i: Fold) -> None:
        s = self.types[i.arg]
        if s.lanes == 1:
            self.bind(i.id, i.vtype, self.value(i.arg))
            return
        ty, one = ltype(s), _SCALAR[s.dtype.name]
        suffix = _suffix(one, s.lanes)
        if s.dtype.is_float and i.op in (Op.ADD, Op.MUL):
            name = f"llvm.vector.reduce.{'fadd' if i.op is Op.ADD else 'fmul'}.{suffix}"
            start = literal(-0.0 if i.op is Op.ADD else 1.0, VType(s.dtype))
            self.declared.add(f"{one} @{name}({one}, {ty})")
            self.define(
                i.id,
                i.vtype,
                f"call reassoc {one} @{name}({one} {start}, {ty} {self.value(i.arg)})",
            )
            return
        if s.dtype.is_float:
            self._extreme_of(i, s, suffix)
            return
        if s.dtype.is_bool:
            kind = "or" if i.op in (Op.ADD, Op.MAX) else "and"
        else:
            sign = "s" if s.dtype.signed else "u"
            kind = str(i.op) if i.op in (Op.ADD, Op.MUL) else f"{sign}{i.op}"
        self.define(
            i.id,
            i.vtype,
            self.call(one, f"llvm.vector.reduce.{kind}.{suffix}", [(ty, self.value(i.arg))]),
        )

    def _extreme_of(self, i: Fold, s: VType, suffix: str) -> None:
        """The largest or least lane, compared as if there was no NaN; NaN where there is one."""
        ty, one, mask, value = (
            ltype(s),
            _SCALAR[s.dtype.name],
            f"<{s.lanes} x i1>",
            self.value(i.arg),
        )
        name = f"llvm.vector.reduce.{'fmax' if i.op is Op.MAX else 'fmin'}.{suffix}"
        self.declared.add(f"{one} @{name}({ty})")
        chosen = self._named(f"call nnan nsz {one} @{name}({ty} {value})")
        nans = self._named(f"fcmp uno {ty} {value}, {value}")
        some = self._named(self.call("i1", f"llvm.vector.reduce.or.v{s.lanes}i1", [(mask, nans)]))
        self.define(
            i.id, i.vtype, f"select i1 {some}, {one} {literal(nan, VType(s.dtype))}, {one} {chosen}"
        )

    # -- conversions

    def convert(self, i: Convert) -> None:
        self.bind(i.id, i.vtype, self.cast(self.value(i.arg), self.types[i.arg], i.vtype))

    def from_i64(self, value: str, t: VType) -> str:
        return self.cast(value, VType(I64), t)

    def cast(self, v: str, s: VType, t: VType) -> str:
        if s.dtype == t.dtype:
            return v
        if "bf16" in (s.dtype.name, t.dtype.name):
            return self._bf16(v, s, t)
        a, b = ltype(s), ltype(t)
        if t.dtype.is_bool:
            zero = literal(0, s)
            return self._named(f"{'fcmp une' if s.dtype.is_float else 'icmp ne'} {a} {v}, {zero}")
        if s.dtype.is_float and t.dtype.is_float:
            return self._named(
                f"{'fpext' if t.dtype.bits > s.dtype.bits else 'fptrunc'} {a} {v} to {b}"
            )
        if s.dtype.is_float:
            suffix = (
                f"{_suffix(_SCALAR[t.dtype.name], t.lanes)}."
                f"{_suffix(_SCALAR[s.dtype.name], s.lanes)}"
            )
            kind = "fptosi" if t.dtype.signed else "fptoui"
            return self._named(self.call(b, f"llvm.{kind}.sat.{suffix}", [(a, v)]))
        if t.dtype.is_float:
            return self._named(f"{'sitofp' if s.dtype.signed else 'uitofp'} {a} {v} to {b}")
        if a == b:
            return v
        if t.dtype.bits < s.dtype.bits:
            return self._named(f"trunc {a} {v} to {b}")
        return self._named(f"{'sext' if s.dtype.signed else 'zext'} {a} {v} to {b}")

    def _bf16(self, v: str, s: VType, t: VType) -> str:
        word, single = VType(I32, s.lanes), VType(F32, s.lanes)
        if s.dtype.name == "bf16":
            wide = self._named(f"zext {ltype(s)} {v} to {ltype(word)}")
            bits = self._named(f"shl {ltype(word)} {wide}, {literal(16, word)}")
            return self.cast(
                self._named(f"bitcast {ltype(word)} {bits} to {ltype(single)}"), single, t
            )
        x = self.cast(v, s, single)
        if self.bf16_dot and s.lanes in (4, 8, 16):
            narrow = f"<{s.lanes} x bfloat>"
            rounded = self._named(f"fptrunc {ltype(single)} {x} to {narrow}")
            return self._named(f"bitcast {narrow} {rounded} to {ltype(t)}")
        bits = self._named(f"bitcast {ltype(single)} {x} to {ltype(word)}")
        high = self._named(f"lshr {ltype(word)} {bits}, {literal(16, word)}")
        odd = self._named(f"and {ltype(word)} {high}, {literal(1, word)}")
        round_up = self._named(f"add {ltype(word)} {odd}, {literal(0x7FFF, word)}")
        rounded = self._named(f"add {ltype(word)} {bits}, {round_up}")
        top = self._named(f"lshr {ltype(word)} {rounded}, {literal(16, word)}")
        quiet = self._named(f"or {ltype(word)} {high}, {literal(0x40, word)}")
        mask = "i1" if s.lanes == 1 else f"<{s.lanes} x i1>"
        nan = self._named(f"fcmp uno {ltype(single)} {x}, {x}")
        chosen = self._named(f"select {mask} {nan}, {ltype(word)} {quiet}, {ltype(word)} {top}")
        return self._named(f"trunc {ltype(word)} {chosen} to {ltype(t)}")


def _single_lane(mask: str) -> int | None:
    """The only lane of a constant mask."""
    lanes = mask.removeprefix("<").removesuffix(">").split(", ") if mask.startswith("<") else []
    held = [i for i, lane in enumerate(lanes) if lane == "i1 true"]
    return held[0] if len(held) == 1 and lanes.count("i1 false") == len(lanes) - 1 else None


def _suffix(one: str, lanes: int) -> str:
    short = {"float": "f32", "double": "f64", "half": "f16"}.get(one, one)
    return short if lanes == 1 else f"v{lanes}{short}"
