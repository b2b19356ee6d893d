"""The C family keeps the contract of a renderer: OpenCL C, built and run by a driver (PoCL on a
CPU), CUDA C++ and HIP C++, built for this CPU and run by fibers.

OpenCL skips where there is no driver.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from renderer_suite import RendererSuite

from benchmarks.hand_schedules import GPU
from tests.cuda_host import cuda_host
from tests.hip import hip_host, render_hip
from tests.opencl_device import opencl_device
from tests.programs import Programs
from tunegrad.render.cuda import render_cuda
from tunegrad.render.opencl import render_opencl


class Renderer:
    """Text of a program, which a device runs."""

    target = GPU

    def __init__(self):
        self.device = Programs(self.opened())

    def run(self, program, arrays):
        outputs = {
            b.name: np.full(b.size, 7, b.dtype.numpy) for b in program.params if b.role == "out"
        }
        self.device.run(self.device.compile(program), {**arrays, **outputs})
        return outputs


class Cuda(Renderer):
    text = staticmethod(render_cuda)
    opened = staticmethod(partial(cuda_host, seed=1))


class Hip(Renderer):
    text = staticmethod(render_hip)
    opened = staticmethod(partial(hip_host, "gfx1100", seed=1))


class OpenCl(Renderer):
    text = staticmethod(render_opencl)
    opened = staticmethod(opencl_device)


class CSuite(RendererSuite):
    decisions = 0
    both_forms = False
    names = ("gemm_prime", "conv3x3s2", "max_pool", "layer_norm", "pad")
    small = ("tiled_gemm", "group_row_sum", "softmax_group")

    @pytest.fixture(scope="class")
    @classmethod
    def renderer(cls):
        renderer = cls.made()
        yield renderer
        renderer.device.close()


class TestCuda(CSuite):
    made = Cuda


class TestHip(CSuite):
    made = Hip


class TestOpenCl(CSuite):
    made = OpenCl
