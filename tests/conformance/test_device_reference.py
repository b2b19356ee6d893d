"""The reference device keeps the contract of a device."""

import pytest
from device_suite import DeviceSuite
from hand_programs import group_add, row_sum, tiled_gemm, vector_add

from tests.reference_device import ReferenceDevice


class TestReference(DeviceSuite):
    programs = (vector_add(), group_add(), tiled_gemm(16, 8, 4), row_sum())

    @pytest.fixture
    def opened(self):
        return ReferenceDevice()
