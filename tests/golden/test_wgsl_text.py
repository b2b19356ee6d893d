"""The WGSL of small programs, word for word.

Regenerate on purpose: `python tests/golden/test_wgsl_text.py`.
"""

from pathlib import Path

import pytest
from hand_programs import elementwise, group_add, row_sum, tiled_gemm

from tests.wgsl import render_wgsl
from tunegrad.ir.dtypes import F32, I32
from tunegrad.ir.expr import Op

FOLDER = Path(__file__).parent / "wgsl"
PROGRAMS = {
    "group_add": group_add(),
    "tiled_gemm": tiled_gemm(),
    "row_sum": row_sum(items=4),
    "max_f32": elementwise(Op.MAX, F32, 1, 8),
    "mod_i32_x3": elementwise(Op.MOD, I32, 3, 9),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_wgsl_text_is_golden(name):
    assert render_wgsl(PROGRAMS[name]) == (FOLDER / f"{name}.wgsl").read_text()


if __name__ == "__main__":
    for key, program in PROGRAMS.items():
        (FOLDER / f"{key}.wgsl").write_text(render_wgsl(program))
