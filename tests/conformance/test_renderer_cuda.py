"""CUDA C++, built for this CPU and run by fibers, keeps the contract of a renderer."""

from __future__ import annotations

import numpy as np
import pytest
from renderer_suite import RendererSuite

from benchmarks.hand_schedules import GPU
from tests.cuda_host import cuda_host
from tests.programs import Programs
from tunegrad.render.cuda import render_cuda


class Cuda:
    target = GPU

    def __init__(self):
        self.device = Programs(self.opened())

    def opened(self):
        return cuda_host(seed=1)

    def text(self, program):
        return render_cuda(program)

    def run(self, program, arrays):
        outputs = {
            b.name: np.full(b.size, 7, b.dtype.numpy) for b in program.params if b.role == "out"
        }
        self.device.run(self.device.compile(program), {**arrays, **outputs})
        return outputs


@pytest.fixture(scope="module")
def renderer():
    renderer = Cuda()
    yield renderer
    renderer.device.close()


class TestCuda(RendererSuite):
    decisions = 0
    both_forms = False
    names = ("gemm_prime", "conv3x3s2", "max_pool", "layer_norm", "pad")
    small = ("tiled_gemm", "group_row_sum", "softmax_group")
