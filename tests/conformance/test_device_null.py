"""The null device keeps the contract of a device that runs nothing, for targets of both kinds."""

import pytest
from device_suite import DeviceSuite
from hand_programs import group_add, row_sum, tiled_gemm

from tunegrad.devices.null.device import NullDevice
from tunegrad.errors import VerifyError
from tunegrad.ir.target import Target

GPU = Target("gfx", "gpu", "any", shared_bytes=48 << 10, max_local=1024)
CPU = Target("cpu", "cpu", "znver4", vector_bytes=64, registers=32, threads=2)


class TestNullGpu(DeviceSuite):
    programs = (group_add(), tiled_gemm(), row_sum())

    @pytest.fixture
    def device(self):
        with NullDevice(GPU) as device:
            yield device


class TestNullCpu(DeviceSuite):
    @pytest.fixture
    def device(self):
        with NullDevice(CPU) as device:
            yield device


def test_device_null_refuses_what_its_target_could_never_run():
    with pytest.raises(VerifyError, match="work-items are a GPU's"):
        NullDevice(CPU).compile(group_add())
    small = Target("small", "gpu", "any", shared_bytes=1024, max_local=1024)
    with pytest.raises(VerifyError, match="2048 bytes of shared memory: target small has 1024"):
        NullDevice(small).compile(tiled_gemm())
