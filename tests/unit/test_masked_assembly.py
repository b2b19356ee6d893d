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
