"""Machine code of sums of bf16 pairs, compiled for AVX512_BF16 and without it, and never run."""

import multiprocessing
import platform
import re
from dataclasses import replace

import pytest
from pair_builders import dot_kernel, matmul

from benchmarks.hand_schedules import AVX512
from tunegrad.devices.cpu.device import OPT_LEVEL
from tunegrad.devices.cpu.machine_code import code_facts, hot_loop
from tunegrad.devices.host.codegen import assembly, compile_llvm
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import schedule
from tunegrad.opts import Schedule, Space
from tunegrad.planning import prepared
from tunegrad.render.llvm import render_llvm

if platform.machine() not in ("x86_64", "AMD64"):
    pytest.skip(
        f"LLVM here compiles for {platform.machine()}, not for x86-64", allow_module_level=True
    )

DOT = replace(AVX512, features=("+avx512bf16", "+avx512f", "+avx512vl"), threads=1)
NO_DOT = replace(DOT, arch="skylake-avx512", features=("+avx512f", "+avx512vl"))
KERNEL = dot_kernel(matmul((1024, 1024), (1024, 1024)))
HAND = (
    "tile(axis=b, size=32) tile(axis=b1, size=16) tile(axis=a, size=12) tile(axis=ra, size=256) "
    "reorder(order=(ra0, a0, b0, a1, b1, b2, ra1)) upcast(axis=a1) upcast(axis=b1) "
    "vectorize(axis=b2) "
    "stage(param=p2, at=ra0, layout=(b0, ra1, b1, b2))"
)


def compiled(actions, target):
    program = Space(KERNEL, target).lower(Schedule.parse(actions))
    return assembly(render_llvm(program, target), target, OPT_LEVEL)


@pytest.fixture(scope="module")
def text():
    return compiled(HAND, DOT)


def test_hot_loop_is_a_register_tile_of_dot_products(text):
    body = hot_loop(text)
    assert len(re.findall(r"vdpbf16ps\s+%zmm\d+, %zmm\d+, %zmm\d+", body)) == 24
    assert len(re.findall(r"vbroadcastss\s.*%zmm|vpbroadcastd\s.*%zmm", body)) == 12
    assert len(re.findall(r"vmovu\w+\s.*\(.*%zmm", body)) == 2


def test_hot_loop_converts_nothing_and_spills_nothing(text):
    body, facts = hot_loop(text), code_facts(text)
    assert not re.search(r"vpslld|vpsrld|vpmovzx|vpand|vperm|vcvt|vpunpck|vfmadd", body)
    assert (facts.spills, facts.stores, facts.calls) == (0, 0, 0)
    assert facts.fmas == 24
    assert facts.instructions - facts.fmas - facts.loads <= 4


@pytest.mark.parametrize("threads", [1, 2])
def test_default_schedule_is_such_a_tile(threads):
    target = replace(DOT, threads=threads)
    facts = code_facts(compiled(Space(KERNEL, target).defaults()[0].text, target))
    assert facts.vector_bits == 512
    assert facts.fmas >= 20
    assert facts.spills == 0
    assert facts.instructions <= 1.8 * facts.fmas


def test_target_without_the_instruction_widens_and_fuses():
    body = hot_loop(compiled(HAND, NO_DOT))
    assert "vdpbf16ps" not in body
    assert len(re.findall("vfmadd", body)) == 48


def test_text_without_a_target_is_for_every_target():
    program = Space(KERNEL, DOT).lower(Schedule.parse(HAND))
    assert "avx512bf16" not in render_llvm(program)
    assert "llvm.x86.avx512bf16.dpbf16ps.512" in render_llvm(program, DOT)


@pytest.mark.parametrize(
    "features", [("+avx512f",), ("+avx512f", "+avx512bf16"), ("-avx512bf16", "+avx512f")]
)
def test_target_needs_all_the_features(features):
    assert not replace(DOT, features=features).bf16_dot


def test_results_in_bf16_are_rounded_by_one_instruction():
    case = matmul((64, 64), (64, 64))
    nodes = prepared((case.output.cast("bf16").node,), "bf16-dot", DOT)
    kernel = schedule(nodes).launches[-1].kernel
    text = assembly(
        render_llvm(Space(kernel, DOT).lower(Space(kernel, DOT).defaults()[0]), DOT), DOT
    )
    assert "vcvtneps2bf16" in text
    assert "vpmovdw" not in text


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_lanes_that_are_rounded_to_bf16_may_be_constant(lanes):
    """No column of one row is two below the diagonal. LLVM 22 ends the process, so one of its own
    compiles: of lanes known late as zeros it made scalars of bf16, where no such type is legal.
    """
    zeros = Tensor.input("x", (1, lanes), "bf16").tril(-2).contiguous()
    (launch,) = schedule((zeros.node,)).launches
    axis = launch.kernel.axes[-1].name
    program = Space(launch.kernel, DOT).lower(Schedule.parse(f"vectorize(axis={axis})"))
    text = render_llvm(program, DOT)
    assert f"to <{lanes} x i16>" in text
    child = multiprocessing.get_context("spawn").Process(
        target=compile_llvm, args=(text, DOT, OPT_LEVEL)
    )
    child.start()
    child.join()
    assert child.exitcode == 0
