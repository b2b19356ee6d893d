"""cuda-host: the very CUDA C++ that a GPU gets, built for this CPU and run by fibers.

Importing it adds the device to those of this process: ``devices.open("cuda-host:lazy:3")``. Worker
processes get the device itself. ``python -m tests.cuda_host tune mlp --device cuda-host`` is the
command with it.
"""

from __future__ import annotations

from tests.cuda_host.device import opened
from tunegrad import devices
from tunegrad.devices import Device
from tunegrad.errors import DeviceError

__all__ = ["cuda_host"]

devices.register("cuda-host", opened)


def cuda_host(seed: int = 0, lazy: bool = False) -> Device:
    """The device that CUDA tests without a GPU run on. Threads run in an order drawn by a seed that
    is not 0, copies arrive late where it is ``lazy``. Skips where there is no C++ compiler.
    """
    try:
        return devices.open(f"cuda-host:{'lazy:' if lazy else ''}{seed}")
    except DeviceError as error:
        import pytest

        pytest.skip(str(error))
