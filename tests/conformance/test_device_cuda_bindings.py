"""The driver of NVIDIA's bindings keeps the contract of a device: every call that it makes is one
of the installed package, and cuda-host answers it.
"""

import pytest
from device_suite import DeviceSuite
from hand_programs import group_add, row_sum, tiled_gemm, vector_add

from tests.cuda_host import cuda_host
from tests.fake_cuda import FakeGpu, real


class TestCudaBindings(DeviceSuite):
    programs = (vector_add(), group_add(), tiled_gemm(16, 8, 4), row_sum())

    @pytest.fixture
    def opened(self):
        cuda_host()
        real("driver")
        return FakeGpu()
