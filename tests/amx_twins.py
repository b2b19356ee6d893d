"""Tile registers as plain code, so that a program for AMX is proved on a processor without it.

    call void @llvm.x86.NAME(...)   -->   call void @tg.amx.NAME(ptr %amx, ...)

``%amx`` is memory that stands for the registers and their configuration:

    bytes 0 to 63: the configuration, as ``ldtilecfg`` takes it      then 1024 bytes a register

The functions compute what hardware does, but for subnormal numbers, which they keep; where hardware
would raise an exception, because registers of a product do not fit or none is set up, they make
results NaN, or all bits 1 of integers. See Intel SDM, volume 1, chapter 18.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from tunegrad.devices import Lowered
from tunegrad.devices.cpu.device import CpuDevice
from tunegrad.devices.host.codegen import compile_llvm
from tunegrad.ir.program import Program
from tunegrad.ir.target import Target
from tunegrad.render.llvm import render_llvm

__all__ = ["TiledCpu", "device_of", "rendered"]

_STATE_BYTES = 64 + 8 * 1024
_SINK = "  %sink = alloca <64 x i8>, align 64\n"
"""The line of a kernel that stands before the first primitive."""
_NAMES = r"@llvm\.x86\.(ldtilecfg|tile\w+|tdp\w+)\("


class TiledCpu(CpuDevice):
    """A CPU whose target has tile units, for which plain code stands."""

    def lower(self, program: Program) -> Lowered:
        made = CpuDevice(_with_amx(self.target), self.opt_level).lower(program)
        return replace(made, text=_emulated(made.text))

    def compile(self, lowered: Lowered, killable: bool = False) -> bytes:
        """Registers that are memory of the stack are no text of a kernel: it is not checked."""
        return compile_llvm(lowered.text, self.target, self.opt_level, killable=killable)


def device_of(target: Target) -> CpuDevice:
    """The CPU of a target, with plain code for tile registers that it lacks."""
    return TiledCpu(target) if target.units and not target.amx else CpuDevice(target)


def rendered(program: Program, target: Target) -> str:
    """The program as text for a target without AMX."""
    return _emulated(render_llvm(program, _with_amx(target)))


def _with_amx(target: Target) -> Target:
    features = ("+amx-tile", "+amx-bf16", "+amx-int8")
    return replace(target, features=(*target.features, *features))


def _emulated(text: str) -> str:
    used = sorted(set(re.findall(_NAMES, text)))
    if not used:
        return text
    text = re.sub(r"declare void " + _NAMES + r".*\n", "", text)
    text = re.sub(_NAMES, r"@tg.amx.\1(ptr %amx, ", text).replace("(ptr %amx, )", "(ptr %amx)")
    text = text.replace(_SINK, f"{_SINK}  %amx = alloca [{_STATE_BYTES} x i8], align 64\n")
    fused = [_FUSED] if "tdpbf16ps" in used and _FUSED not in text else []
    return "\n".join([text, *fused, *(_TWINS[name] for name in used), ""])


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


_FUSED = "declare <16 x float> @llvm.fmuladd.v16f32(<16 x float>, <16 x float>, <16 x float>)"
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
