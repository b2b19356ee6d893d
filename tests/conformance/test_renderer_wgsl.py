"""WGSL, compiled by naga for a driver, keeps the contract of a renderer.

Skips where there is none.
"""

import pytest
from renderer_suite import RendererSuite, schedules

from tests.interpreter import pack_buffers
from tests.webgpu import webgpu
from tests.wgsl import WEBGPU, render_wgsl
from tunegrad.frontend import Tensor
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import schedule as fuse
from tunegrad.opts import Space


class Wgsl:
    target = WEBGPU

    def text(self, program):
        return render_wgsl(program)

    def run(self, program, arrays):
        return webgpu().run(program, pack_buffers(program, arrays))


@pytest.fixture(scope="module")
def renderer():
    webgpu()
    return Wgsl()


class TestWgsl(RendererSuite):
    decisions = 0
    both_forms = False
    names = ("gemm_prime", "conv3x3s2", "max_pool", "layer_norm", "pad")
    small = ("tiled_gemm", "group_row_sum", "softmax_group")

    @pytest.mark.parametrize("dtype", ["f32", "i32", "u32"])
    def test_renderer_computes_in_every_dtype(self, renderer, dtype):
        """In those that WGSL has; the suite's own kernels store truth values, i64 and f64."""
        x, y = Tensor.input("x", (5, 19), dtype), Tensor.input("y", (5, 19), dtype)
        outputs = (x * y + x, x.cast("f32").sum(1), x.max(0), (x < y).cast("i32"))
        for launch in fuse(tuple(fold_constants(tuple(t.node for t in outputs)))).launches:
            for schedule in schedules(Space(launch.kernel, WEBGPU), 3, 0):
                self.check(renderer, launch.kernel, schedule)
