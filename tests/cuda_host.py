"""The device that CUDA tests without a GPU run on."""

from __future__ import annotations

import pytest

from tunegrad import devices
from tunegrad.devices import Device
from tunegrad.errors import DeviceError

__all__ = ["cuda_host"]


def cuda_host(seed: int = 0, lazy: bool = False) -> Device:
    """The device; threads run in an order drawn by a seed that is not 0, copies arrive late where
    it is ``lazy``. Skips where there is no C++ compiler.
    """
    try:
        return devices.open(f"cuda-host:{'lazy:' if lazy else ''}{seed}")
    except DeviceError as error:
        pytest.skip(str(error))
