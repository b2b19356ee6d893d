"""cuda-host keeps the contract of a device, and with it the engine and the text of a GPU's."""

import pytest
from device_suite import DeviceSuite
from hand_programs import group_add, row_sum, tiled_gemm, vector_add

from tests.cuda_host import cuda_host


class TestCudaHost(DeviceSuite):
    programs = (vector_add(), group_add(), tiled_gemm(16, 8, 4), row_sum())

    @pytest.fixture
    def opened(self):
        return cuda_host()

    def test_products_of_every_unit_have_a_peak(self, opened, engine):
        found = dict(engine.limits().products)
        assert list(found) == [u.name for u in opened.target.units]
        assert min(found.values()) > 0
