"""HIP C++, built for this CPU and run by fibers, keeps the contract of a renderer."""

from __future__ import annotations

import pytest
from renderer_suite import RendererSuite
from test_renderer_cuda import Cuda

from tests.hip import hip_host, render_hip


class Hip(Cuda):
    def opened(self):
        return hip_host("gfx1100", seed=1)

    def text(self, program):
        return render_hip(program)


@pytest.fixture(scope="module")
def renderer():
    renderer = Hip()
    yield renderer
    renderer.device.close()


class TestHip(RendererSuite):
    decisions = 0
    both_forms = False
    names = ("gemm_prime", "conv3x3s2", "max_pool", "layer_norm", "pad")
    small = ("tiled_gemm", "group_row_sum", "softmax_group")
