"""The OpenCL device keeps the contract of a device."""

import pytest
from device_suite import DeviceSuite
from hand_programs import group_add, row_sum, tiled_gemm, vector_add

from tunegrad.devices.opencl.device import OpenClDevice
from tunegrad.errors import DeviceError


class TestOpenClDevice(DeviceSuite):
    programs = (vector_add(), group_add(), tiled_gemm(16, 8, 4), row_sum())

    @pytest.fixture
    def device(self):
        try:
            opened = OpenClDevice()
        except DeviceError as error:
            pytest.skip(str(error))
        with opened as device:
            yield device
