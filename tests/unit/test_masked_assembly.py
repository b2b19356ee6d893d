"""Machine code of tails at the level that candidates and models are compiled at: masked vectors, no
lane by itself.
"""

from __future__ import annotations

import platform
import re
from dataclasses import replace

import pytest

from benchmarks.hand_schedules import AVX512, gemm
from tunegrad.compiling import build
from tunegrad.devices.cpu.device import CpuDevice
from tunegrad.devices.cpu.machine_code import innermost_loops
from tunegrad.ir.parse_kernel import parse_kernel
from tunegrad.opts import Schedule

if platform.machine() not in ("x86_64", "AMD64"):
    pytest.skip(
        f"LLVM here compiles for {platform.machine()}, not for x86-64", allow_module_level=True
    )

AVX2 = replace(AVX512, arch="haswell", vector_bytes=32, registers=16)
SSE = replace(AVX512, arch="nehalem", vector_bytes=16, registers=16)
TAIL, WHOLE = 21, 48


def code(target, columns: int) -> str:
    """A matmul whose rows of ``columns`` f32 are read and written a vector at a time."""
    actions = f"tile(axis=n, size={target.vector_bytes // 4}) vectorize(axis=n1)"
    device = CpuDevice(target)
    return device.inspect(build(gemm(3, columns, 4), Schedule.parse(actions), device)).listing


def moves(pattern: str, text: str) -> int:
    return len(re.findall(pattern, text))


ALONE = r"movss\s+(%xmm\d+, \(|[^%]*\(.*\), %xmm)|v?(extract|insert)ps|vp?(gather|scatter)"
"""A lane of f32 that is read or written by itself."""

MASKED = {
    AVX512.arch: (
        r"vmovups\s+\([^)]*\), %zmm\d+ \{%k\d\} \{z\}",
        r"vmovups\s+%zmm\d+, \([^)]*\) \{%k\d\}",
    ),
    AVX2.arch: (r"vmaskmovps\s+\([^)]*\), %ymm\d+, %ymm", r"vmaskmovps\s+%ymm\d+, %ymm\d+, \("),
}
"""How each reads and writes a vector of which some lanes count."""


@pytest.mark.parametrize("target", [AVX512, AVX2], ids=lambda t: t.arch)
def test_tails_read_and_write_masked_vectors(target):
    text = code(target, TAIL)
    reads, writes = MASKED[target.arch]
    assert (moves(reads, text), moves(writes, text)) == (1, 1)
    assert not re.search(ALONE, text), "a lane is moved by itself"


@pytest.mark.parametrize("target", [AVX512, AVX2], ids=lambda t: t.arch)
def test_rows_of_whole_vectors_use_no_mask(target):
    text = code(target, WHOLE)
    assert "vmaskmov" not in text
    assert "%k" not in text
    assert moves(rf"vmovups\s+%{'zmm' if target is AVX512 else 'ymm'}\d+, \(", text) == 1
    assert not re.search(ALONE, text), "a lane is moved by itself"


def test_a_machine_without_masks_moves_single_lanes_so_the_search_for_them_can_find_one():
    assert re.search(ALONE, code(SSE, TAIL))


WINDOW = parse_kernel(
    """kernel
  param p0 f32[7,7,48] out row
  param p1 f32[14,14,64] in row
  param p2 f32[48,64,3,3] const row
  axis a:7 b:7 c:48
  v0 = add over ra:3 rb:3 rc:64 in f32: mul(p1[2*a+ra+-1, 2*b+rb+-1, rc if BOTH], p2[c, rc, ra, rb])
  store p0[a, b, c] = v0""".replace("BOTH", "1<=2*a+ra<15&1<=2*b+rb<15")
)
TILES = """tile(axis=c, size=24) tile(axis=c1, size=8) tile(axis=b, size=4)
reorder(order=(c0, a, b0, b1, c1, c2, ra, rb, rc)) upcast(axis=b1) upcast(axis=c1)
vectorize(axis=c2) stage(param=p2, at=load, layout=(c0, ra, rb, rc, c1, c2))"""


def test_padding_is_decided_outside_of_the_loop_over_channels():
    """Each of the four pixels chose its address in each step: 33 to 39 instructions for 12
    multiply-adds.
    """
    device = CpuDevice(AVX2)
    listing = device.inspect(build(WINDOW, Schedule.parse(TILES), device)).listing
    loops = [x for x in innermost_loops(listing) if "vfmadd" in x]
    assert len(loops) > 1
    assert not [x for x in loops if "cmov" in x]
    assert max(moves(r"\n\s+[a-z]", x) for x in loops if moves("vfmadd", x) == 12) <= 25
