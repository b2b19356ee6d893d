"""OpenCL C, built and run by a driver (PoCL on a CPU), keeps the contract of a renderer.

Skips where there is none.
"""

from __future__ import annotations

import numpy as np
import pytest
from renderer_suite import RendererSuite

from benchmarks.hand_schedules import GPU
from tests.opencl_device import opencl_device
from tests.programs import Programs
from tunegrad.render.opencl import render_opencl


class OpenCl:
    target = GPU

    def __init__(self):
        self.device = Programs(opencl_device())

    def text(self, program):
        return render_opencl(program)

    def run(self, program, arrays):
        outputs = {
            b.name: np.full(b.size, 7, b.dtype.numpy) for b in program.params if b.role == "out"
        }
        self.device.run(self.device.compile(program), {**arrays, **outputs})
        return outputs


@pytest.fixture(scope="module")
def renderer():
    renderer = OpenCl()
    yield renderer
    renderer.device.close()


class TestOpenCl(RendererSuite):
    decisions = 0
    both_forms = False
    names = ("gemm_prime", "conv3x3s2", "max_pool", "layer_norm", "pad")
    small = ("tiled_gemm", "group_row_sum", "softmax_group")
