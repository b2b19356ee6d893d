"""The CPU keeps the contract of a device."""

from __future__ import annotations

import pytest
from device_suite import DeviceSuite

from tunegrad import devices


class TestCpu(DeviceSuite):
    @pytest.fixture
    def opened(self):
        return devices.open("cpu", 2)
