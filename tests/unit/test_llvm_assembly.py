"""Machine code of the hand-written schedules, compiled for an AVX-512 core and never run: what is
in the hot loop.
"""

from __future__ import annotations

import platform
import re
from dataclasses import replace

import pytest

from benchmarks.hand_schedules import AVX512, FULL, gemm
from tunegrad.devices.cpu.device import OPT_LEVEL
from tunegrad.devices.cpu.machine_code import code_facts, hot_loop, innermost_loops, spills
from tunegrad.devices.host.codegen import assembly
from tunegrad.opts import Schedule, Space
from tunegrad.render.llvm import render_llvm

if platform.machine() not in ("x86_64", "AMD64"):
    pytest.skip(
        f"LLVM here compiles for {platform.machine()}, not for x86-64", allow_module_level=True
    )


def compiled(name):
    entry = FULL[name]
    return assembly(
        render_llvm(Space(entry.kernel, AVX512).lower(entry.schedule), AVX512), AVX512, OPT_LEVEL
    )


@pytest.mark.parametrize(
    ("name", "fmas", "loads"), [("packed_gemm", 24, 2), ("direct_conv", 28, 2)]
)
def test_llvm_hot_loop_is_the_register_tile(name, fmas, loads):
    body = hot_loop(compiled(name))
    assert len(re.findall(r"vfmadd\w+\s.*%zmm\d+, %zmm\d+", body)) == fmas
    assert len(re.findall(r"vfmadd", body)) == fmas, (
        "an FMA is narrower than a register, or reads memory"
    )
    assert len(re.findall(r"vmovup[sd]\s.*, %zmm", body)) == loads
    assert len(re.findall(r"vbroadcastss\s", body)) == fmas // loads


@pytest.mark.parametrize("name", ["packed_gemm", "direct_conv"])
def test_llvm_hot_loop_spills_and_calls_nothing(name):
    text = compiled(name)
    body, facts = hot_loop(text), code_facts(text)
    assert facts is not None
    assert (facts.spills, facts.stores, facts.calls) == (0, 0, 0)
    assert not re.search(r"\bcall", body)
    assert not re.search(r"vmov\w+\s+%zmm\d+, [^%]", body), "a vector is stored inside the loop"


@pytest.mark.parametrize(
    ("name", "fmas", "loads"), [("packed_gemm", 24, 14), ("direct_conv", 28, 16)]
)
def test_llvm_code_facts_of_a_register_tile(name, fmas, loads):
    facts = code_facts(compiled(name))
    assert (facts.vector_bits, facts.fmas, facts.loads) == (512, fmas, loads)
    assert facts.instructions - fmas - loads <= 4


@pytest.mark.parametrize("name", ["packed_gemm", "direct_conv"])
def test_llvm_hot_loop_is_little_else_than_the_arithmetic(name):
    body = hot_loop(compiled(name))
    lines = [
        line
        for line in body.splitlines()
        if line.strip() and not line.strip().startswith((".", "#"))
    ]
    useful = sum(bool(re.search(r"vfmadd|vmovup|vbroadcast", line)) for line in lines)
    assert len(lines) - useful <= 4, "address arithmetic in the loop"


@pytest.mark.parametrize(("name", "before"), [("packed_gemm", 0), ("direct_conv", 28)])
def test_llvm_kernel_spills_sums_of_earlier_blocks_alone(name, before):
    """Once before and once after the loop of a block, those that no register is left for."""
    assert spills(compiled(name)) <= 2 * before


@pytest.mark.parametrize("name", ["packed_gemm", "direct_conv", "softmax_rows"])
def test_llvm_kernel_calls_no_function_of_a_library(name):
    called = set(re.findall(r"call\w*\s+\*?([\w.@]+)", compiled(name))) - {"kernel.body"}
    assert called <= {"memcpy@PLT", "memset@PLT"}, "elementary functions are inline"


def test_llvm_softmax_runs_in_whole_vectors():
    bodies = [b for b in innermost_loops(compiled("softmax_rows")) if "zmm" in b]
    assert len(bodies) == 3
    assert not any(re.search(r"\bv(add|mul|max)ss\b", b) for b in bodies)


def test_llvm_row_of_a_narrow_target_uses_its_registers():
    narrow = replace(AVX512, arch="haswell", vector_bytes=32, registers=16)
    actions = (
        "tile(axis=m, size=4) tile(axis=n, size=16) tile(axis=n1, size=8) reorder(order=(m0, "
        "n0, k, m1, n1, n2)) "
        "upcast(axis=m1) upcast(axis=n1) vectorize(axis=n2)"
    )
    program = Space(FULL["packed_gemm"].kernel, narrow).lower(Schedule.parse(actions))
    text = assembly(render_llvm(program, narrow), narrow, OPT_LEVEL)
    facts = code_facts(text)
    assert facts is not None
    assert len(re.findall(r"vfmadd\w+\s.*%ymm", hot_loop(text))) == 8
    assert facts.spills == 0
    assert facts.kernel_spills <= 2 * 8, "of sums of earlier blocks"


@pytest.mark.parametrize(
    ("lanes", "registers", "arch", "rows", "vectors", "most"),
    [
        (16, 32, AVX512.arch, 14, 2, 183),
        (8, 16, "haswell", 6, 2, 86),
        (8, 16, "haswell", 4, 3, 83),
    ],
)
def test_llvm_written_out_steps_of_a_full_tile_spill_nothing(
    lanes: int, registers: int, arch: str, rows: int, vectors: int, most: int
):
    """Loads of the next step were put beside those of this one, which took the registers of sums:
    14 x 2 had 205 instructions for 112 multiply-adds.
    """
    target = replace(AVX512, arch=arch, vector_bytes=4 * lanes, registers=registers)
    actions = (
        f"tile(axis=m, size={rows}) tile(axis=n, size={vectors * lanes}) "
        f"tile(axis=n1, size={lanes}) tile(axis=k, size=4) "
        "reorder(order=(m0, n0, m1, n1, n2, k0, k1)) upcast(axis=m1) upcast(axis=n1) "
        "vectorize(axis=n2) unroll(axis=k1) stage(param=B, at=(), layout=(n0, k0, k1, n1, n2))"
    )
    program = Space(gemm(336, 192, 64), target).lower(Schedule.parse(actions))
    body = hot_loop(assembly(render_llvm(program, target), target, OPT_LEVEL))
    assert len(re.findall("vfmadd", body)) == 4 * rows * vectors
    assert "%rsp" not in body
    assert len(re.findall(r"(?m)^\s+[a-z]", body)) <= most
