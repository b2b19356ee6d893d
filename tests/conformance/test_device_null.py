"""The null device keeps the contract of a device that runs nothing, for targets of both kinds."""

import pytest
from device_suite import DeviceSuite
from hand_programs import group_add, row_sum, tiled_gemm

from tests.null_device import NullDevice
from tunegrad import devices
from tunegrad.devices.cuda.nvrtc import version
from tunegrad.errors import DeviceError, VerifyError
from tunegrad.ir.target import Target

GPU = Target("gfx", "gpu", "any", shared_bytes=48 << 10, max_local=1024)
CPU = Target("cpu", "cpu", "znver4", vector_bytes=64, registers=32, threads=2)


class TestNullGpu(DeviceSuite):
    programs = (group_add(), tiled_gemm(), row_sum())

    @pytest.fixture
    def opened(self):
        return NullDevice(GPU)


class TestNullCuda(DeviceSuite):
    programs = (group_add(), tiled_gemm(), row_sum())

    @pytest.fixture
    def opened(self):
        try:
            version()
        except DeviceError as error:
            pytest.skip(str(error))
        return devices.open("null:sm_90a")


class TestNullCpu(DeviceSuite):
    @pytest.fixture
    def opened(self):
        return NullDevice(CPU)


def test_device_null_refuses_what_its_target_could_never_run():
    with pytest.raises(VerifyError, match="work-items are a GPU's"):
        NullDevice(CPU).lower(group_add())
    small = Target("small", "gpu", "any", shared_bytes=1024, max_local=1024)
    with pytest.raises(VerifyError, match="2048 bytes of shared memory: target small has 1024"):
        NullDevice(small).lower(tiled_gemm())
