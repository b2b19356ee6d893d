"""LLVM IR of tile registers: one table of primitives, each as instructions of AMX or as plain code.

    primitive      arguments                         AMX
    ldtilecfg      pointer to a configuration        rows and bytes of every register; all are zero
    tilerelease                                      no register is set up
    tilezero       register
    tileloadd64    register, pointer, bytes between rows
    tilestored64   register, pointer, bytes between rows
    tdpbf16ps      registers C, A, B                 C += A * B, of pairs of bf16
    tdpbusd ..     registers C, A, B                 C += A * B, of four bytes: A's have no sign
                                                     (u) or one (s), then B's

LLVM names its intrinsics so (``llvm.x86.NAME``), with registers as constants: they are chosen
already, so nothing is left to allocate, spill or set up for its code generation. On a target
without AMX the same calls go to ``tg.amx.NAME``, functions of this file, whose first argument is
memory that stands for the registers and their configuration:

    bytes 0 to 63: the configuration, as ``ldtilecfg`` takes it      then 1024 bytes a register

They compute what hardware does, but for subnormal numbers, which they keep; where hardware would
raise an exception, because registers of a product do not fit or none is set up, they make results
NaN, or all bits 1 of integers. So a program for AMX is proved where there is none. See Intel SDM,
volume 1, chapter 18.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tunegrad.ir.index import Index
from tunegrad.ir.program import (
    Program,
    TileConfig,
    TileLoad,
    TileMul,
    TileStore,
    TileZero,
    walk,
)
from tunegrad.ir.target import Target

from .llvm_values import LlvmValues

__all__ = ["Tiles"]

_STATE_BYTES = 64 + 8 * 1024

_IMMEDIATES: Final = {
    "ldtilecfg": ("ptr",),
    "tilerelease": (),
    "tilezero": ("i8",),
    "tileloadd64": ("i8", "ptr", "i64"),
    "tilestored64": ("i8", "ptr", "i64"),
    "tdpbf16ps": ("i8", "i8", "i8"),
    "tdpbusd": ("i8", "i8", "i8"),
    "tdpbuud": ("i8", "i8", "i8"),
    "tdpbssd": ("i8", "i8", "i8"),
    "tdpbsud": ("i8", "i8", "i8"),
}
"""The primitives, and the types of their arguments: an i8 is the number of a register."""

_PRODUCTS: Final = {
    ("bf16x2", "bf16x2"): "tdpbf16ps",
    ("u8x4", "i8x4"): "tdpbusd",
    ("u8x4", "u8x4"): "tdpbuud",
    ("i8x4", "i8x4"): "tdpbssd",
    ("i8x4", "u8x4"): "tdpbsud",
}
"""The primitive of a product, by the factors of its unit."""


class Tiles:
    """Instructions of tile registers of one program as text: those of a processor that has AMX, or
    calls of functions that stand for them. ``address`` gives a pointer to an element of a buffer.
    """

    def __init__(
        self,
        program: Program,
        target: Target | None,
        values: LlvmValues,
        address: Callable[[str, Index], str],
    ) -> None:
        self.amx = target is not None and target.amx
        self.values, self.address = values, address
        self.configurations: dict[tuple[int, ...], str] = {}
        for i in walk(program.body):
            if isinstance(i, TileConfig):
                found = self.configurations
                found.setdefault(i.rows, f"@tg.tiles.{len(found)}")

    def config(self, i: TileConfig) -> None:
        """Load a configuration; where there is only one, the prologue has loaded it."""
        if len(self.configurations) != 1:
            self._emit("ldtilecfg", self.configurations[i.rows])

    def zero(self, i: TileZero) -> None:
        self._emit("tilezero", str(i.tile))

    def load(self, i: TileLoad) -> None:
        self._move("tileloadd64", i)

    def store(self, i: TileStore) -> None:
        self._move("tilestored64", i)

    def multiply(self, i: TileMul) -> None:
        self._emit(_PRODUCTS[i.unit.factors], *map(str, (i.tile, i.a, i.b)))

    def _move(self, name: str, i: TileLoad | TileStore) -> None:
        step = i.offset.coefficient(i.row) or 0
        address = self.address(i.buffer, i.offset.at({i.row: 0, i.lane: 0}))
        self._emit(name, str(i.tile), address, str(step * i.vtype.dtype.itemsize))

    def _emit(self, name: str, *values: str) -> None:
        self.values.emit(self._code(name, *values))

    def _code(self, name: str, *values: str) -> str:
        types = _IMMEDIATES[name]
        args = [f"{t} {v}" for t, v in zip(types, values, strict=True)]
        if self.amx:
            shown = ", ".join(f"{t} immarg" if t == "i8" else t for t in types)
            self.values.declared.add(f"void @llvm.x86.{name}({shown})")
            return f"call void @llvm.x86.{name}({', '.join(args)})"
        self.values.defined[f"tg.amx.{name}"] = _TWINS[name]
        if name == "tdpbf16ps":
            self.values.declared.add(_FUSED)
        return f"call void @tg.amx.{name}({', '.join(['ptr %amx', *args])})"

    # around the body

    def prologue(self) -> list[str]:
        """Lines before a body that uses tiles: their memory, and their one configuration."""
        if not self.configurations:
            return []
        lines = [] if self.amx else [f"  %amx = alloca [{_STATE_BYTES} x i8], align 64"]
        if len(self.configurations) == 1:
            (name,) = self.configurations.values()
            lines.append(f"  {self._code('ldtilecfg', name)}")
        return lines

    def epilogue(self) -> list[str]:
        """Lines after such a body: the registers are given back, so that none is saved any more."""
        return [f"  {self._code('tilerelease')}"] if self.configurations else []

    def constants(self) -> list[str]:
        """The configurations that the body loads."""
        return [
            f"{name} = private unnamed_addr constant [64 x i8] "
            f"[{', '.join(f'i8 {b}' for b in _configuration(rows))}], align 64"
            for rows, name in self.configurations.items()
        ]


def _configuration(rows: tuple[int, ...]) -> bytes:
    """The 64 bytes of ``ldtilecfg``: palette 1; bytes of a row, 2 each from 16 on; rows from 48."""
    made = bytearray(64)
    made[0] = 1
    for t, count in enumerate(rows):
        made[16 + 2 * t] = 64 if count else 0
        made[48 + t] = count
    return bytes(made)


def _loop(name: str, stop: str, body: str, before: str, after: str) -> str:
    """``for name in stop: body``, from the block ``before`` on to the block ``after``."""
    return f"""\
{name}:
  %{name}.i = phi i64 [ 0, %{before} ], [ %{name}.n, %{name}.next ]
  %{name}.c = icmp ult i64 %{name}.i, {stop}
  br i1 %{name}.c, label %{name}.do, label %{after}
{name}.do:
{body}
{name}.next:
  %{name}.n = add i64 %{name}.i, 1
  br label %{name}
"""


def _register(name: str) -> str:
    """The memory, rows and bytes of a row of the register that ``name`` numbers."""
    return f"""\
  %{name}.w = zext i8 %{name} to i64
  %{name}.o = mul i64 %{name}.w, 1024
  %{name}.p = add i64 %{name}.o, 64
  %{name}.at = getelementptr i8, ptr %amx, i64 %{name}.p
  %{name}.r = add i64 %{name}.w, 48
  %{name}.rp = getelementptr i8, ptr %amx, i64 %{name}.r
  %{name}.r8 = load i8, ptr %{name}.rp
  %{name}.rows = zext i8 %{name}.r8 to i64
  %{name}.b2 = mul i64 %{name}.w, 2
  %{name}.b = add i64 %{name}.b2, 16
  %{name}.bp = getelementptr i8, ptr %amx, i64 %{name}.b
  %{name}.b16 = load i16, ptr %{name}.bp
  %{name}.bytes = zext i16 %{name}.b16 to i64
  %{name}.words = udiv i64 %{name}.bytes, 4"""


def _line(of: str, base: str, stride: str, row: str) -> str:
    """The address of a row."""
    return f"""\
  %{of}.off = mul i64 {row}, {stride}
  %{of} = getelementptr i8, ptr {base}, i64 %{of}.off"""


def _move(name: str, first: str, second: str) -> str:
    """Rows from memory to a register, or back, word by word."""
    word = f"""\
  %src.w = getelementptr i32, ptr %{first}, i64 %words.i
  %dst.w = getelementptr i32, ptr %{second}, i64 %words.i
  %word = load i32, ptr %src.w, align 1
  store i32 %word, ptr %dst.w, align 1
  br label %words.next"""
    lines = f"""\
{_line("mem", "%p", "%stride", "%rows.i")}
{_line("reg", "%t.at", "64", "%rows.i")}
  br label %words
{_loop("words", "%t.words", word, "rows.do", "rows.next")}"""
    return f"""\
define internal void @tg.amx.{name}(ptr %amx, i8 %t, ptr %p, i64 %stride) nounwind noinline {{
entry:
{_register("t")}
  br label %rows
{_loop("rows", "%t.rows", lines, "entry", "done")}\
done:
  ret void
}}"""


def _zeros(at: str, stop: str, name: str, before: str, after: str) -> str:
    """Zeros in whole lines of 64 bytes."""
    body = f"""\
{_line(f"{name}.at", at, "64", f"%{name}.i")}
  store <16 x i32> zeroinitializer, ptr %{name}.at, align 64
  br label %{name}.next"""
    return _loop(name, stop, body, before, after)


_FUSED = "<16 x float> @llvm.fmuladd.v16f32(<16 x float>, <16 x float>, <16 x float>)"
_FMA = "call <16 x float> @llvm.fmuladd.v16f32(<16 x float>"

_FACTORS = f"""\
{_line("wa", "%a.at", "64", "%rows.i")}
  %wa.w = getelementptr i32, ptr %wa, i64 %terms.i
  %one = load i32, ptr %wa.w
  %one.v = insertelement <16 x i32> poison, i32 %one, i64 0
  %left = shufflevector <16 x i32> %one.v, <16 x i32> poison, <16 x i32> zeroinitializer
{_line("wb", "%b.at", "64", "%terms.i")}
  %right = load <16 x i32>, ptr %wb"""

_TERM = f"""\
{_FACTORS}
  %ll = shl <16 x i32> %left, splat (i32 16)
  %rl = shl <16 x i32> %right, splat (i32 16)
  %lh = and <16 x i32> %left, splat (i32 -65536)
  %rh = and <16 x i32> %right, splat (i32 -65536)
  %ll.f = bitcast <16 x i32> %ll to <16 x float>
  %rl.f = bitcast <16 x i32> %rl to <16 x float>
  %lh.f = bitcast <16 x i32> %lh to <16 x float>
  %rh.f = bitcast <16 x i32> %rh to <16 x float>
  %even.n = {_FMA} %ll.f, <16 x float> %rl.f, <16 x float> %even)
  %odd.n = {_FMA} %lh.f, <16 x float> %rh.f, <16 x float> %odd)"""

_PAIRS = (
    "float", ("even", "odd"), _TERM,
    """\
  %both = fadd <16 x float> %even, %odd
  %spoilt = fadd <16 x float> %both, %bad
  %old = load <16 x float>, ptr %c.row
  %new = fadd <16 x float> %old, %spoilt""",
    "float 0x7FF8000000000000",
)  # fmt: skip


def _dot(name: str, kind: str, sums: tuple[str, ...], term: str, last: str, spoilt: str) -> str:
    """C += A * B: for every row ``sums`` of terms, 16 of ``kind`` each, from which ``last`` makes
    ``%new``; ``%bad`` is zeros, or ``spoilt`` where registers do not fit.
    """
    vector = f"<16 x {kind}>"
    phis = "\n".join(
        f"  %{x} = phi {vector} [ zeroinitializer, %rows.do ], [ %{x}.n, %terms.next ]"
        for x in sums
    )
    row = f"""\
{_line("c.row", "%c.at", "64", "%rows.i")}
  br label %terms
terms:
  %terms.i = phi i64 [ 0, %rows.do ], [ %terms.n, %terms.next ]
{phis}
  %terms.c = icmp ult i64 %terms.i, %a.words
  br i1 %terms.c, label %terms.do, label %sum
terms.do:
{term}
  br label %terms.next
terms.next:
  %terms.n = add i64 %terms.i, 1
  br label %terms
sum:
{last}
  store {vector} %new, ptr %c.row
  br label %rows.next"""
    return f"""\
define internal void @tg.amx.{name}(ptr %amx, i8 %c, i8 %a, i8 %b) nounwind noinline {{
entry:
{_register("c")}
{_register("a")}
{_register("b")}
  %heights = icmp eq i64 %c.rows, %a.rows
  %depths = icmp eq i64 %a.words, %b.rows
  %widths = icmp eq i64 %c.bytes, %b.bytes
  %set = icmp ne i64 %c.rows, 0
  %fit.1 = and i1 %heights, %depths
  %fit.2 = and i1 %widths, %set
  %fit = and i1 %fit.1, %fit.2
  %bad = select i1 %fit, {vector} zeroinitializer, {vector} splat ({spoilt})
  br label %rows
{_loop("rows", "%c.rows", row, "entry", "done")}\
done:
  ret void
}}"""


def _dot_of_bytes(name: str) -> str:
    """The product whose factors have a sign or not as the name says."""
    lines, total = [_FACTORS], "%total"
    for i in range(4):
        for side, sign in zip(("left", "right"), name[-3:-1], strict=True):
            up = f"shl <16 x i32> %{side}, splat (i32 {24 - 8 * i})"
            down = "ashr" if sign == "s" else "lshr"
            lines.append(f"  %{side}.u{i} = {up}")
            lines.append(f"  %{side}.{i} = {down} <16 x i32> %{side}.u{i}, splat (i32 24)")
        lines.append(f"  %p{i} = mul <16 x i32> %left.{i}, %right.{i}")
        made = "%total.n" if i == 3 else f"%total.{i}"
        lines.append(f"  {made} = add <16 x i32> {total}, %p{i}")
        total = made
    last = """\
  %old = load <16 x i32>, ptr %c.row
  %more = add <16 x i32> %old, %total
  %new = or <16 x i32> %more, %bad"""
    return _dot(name, "i32", ("total",), "\n".join(lines), last, "i32 -1")


_TWINS: Final = {
    "ldtilecfg": f"""\
define internal void @tg.amx.ldtilecfg(ptr %amx, ptr %p) nounwind noinline {{
entry:
  %set = load <16 x i32>, ptr %p, align 1
  store <16 x i32> %set, ptr %amx, align 64
  %at = getelementptr i8, ptr %amx, i64 64
  br label %lines
{_zeros("%at", "128", "lines", "entry", "done")}\
done:
  ret void
}}""",
    "tilerelease": """\
define internal void @tg.amx.tilerelease(ptr %amx) nounwind noinline {
  store <16 x i32> zeroinitializer, ptr %amx, align 64
  ret void
}""",
    "tilezero": f"""\
define internal void @tg.amx.tilezero(ptr %amx, i8 %t) nounwind noinline {{
entry:
{_register("t")}
  br label %lines
{_zeros("%t.at", "%t.rows", "lines", "entry", "done")}\
done:
  ret void
}}""",
    "tileloadd64": _move("tileloadd64", "mem", "reg"),
    "tilestored64": _move("tilestored64", "reg", "mem"),
    "tdpbf16ps": _dot("tdpbf16ps", *_PAIRS),
    **{name: _dot_of_bytes(name) for name in ("tdpbusd", "tdpbuud", "tdpbssd", "tdpbsud")},
}
"""The primitives as plain code."""
