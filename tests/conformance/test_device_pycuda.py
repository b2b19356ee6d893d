"""The driver over pycuda keeps the contract of a device, on a fake of pycuda that cuda-host
answers.
"""

import pytest
from device_suite import DeviceSuite
from hand_programs import group_add, row_sum, tiled_gemm, vector_add

from tests.cuda_host import cuda_host
from tests.fake_pycuda import PycudaGpu


class TestPycuda(DeviceSuite):
    programs = (vector_add(), group_add(), tiled_gemm(16, 8, 4), row_sum())

    @pytest.fixture
    def opened(self):
        cuda_host()
        return PycudaGpu()
