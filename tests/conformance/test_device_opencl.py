"""An OpenCL device keeps the contract of a device."""

import pytest
from device_suite import DeviceSuite
from hand_programs import group_add, row_sum, tiled_gemm, vector_add

from tests.opencl_device import opencl_device


class TestOpenCl(DeviceSuite):
    programs = (vector_add(), group_add(), tiled_gemm(16, 8, 4), row_sum())
    equal_images = False

    @pytest.fixture
    def opened(self):
        return opencl_device()
