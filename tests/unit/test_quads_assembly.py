"""Machine code of sums of products of bytes, compiled for VNNI and without it, and never run."""

import platform
import re
from dataclasses import replace

import pytest
from quad_builders import dot_kernel, in_fours, matmul

from benchmarks.hand_schedules import AVX512
from tunegrad.devices.cpu.device import OPT_LEVEL
from tunegrad.devices.cpu.machine_code import code_facts, hot_loop
from tunegrad.devices.host.codegen import assembly
from tunegrad.opts import Schedule, Space
from tunegrad.render.llvm import render_llvm

if platform.machine() not in ("x86_64", "AMD64"):
    pytest.skip(
        f"LLVM here compiles for {platform.machine()}, not for x86-64", allow_module_level=True
    )

VNNI = replace(AVX512, features=("+avx512f", "+avx512vl", "+avx512vnni"), threads=1)
NO_VNNI = replace(VNNI, arch="skylake-avx512", features=("+avx512f", "+avx512vl"))
AVX_VNNI = replace(
    VNNI, arch="alderlake", features=("+avx2", "+avxvnni"), vector_bytes=32, registers=16
)
AVX2 = replace(AVX_VNNI, arch="znver3", features=("+avx2", "+fma"))
GEMM = (1024, 1024), (1024, 1024)
KERNEL = dot_kernel(matmul(*GEMM))
HAND = (
    "tile(axis=b, size=32) tile(axis=b1, size=16) tile(axis=a, size=12) tile(axis=ra, size=256) "
    "reorder(order=(ra0, a0, b0, a1, b1, b2, ra1)) upcast(axis=a1) upcast(axis=b1) "
    "vectorize(axis=b2) "
    "stage(param=p2, at=ra0, layout=(b0, ra1, b1, b2))"
)


def compiled(actions, target, kernel=KERNEL):
    program = Space(kernel, target).lower(Schedule.parse(actions))
    return assembly(render_llvm(program, target), target, OPT_LEVEL)


@pytest.fixture(scope="module")
def text():
    return compiled(HAND, VNNI)


def test_hot_loop_is_a_register_tile_of_dot_products(text):
    body, facts = hot_loop(text), code_facts(text)
    assert len(re.findall(r"vpdpbusd\s+%zmm\d+, %zmm\d+, %zmm\d+", body)) == facts.fmas == 24
    assert len(re.findall(r"vpbroadcastd\s.*%zmm", body)) == 12
    assert len(re.findall(r"vmovdqu\w+\s.*\(.*%zmm", body)) == 2
    assert (facts.spills, facts.stores, facts.calls) == (0, 0, 0)
    assert facts.instructions - facts.fmas - facts.loads <= 5


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kinds", ["u8 i8", "i8 i8", "u8 u8"])
def test_default_schedules_of_constant_weights_are_such_tiles(kinds, threads):
    target = replace(VNNI, threads=threads)
    kernel = in_fours(matmul(*GEMM, *kinds.split(), constant=True), target).launches[-1].kernel
    made = compiled(Space(kernel, target).defaults()[0].text, target, kernel)
    facts = code_facts(made)
    assert facts.vector_bits == 512
    assert len(re.findall("vpdpbusd", hot_loop(made))) == facts.fmas >= 20
    assert facts.spills == 0
    assert facts.instructions <= 1.8 * facts.fmas


def test_vectors_of_256_bits_have_it_by_avx_vnni():
    body = hot_loop(compiled(Space(KERNEL, AVX_VNNI).defaults()[0].text, AVX_VNNI))
    assert len(re.findall(r"vpdpbusd\s+%ymm\d+, %ymm\d+, %ymm\d+", body)) >= 8
    assert "zmm" not in body


def test_vectors_without_vnni_multiply_halves_of_words_in_registers():
    kernel = in_fours(matmul(*GEMM, "u8", "i8", constant=True), AVX2).launches[-1].kernel
    body = hot_loop(compiled(Space(kernel, AVX2).defaults()[0].text, AVX2, kernel))
    products = len(re.findall(r"vpmaddwd\s+.*%ymm", body))
    assert products >= 12
    assert not re.search("vpmulld|vpmaddubsw|zmm", body)
    assert len(re.findall(r"\(%rsp\)", body)) <= products
    assert len(body.splitlines()) <= 4.5 * products


def test_vectors_that_the_target_does_not_have_are_taken_apart():
    text = "tile(axis=b, size=16) reorder(order=(a, b0, b1, ra)) vectorize(axis=b1)"
    assert "vpdpbusd" not in compiled(text, AVX_VNNI)
    assert "vpdpbusd" in compiled(text, VNNI)


def test_nothing_saturates(text):
    assert not re.search(r"vpdpbusds|vpmaddubsw", text)


def test_target_without_the_instruction_multiplies_bytes_one_by_one():
    body = hot_loop(compiled(HAND, NO_VNNI))
    assert "vpdpbusd" not in body
    assert len(re.findall("vpmulld|vpmaddwd", body)) >= 24


def test_text_without_a_target_is_for_every_target():
    program = Space(KERNEL, VNNI).lower(Schedule.parse(HAND))
    assert "vpdpbusd" not in render_llvm(program)
    assert "llvm.x86.avx512.vpdpbusd.512" in render_llvm(program, VNNI)
