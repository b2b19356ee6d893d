"""The OpenCL C of small programs, word for word.

Regenerate on purpose: `python tests/golden/test_opencl_text.py`.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from hand_programs import elementwise, group_add, row_sum, tiled_gemm, vector_add

from benchmarks.hand_schedules import GPU
from tunegrad.frontend import Tensor
from tunegrad.ir.dtypes import F32, F64, I32
from tunegrad.ir.expr import Op
from tunegrad.ir.fusion import schedule
from tunegrad.opts import Schedule, Space
from tunegrad.render.opencl import render_opencl

FOLDER = Path(__file__).parent / "opencl"
PROGRAMS = {
    "vector_add": vector_add(37, 4, 2),
    "group_add": group_add(),
    "tiled_gemm": tiled_gemm(),
    "row_sum": row_sum(items=4),
    "max_f64_x4": elementwise(Op.MAX, F64, 4, 8),
    "mod_i32_x3": elementwise(Op.MOD, I32, 3, 9),
    "fma_f32_x16": elementwise(Op.FMA, F32, 16, 16),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_opencl_text_is_golden(name):
    assert render_opencl(PROGRAMS[name]) == (FOLDER / f"{name}.cl").read_text()


def test_opencl_text_has_whole_vectors_where_they_are_aligned():
    x = Tensor.input("x", (4, 25))
    (launch,) = schedule(((x[:, 1:] + 1.0).node,)).launches
    actions = Schedule.parse("tile(axis=b, size=4) local(axis=b0) vectorize(axis=b1)")
    text = render_opencl(Space(launch.kernel, GPU).lower(actions))
    assert "vload4(0, b_p1 + 25 * i_a + 4 * i_b0 + 1)" in text
    assert "*(__global float4 *)(b_p0 + 24 * i_a + 4 * i_b0) = " in text


def test_opencl_text_moves_halves_as_one_vector():
    (launch,) = schedule(((Tensor.input("x", (64,), "f16") * 2.0).node,)).launches
    actions = Schedule.parse("tile(axis=a, size=8) local(axis=a0) vectorize(axis=a1)")
    text = render_opencl(Space(launch.kernel, GPU).lower(actions))
    assert "= *(__global const ushort8 *)(b_p1 + 8 * i_a0);" in text
    assert "*(__global ushort8 *)(b_p0 + 8 * i_a0) = (ushort8)(" in text


def test_opencl_text_is_the_same_in_another_process_with_another_hash_seed():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from hand_programs import tiled_gemm\n"
        "from tunegrad.render.opencl import "
        "render_opencl\nprint(render_opencl(tiled_gemm()), end='')"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parents[1])]
    path = ":".join(p for p in sys.path if p)
    ran = subprocess.run(
        command, env={"PYTHONHASHSEED": "7", "PYTHONPATH": path}, capture_output=True, check=True
    )
    assert ran.stdout.decode() == render_opencl(tiled_gemm())


if __name__ == "__main__":
    for key, program in PROGRAMS.items():
        (FOLDER / f"{key}.cl").write_text(render_opencl(program))
