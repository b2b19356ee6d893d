"""Text that reaches other memory than a kernel's is refused, however it is written; rendering's own
is not.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.fault_kernels import CASES, TARGET
from tests.faults import REFUSED
from tests.kernel_corpus import NAMES, kernels_of
from tests.quad_builders import conv, matmul
from tunegrad.compiling import Payload, build, candidate
from tunegrad.devices.cpu.device import CpuDevice
from tunegrad.errors import CompileFailure, IllegalAction
from tunegrad.frontend import Tensor
from tunegrad.ir.dtypes import dtype_of
from tunegrad.ir.fusion import schedule as planned
from tunegrad.ir.target import Target
from tunegrad.opts import Schedule, Space
from tunegrad.planning import prepared
from tunegrad.render.llvm_checks import check_text

GOOD = """; a remark
define internal void @kernel.body(ptr noalias nocapture %b0, ptr noalias nocapture %b1, i64 %tid, ptr %team) noinline nounwind "stackrealign" {
entry:
  %sink = alloca <64 x i8>, align 64
  %v = load <4 x float>, ptr %b1, align 4
  %e = extractelement <4 x float> %v, i32 0
  %c = fcmp olt float %e, 0x3F80000000000000
  %sunk1 = select i1 %c, ptr %b0, ptr %sink
  store float %e, ptr %sunk1, align 4
  call void @llvm.masked.store.v4f32.p0(<4 x float> %v, ptr %sunk1, i32 4, <4 x i1> %m)
  call void @tg_barrier(ptr %team)
  ret void
}
define void @kernel(ptr %buffers, ptr %workspace, i64 %tid, ptr %team) nounwind {
  %a0 = getelementptr ptr, ptr %buffers, i64 0
  %p0 = load ptr, ptr %a0
  %a1 = getelementptr ptr, ptr %buffers, i64 1
  %p1 = load ptr, ptr %a1
  call void @kernel.body(ptr %p0, ptr %p1, i64 %tid, ptr %team)
  ret void
}
declare void @tg_barrier(ptr)
"""  # noqa: E501

_IN_BODY = "  %v = load <4 x float>, ptr %b1, align 4\n"
_IN_ENTRY = "  call void @kernel.body("

BAD_LINES = (
    (_IN_BODY, "  %m = alloca i64\n"),
    (_IN_BODY, "  %m = alloca <64 x i8>, align 64\n"),
    (_IN_BODY, "  fence seq_cst alloca i64\n"),
    (_IN_BODY, "  %m = load i64, ptr %sink\n"),
    (_IN_BODY, "  %m = getelementptr i8, ptr %sink, i64 -4096\n"),
    (_IN_BODY, "  %m = select i1 true, ptr %b0, ptr %sink\n  %n = load i64, ptr %m, align 8\n"),
    (_IN_BODY, "  %sunk2 = select i1 true, ptr %b0, ptr %sink\n  %n = load i64, ptr %sunk2\n"),
    (_IN_BODY, "  %sunk2 = select i1 true, ptr %b0, ptr %sink\n  store ptr %sunk2, ptr %b0\n"),
    (_IN_BODY, "  store <32 x float> zeroinitializer, ptr %sunk1, align 4\n"),
    (_IN_BODY, "  store <16 x fp128> zeroinitializer, ptr %sunk1, align 4\n"),
    (_IN_BODY, "  store [17 x float] zeroinitializer, ptr %sunk1, align 4\n"),
    (_IN_BODY, "  store <4 x <9 x i32>> zeroinitializer, ptr %sunk1, align 4\n"),
    (
        _IN_BODY,
        "  call void @llvm.masked.store.v9f64.p0(<9 x double> %w, ptr %sunk1, i32 8, <9 x i1> 1)\n",
    ),
    (
        _IN_BODY,
        "  call void @llvm.masked.store.v4f32.p0(<4 x float> %v, ptr %sink, i32 4, <4 x i1> %m)\n",
    ),
    (_IN_BODY, "  fence seq_cst %m = load i64, ptr %team\n"),
    (_IN_BODY, "  %m = inttoptr i64 4096 to ptr\n"),
    (_IN_BODY, "  %m = getelementptr i8, ptr null, i64 4096\n"),
    (_IN_BODY, "  %m = getelementptr i8, ptr zeroinitializer, i64 4096\n"),
    (_IN_BODY, "  %m = getelementptr i8, ptr\n    poison, i64 4096\n"),
    (_IN_BODY, "  %m = load ptr, ptr %b1\n"),
    (_IN_BODY, "  %m = load\n  ptr, ptr %b1\n"),
    (_IN_BODY, "  %m = load  ptr, ptr %b1\n"),
    (_IN_BODY, "  fence seq_cst %m = load ptr, ptr %b1\n"),
    (_IN_BODY, "  %m = load volatile ptr, ptr %b1\n"),
    (_IN_BODY, "  %m = load { i64, ptr }, ptr %b1\n"),
    (_IN_BODY, "  %m = load <2 x ptr>, ptr %b1\n"),
    (_IN_BODY, "  %m = load i64, ptr addrspace(257) %b1\n"),
    (_IN_BODY, "  %m = load i64, ptr %team\n"),
    (_IN_BODY, "  %m = getelementptr i8, ptr %team, i64 900\n"),
    (_IN_BODY, "  call void @kernel(ptr %b0, ptr %b1, i64 %tid, ptr %team)\n"),
    (_IN_BODY, "  call void @kernel.body(ptr %team)\n"),
    (_IN_BODY, "  call void %b1(ptr %b0) ; @x(\n"),
    (_IN_BODY, "  store ptr @kernel, ptr %b0\n"),
    (_IN_BODY, "  %m = call ptr @llvm.frameaddress.p0(i32 0)\n"),
    (_IN_BODY, '  %m = call ptr @"llvm.frameaddress.p0"(i32 0)\n'),
    (_IN_BODY, '  %m = call ptr @"\\6Clvm.frameaddress.p0"(i32 0)\n'),
    (_IN_BODY, "  %m = call ptr @llvm.returnaddress(i32 0)\n"),
    (_IN_BODY, "  %m = call ptr @llvm.sponentry.p0()\n"),
    (_IN_BODY, "  %m = call ptr @llvm.addressofreturnaddress.p0()\n"),
    (_IN_BODY, "  %m = call ptr @llvm.stacksave.p0()\n"),
    (_IN_BODY, "  %m = call ptr @llvm.thread.pointer.p0()\n"),
    (_IN_BODY, "  %m = call i64 @llvm.readcyclecounter()\n"),
    (_IN_BODY, "  %m = call i64 @llvm.read_register.i64(metadata !0)\n"),
    (_IN_BODY, "  call void @llvm.x86.sse.stmxcsr(ptr %b0)\n"),
    (_IN_BODY, '  call void asm sideeffect "nop", ""()\n'),
    (_IN_BODY, "  %m = freeze i64 undef\n"),
    (_IN_BODY, "  %m = va_arg ptr %b0, i64\n"),
    (_IN_BODY, "  call void @kernel.body(ptr byval(i64) %b0, ptr %b1, i64 %tid, ptr %team)\n"),
    (_IN_BODY, "  call void @llvm.x86.tilezero(i8 0)\n"),
    (_IN_ENTRY, "  %m = load i64, ptr %buffers\n"),
    (_IN_ENTRY, "  %m = getelementptr ptr, ptr %buffers, i64 2\n  %n = load ptr, ptr %m\n"),
    (_IN_ENTRY, "  %m = getelementptr ptr, ptr %buffers, i64 1\n  store i64 1, ptr %m\n"),
    (_IN_ENTRY, "  %m = getelementptr i64, ptr %buffers, i64 40\n"),
    (_IN_ENTRY, "  store i64 1, ptr %a1\n"),
    (_IN_ENTRY, "  call void @kernel.body(ptr %buffers, ptr %p1, i64 %tid, ptr %team)\n"),
)


def test_text_in_renderings_form_is_taken() -> None:
    check_text(GOOD, "kernel", 2)


@pytest.mark.parametrize(("before", "line"), BAD_LINES)
def test_text_that_reaches_other_memory_is_refused(before: str, line: str) -> None:
    text = GOOD.replace(before, line + before, 1)
    assert text != GOOD
    with pytest.raises(CompileFailure, match="illegal: "):
        check_text(text, "kernel", 2)


@pytest.mark.parametrize(
    "more",
    [
        "@t = thread_local global i64 0",
        "define internal void @f(ptr %buffers) {\n  ret void\n}",
        "define internal void @f(ptr byval(i64) %x) {\n  ret void\n}",
        "define internal void @f() naked {\n  ret void\n}",
        'module asm "nop"',
        "%T = type { ptr }",
        "@a = alias i64, ptr @kernel",
    ],
)
def test_module_of_other_things_than_kernels_is_refused(more: str) -> None:
    with pytest.raises(CompileFailure, match="illegal: "):
        check_text(f"{GOOD}{more}\n", "kernel", 2)


def test_entry_with_another_signature_is_refused() -> None:
    with pytest.raises(CompileFailure, match="illegal: "):
        check_text(GOOD.replace("ptr %workspace", "ptr %w"), "kernel", 2)


def test_tiles_that_are_given_back_are_taken() -> None:
    more = "declare void @llvm.x86.tilezero(i8 immarg)\ndeclare void @llvm.x86.tilerelease()\n"
    end, zero = "  ret void", "  call void @llvm.x86.tilezero(i8 0)\n"
    used = GOOD.replace(end, zero + end, 1) + more
    with pytest.raises(CompileFailure, match="illegal: tile registers"):
        check_text(used, "kernel", 2)
    released = used.replace(end, f"  call void @llvm.x86.tilerelease()\n{end}", 1)
    check_text(released, "kernel", 2)


@pytest.mark.parametrize(
    "constant",
    [
        "<2 x double> %e",
        "<2 x double> splat (double 0x0000000000000000)",
        "<2 x double> <double 0x3FF0000000000000, double 0x4000000000000000>",
        "<2 x double> zeroinitializer",
        "<2 x double> poison",
    ],
)
def test_constants_are_arguments_like_any_other(constant: str) -> None:
    function = (
        "define internal <2 x double> @tg.pow.f64x2(<2 x double> %x, <2 x double> %y) nounwind {\n"
        "  %e = fadd <2 x double> %x, %y\n"
        f"  %a = call <2 x double> @tg.pow.f64x2(<2 x double> %x, {constant})\n"
        f"  %b = call <2 x double> @tg.pow.f64x2({constant}, <2 x double> %x)\n"
        "  ret <2 x double> %a\n}\n"
    )
    check_text(GOOD + function, "kernel", 2)
    with pytest.raises(CompileFailure, match="other arguments"):
        check_text(GOOD + function.replace(f", {constant}", f", {constant}, ptr %b0"), "kernel", 2)


@pytest.mark.parametrize(
    "name",
    [
        *("sse2.cvtps2dq", "avx.cvt.ps2dq.256", "avx512.mask.cvtps2dq.512"),
        *("sse2.pmadd.wd", "avx2.pmadd.wd", "avx512.pmaddw.d.512"),
    ],
)
def test_instructions_of_every_width_are_taken(name: str) -> None:
    """A machine with wider vectors renders others of them."""
    check_text(f"{GOOD}declare <4 x i32> @llvm.x86.{name}(<4 x i32>)\n", "kernel", 2)


@pytest.mark.parametrize("name", NAMES)
def test_text_of_the_corpus_is_taken(name: str) -> None:
    device = CpuDevice(TARGET)
    for kernel in kernels_of(name):
        for schedule in (Schedule(()), *Space(kernel, TARGET).defaults()):
            made = build(kernel, schedule, device)
            check_text(made.text, made.entry, len(made.io.params))


ZEN3 = Target(
    "cpu", "cpu", "znver3", ("+avx2", "+fma", "+f16c"), vector_bytes=32, registers=16
)  # fmt: skip
SKYLAKE = Target(
    "cpu", "cpu", "skylake-avx512",
    ("+avx2", "+fma", "+f16c", "+avx512f", "+avx512cd", "+avx512bw", "+avx512dq", "+avx512vl"),
    vector_bytes=64, registers=32,
)  # fmt: skip
OF_BYTES = {
    "znver3": (ZEN3, {"sse2.pmadd.wd", "avx2.pmadd.wd", "sse2.cvtps2dq", "avx.cvt.ps2dq.256"}),
    "skylake-avx512": (
        SKYLAKE,
        {"sse2.pmadd.wd", "avx2.pmadd.wd", "avx512.pmaddw.d.512", "sse2.cvtps2dq",
         "avx.cvt.ps2dq.256", "avx512.mask.cvtps2dq.512"},
    ),
    "host": (TARGET, set[str]()),
}  # fmt: skip
"""Targets, and the instructions for bytes, of vectors of every width, that each is to be asked for
below; those of the host are not known here.
"""


def quantised(x: Tensor, kind: str) -> Tensor:
    """Steps of 0.3 as bytes, around a zero point that is read."""
    low, high = (0.0, 255.0) if kind == "u8" else (-128.0, 127.0)
    zero = Tensor.constant(np.array(7, dtype_of(kind).numpy)).cast("f32")
    return ((x / 0.3).round() + zero).clamp(low, high).cast(kind)


def kernels_of_bytes() -> list[Tensor]:
    """Products, roundings and products that are rounded."""
    x = Tensor.input("x", (4, 64), "f32")
    zero = Tensor.constant(np.array(120, "u1")).cast("f32")
    rows = Tensor.input("q", (16, 64), "u8").cast("f32") - zero
    weights = matmul((16, 64), (64, 32)).values["b"]
    product = rows @ (Tensor.constant(weights).cast("f32") * 0.01)
    return [
        matmul((16, 64), (64, 32)).output, matmul((5, 7), (7, 3), "i8", "i8").output,
        matmul((16, 64), (64, 32), "i8", "i8", constant=True).output, conv(8, 16, 1).output,
        quantised(x, "u8"), quantised(x, "i8"), quantised(rows * 0.02, "u8"),
        quantised(product, "u8"), quantised(product.relu(), "i8"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", OF_BYTES)
def test_text_of_kernels_of_bytes_is_taken(name: str) -> None:
    """A refusal of what only vectors of 16 and 32 bytes have stopped quantised models on AVX2."""
    target, wanted = OF_BYTES[name]
    device, found = CpuDevice(target), set[str]()
    for output in kernels_of_bytes():
        for launch in planned(prepared((output.node,), "contract", target)).launches:
            kernel = launch.kernel
            axis = kernel.axes[-1].name
            by = [f"tile(axis={axis}, size={n}) vectorize(axis={axis}1)" for n in (4, 8, 16)]
            for actions in (*map(Schedule.parse, by), *Space(kernel, target).defaults()):
                try:
                    made = build(kernel, actions, device)
                except IllegalAction:  # an axis of other extents
                    continue
                check_text(made.text, made.entry, len(made.io.params))
                found.update(re.findall(r"@llvm\.x86\.([\w.]+)", made.text))
    assert wanted <= found


@pytest.mark.parametrize("fault", REFUSED)
def test_planted_reach_is_refused_as_it_is_compiled(fault: str) -> None:
    device, case = CpuDevice(TARGET), CASES[fault]
    lowered = candidate.lower(Payload(case.kernel(0), case.actions, device))
    check_text(lowered.text, lowered.entry, len(lowered.io.params))
    with pytest.raises(CompileFailure, match="illegal: "):
        check_text(REFUSED[fault](lowered.text), lowered.entry, len(lowered.io.params))
