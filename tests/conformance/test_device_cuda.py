"""What stands for a GPU keeps the contract of a device, and with it the engine and the text of a
GPU's: cuda-host; the driver of NVIDIA's bindings, whose every call is one of the installed package;
and the driver over pycuda, on a fake of it. cuda-host answers both.
"""

import pytest
from device_suite import DeviceSuite
from hand_programs import group_add, row_sum, tiled_gemm, vector_add

from tests.cuda_host import cuda_host
from tests.fake_cuda import FakeGpu, real
from tests.fake_pycuda import PycudaGpu


class CudaSuite(DeviceSuite):
    programs = (vector_add(), group_add(), tiled_gemm(16, 8, 4), row_sum())


class TestCudaHost(CudaSuite):
    @pytest.fixture
    def opened(self):
        return cuda_host()

    def test_products_of_every_unit_have_a_peak(self, opened, engine):
        found = dict(engine.limits().products)
        assert list(found) == [u.name for u in opened.target.units]
        assert min(found.values()) > 0


class TestCudaBindings(CudaSuite):
    @pytest.fixture
    def opened(self):
        cuda_host()
        real("driver")
        return FakeGpu()


class TestPycuda(CudaSuite):
    @pytest.fixture
    def opened(self):
        cuda_host()
        return PycudaGpu()
