"""LLVM IR of tile registers: one table of primitives, each as instructions of AMX or as plain code.

    primitive      arguments                         AMX
    ldtilecfg      pointer to a configuration        rows and bytes of every register; all are zero
    tilerelease                                      no register is set up
    tilezero       register
    tileloadd64    register, pointer, bytes between rows
    tilestored64   register, pointer, bytes between rows
    tdpbf16ps      registers C, A, B                 C += A * B, of pairs of bf16

LLVM names its intrinsics so (``llvm.x86.NAME``), with registers as constants: they are chosen
already, so nothing is left to allocate, spill or set up for its code generation. On a target
without AMX the same calls go to ``tg.amx.NAME``, functions of this file, whose first argument is
memory that stands for the registers and their configuration:

    bytes 0 to 63: the configuration, as ``ldtilecfg`` takes it      then 1024 bytes a register

They compute what hardware does, but for subnormal numbers, which they keep; where hardware would
raise an exception, because registers of a product do not fit or none is set up, they make results
NaN. So a program for AMX is proved where there is none. See Intel SDM, volume 1, chapter 18.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from tunegrad.ir.index import Index
from tunegrad.ir.program import TileConfig, TileLoad, TileMul, TileStore, TileZero

from .llvm_memory import Memory

__all__ = ["Tiles"]

_STATE_BYTES = 64 + 8 * 1024

_IMMEDIATES: Final = {
    "ldtilecfg": ("ptr",),
    "tilerelease": (),
    "tilezero": ("i8",),
    "tileloadd64": ("i8", "ptr", "i64"),
    "tilestored64": ("i8", "ptr", "i64"),
    "tdpbf16ps": ("i8", "i8", "i8"),
}
"""The primitives, and the types of their arguments: an i8 is the number of a register."""

_PRODUCTS: Final = {("bf16x2", "f32"): "tdpbf16ps"}
"""The primitive of a product, by the dtypes of its unit."""


class Tiles(Memory):
    """Turns instructions of tile registers into text. ``amx``: into those of the processor."""

    def __init__(self, avx512: bool = False, bf16_dot: bool = False, amx: bool = False) -> None:
        super().__init__(avx512, bf16_dot)
        self.amx = amx
        self.configurations: dict[tuple[int, ...], str] = {}

    @abstractmethod
    def address(self, buffer: str, offset: Index) -> str:
        """A pointer to ``buffer[offset]``."""

    def tile_config(self, i: TileConfig) -> None:
        """Where one configuration is all there is, it is loaded when the kernel begins."""
        if len(self.configurations) != 1:
            self._tile("ldtilecfg", self.configurations[i.rows])

    def tile_zero(self, i: TileZero) -> None:
        self._tile("tilezero", str(i.tile))

    def tile_load(self, i: TileLoad) -> None:
        self._moves("tileloadd64", i)

    def tile_store(self, i: TileStore) -> None:
        self._moves("tilestored64", i)

    def tile_mul(self, i: TileMul) -> None:
        self._tile(_PRODUCTS[i.unit.dtypes], *map(str, (i.tile, i.a, i.b)))

    def _moves(self, name: str, i: TileLoad | TileStore) -> None:
        step = i.offset.coefficient(i.row) or 0
        address = self.address(i.buffer, i.offset.at({i.row: 0, i.lane: 0}))
        self._tile(name, str(i.tile), address, str(step * i.vtype.dtype.itemsize))

    def _tile(self, name: str, *values: str) -> None:
        self.emit(self._tile_code(name, *values))

    def _tile_code(self, name: str, *values: str) -> str:
        types = _IMMEDIATES[name]
        args = [f"{t} {v}" for t, v in zip(types, values, strict=True)]
        if self.amx:
            shown = ", ".join(f"{t} immarg" if t == "i8" else t for t in types)
            self.declared.add(f"void @llvm.x86.{name}({shown})")
            return f"call void @llvm.x86.{name}({', '.join(args)})"
        self.defined[f"tg.amx.{name}"] = _TWINS[name]
        if name in _PRODUCTS.values():
            self.declared.add(_FUSED)
        return f"call void @tg.amx.{name}({', '.join(['ptr %amx', *args])})"

    # around the body

    def prologue(self) -> list[str]:
        """What comes before a body that uses tiles: their memory, and their one configuration."""
        if not self.configurations:
            return []
        lines = [] if self.amx else [f"  %amx = alloca [{_STATE_BYTES} x i8], align 64"]
        if len(self.configurations) == 1:
            (name,) = self.configurations.values()
            lines.append(f"  {self._tile_code('ldtilecfg', name)}")
        return lines

    def epilogue(self) -> list[str]:
        """What comes after it: the registers are given back, so that none is saved any more."""
        return [f"  {self._tile_code('tilerelease')}"] if self.configurations else []

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

_TERM = f"""\
{_line("wa", "%a.at", "64", "%rows.i")}
  %wa.w = getelementptr i32, ptr %wa, i64 %terms.i
  %one = load i32, ptr %wa.w
  %one.v = insertelement <16 x i32> poison, i32 %one, i64 0
  %left = shufflevector <16 x i32> %one.v, <16 x i32> poison, <16 x i32> zeroinitializer
{_line("wb", "%b.at", "64", "%terms.i")}
  %right = load <16 x i32>, ptr %wb
  %ll = shl <16 x i32> %left, splat (i32 16)
  %rl = shl <16 x i32> %right, splat (i32 16)
  %lh = and <16 x i32> %left, splat (i32 -65536)
  %rh = and <16 x i32> %right, splat (i32 -65536)
  %ll.f = bitcast <16 x i32> %ll to <16 x float>
  %rl.f = bitcast <16 x i32> %rl to <16 x float>
  %lh.f = bitcast <16 x i32> %lh to <16 x float>
  %rh.f = bitcast <16 x i32> %rh to <16 x float>
  %even.n = {_FMA} %ll.f, <16 x float> %rl.f, <16 x float> %even)
  %odd.n = {_FMA} %lh.f, <16 x float> %rh.f, <16 x float> %odd)
  br label %terms.next"""

_ROW = f"""\
{_line("c.row", "%c.at", "64", "%rows.i")}
  br label %terms
terms:
  %terms.i = phi i64 [ 0, %rows.do ], [ %terms.n, %terms.next ]
  %even = phi <16 x float> [ zeroinitializer, %rows.do ], [ %even.n, %terms.next ]
  %odd = phi <16 x float> [ zeroinitializer, %rows.do ], [ %odd.n, %terms.next ]
  %terms.c = icmp ult i64 %terms.i, %a.words
  br i1 %terms.c, label %terms.do, label %sum
terms.do:
{_TERM}
terms.next:
  %terms.n = add i64 %terms.i, 1
  br label %terms
sum:
  %both = fadd <16 x float> %even, %odd
  %spoilt = fadd <16 x float> %both, %bad
  %old = load <16 x float>, ptr %c.row
  %new = fadd <16 x float> %old, %spoilt
  store <16 x float> %new, ptr %c.row
  br label %rows.next"""

_DOT = f"""\
define internal void @tg.amx.tdpbf16ps(ptr %amx, i8 %c, i8 %a, i8 %b) nounwind noinline {{
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
  %bad = select i1 %fit, <16 x float> zeroinitializer, <16 x float> splat (float 0x7FF8000000000000)
  br label %rows
{_loop("rows", "%c.rows", _ROW, "entry", "done")}\
done:
  ret void
}}"""

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
    "tdpbf16ps": _DOT,
}
"""The primitives as plain code."""
