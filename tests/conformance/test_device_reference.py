"""The reference device keeps the contract of a device."""

import pytest
from device_suite import DeviceSuite
from hand_programs import group_add, row_sum, tiled_gemm, vector_add

from tunegrad.devices.reference.device import ReferenceDevice


class TestReferenceDevice(DeviceSuite):
    programs = (vector_add(), group_add(), tiled_gemm(16, 8, 4), row_sum())

    @pytest.fixture
    def device(self):
        with ReferenceDevice() as device:
            yield device
