"""Values of LLVM IR: their types, constants, names, and lanes."""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from math import isinf, isnan

import numpy as np

from tunegrad.ir.dtypes import BF16, BOOL, F32, I64, DType
from tunegrad.ir.index import Index
from tunegrad.ir.interpret.numeric import to_memory
from tunegrad.ir.program import Instr, Load, VType
from tunegrad.ir.target import Target

# ---- shuffles
#
# The mask of LLVM's ``shufflevector`` as text.


def shuffle_mask(places: Iterable[int | None]) -> str:
    """The constant vector that says, lane by lane, which lane of the two operands is taken; None
    takes any value.

    shuffle_mask([1, 0, None])  ->  "<3 x i32> <i32 1, i32 0, i32 poison>"
    """
    lanes = [f"i32 {'poison' if place is None else place}" for place in places]
    return f"<{len(lanes)} x i32> <{', '.join(lanes)}>"


# ---- values


_SCALAR = {
    "bool": "i1", "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64",
    "u8": "i8", "u16": "i16", "u32": "i32", "u64": "i64",
    "f16": "half", "bf16": "i16", "f32": "float", "f64": "double",
    "bf16x2": "i32", "u8x4": "i32", "i8x4": "i32",
}  # fmt: skip


def scalar_type(dtype: DType) -> str:
    """The LLVM type of one lane of a value."""
    return _SCALAR[dtype.name]


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
    if dtype.is_int or dtype.is_word:  # LLVM's integers have no sign of their own
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


def mask_type(lanes: int) -> str:
    """The LLVM type of a mask."""
    return "i1" if lanes == 1 else f"<{lanes} x i1>"


def suffix_of(one: str, lanes: int) -> str:
    """The end of an intrinsic's name, for lanes of the type ``one``."""
    short = {"float": "f32", "double": "f64", "half": "f16"}.get(one, one)
    return short if lanes == 1 else f"v{lanes}{short}"


def _nearest(target: Target) -> tuple[int, ...]:
    """Lanes of f32 that one instruction rounds to the nearest i32."""
    return (4, 8, 16) if target.avx512 else (4, 8) if "+avx2" in target.features else ()


Byte = tuple[str, DType]
"""A byte's name, and its type: LLVM's bytes have no sign."""


class LlvmValues:
    """The names, definitions and declarations so far; a subclass has the lines.

    ``avx512``, ``bf16_dot``, ``vnni``, ``widens_bytes`` and ``nearest``: which instructions the
    target has; none without one.
    """

    def __init__(self, target: Target | None) -> None:
        self.avx512 = target is not None and target.avx512
        self.bf16_dot = target is not None and target.bf16_dot
        self.vnni = target is not None and target.vnni
        self.widens_bytes = target is not None and target.widens_bytes
        self.nearest = () if target is None else _nearest(target)
        self.count = 0
        self.names: dict[int, str] = {}
        self.types: dict[int, VType] = {}
        self.shared: dict[str, tuple[str, str | None]] = {}
        """By vector of truths, the scalar that all its lanes need, and what is each lane's own."""
        self.saturated: dict[str, str] = {}
        """By vector of unsigned integers, the clamped floats that it was converted from."""
        self.whole: dict[str, Byte] = {}
        """By float, the byte that it is."""
        self.far: dict[str, str] = {}
        """By vector of whole numbers, these moved to where floats are integers."""
        self.steps: dict[str, tuple[str, Byte | None]] = {}
        """By vector of whole numbers, what is rounded, and the byte that is added."""
        self.stepped: dict[tuple[str, DType], tuple[str, Byte | None]] = {}
        """By vector of bytes, the integers before a byte is added and all saturate; that byte."""
        self.centred: dict[str, tuple[str, Byte]] = {}
        """By vector of bytes as floats, the same less a byte; that byte."""
        self.declared: set[str] = set()
        self.defined: dict[str, str] = {}

    @abstractmethod
    def emit(self, text: str) -> None:
        """Appends an instruction."""

    def prefetch(self, address: str, ahead: int) -> None:
        """Ask for the cache line so many bytes behind an address."""
        line = self.fresh()
        self.emit(f"{line} = getelementptr i8, ptr {address}, i64 {ahead}")
        self.declared.add("void @llvm.prefetch.p0(ptr, i32 immarg, i32 immarg, i32 immarg)")
        self.emit(f"call void @llvm.prefetch.p0(ptr {line}, i32 0, i32 3, i32 1)")

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

    def named(self, code: str) -> str:
        name = self.fresh()
        self.emit(f"{name} = {code}")
        return name

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
        self.shared[whole] = value, None
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
        spread = self.named(
            f"shufflevector <{n} x i1> {mask}, <{n} x i1> zeroinitializer, {places}"
        )
        if mask in self.shared:
            whole, each = self.shared[mask]
            self.shared[spread] = whole, None if each is None else self.spread_mask(each, lanes)
        return spread

    def extract_mask(self, mask: str, lanes: int, lane: int) -> str:
        if lanes == 1:
            return mask
        name = self.fresh()
        self.emit(f"{name} = extractelement <{lanes} x i1> {mask}, i32 {lane}")
        return name


# ---- transposition of strided loads
#
# Strided vector loads that together read whole runs of memory: loaded as runs, transposed in
# registers.
#
#     %1 = A[2048*l]             r0 = A[0:4]   r1 = A[2048:2052]   ..   r15
#     %2 = A[2048*l + 1]    -->  p0 = r0 r4 r8 r12   ..   p3 = r3 r7 r11 r15
#     %3 = A[2048*l + 2]         %1 .. %4 = the 4x4 blocks of p0 .. p3, transposed
#     %4 = A[2048*l + 3]
#
# The lanes of a vector are 2048 elements apart. A load for each lane of each vector takes 64 loads
# and as many insertions here; this takes 16 loads and 8 shuffles of two vectors. Blocks of n
# vectors, n a power of two up to the lane count, take n log2(n) shuffles.


_LEAST_STEP = 5
"""Lanes that are closer are whole vectors and a shuffle each."""


def runs_of(body: Sequence[Instr], read_only: Iterable[str]) -> list[tuple[Load, ...]]:
    """Groups of 2, 4, 8 or 16 loads of one block whose lanes are equally far apart, and that read
    neighbours.

    Only of buffers that the program does not write, so that a group may be loaded where its first
    load stands.
    """
    buffers = frozenset(read_only)
    found: dict[tuple[str, str, int, int, Index], dict[int, Load]] = defaultdict(dict)
    for i in body:
        if (
            type(i) is Load
            and i.buffer in buffers
            and i.mask is None
            and i.vtype.lanes in (4, 8, 16)
        ):
            step = i.offset.coefficient(i.lane) if i.lane else None
            if step is not None and step >= _LEAST_STEP:
                key = (i.buffer, i.lane, step, i.vtype.lanes, i.offset + -i.offset.const)
                found[key].setdefault(i.offset.const, i)
    groups = []
    for (_, _, step, lanes, _), loads in found.items():
        ordered = sorted(loads)
        for _, run in groupby(enumerate(ordered), key=lambda pair: pair[1] - pair[0]):
            groups += _parts([loads[at] for _, at in run], min(lanes, step))
    return groups


def _parts(run: list[Load], most: int) -> list[tuple[Load, ...]]:
    """A run of neighbours in groups of powers of two, largest first, without single ones."""
    parts = []
    while len(run) > 1:
        size = 1
        while 2 * size <= min(len(run), most):
            size *= 2
        if size < 2:
            break
        parts.append(tuple(run[:size]))
        run = run[size:]
    return parts


def transposition(count: int, lanes: int) -> list[list[tuple[int, int, tuple[int, ...]]]]:
    """Stages that transpose the ``count`` x ``count`` blocks of ``count`` vectors.

    Each stage gives new vectors in order, as two of the old ones and which of their lanes.
    """
    stages = []
    distance = 1
    while distance < count:
        stage = []
        for j in range(count):
            low, high = j & ~distance, j | distance
            shift = distance if j & distance else 0
            picked = tuple(
                lane + shift if not lane & distance else lanes + lane - distance + shift
                for lane in range(lanes)
            )
            stage.append((low, high, picked))
        stages.append(stage)
        distance *= 2
    return stages
