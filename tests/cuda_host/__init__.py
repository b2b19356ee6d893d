"""cuda-host: the very CUDA C++ that a GPU gets, built for this CPU and run by fibers.

Importing it adds the device to those of this process: ``devices.open("cuda-host:lazy:3")``. Worker
processes get the device itself. ``python -m tests.cuda_host tune mlp --device cuda-host`` is the
command with it.

``TUNEGRAD_TEST_CUDA=cuda pytest tests/device`` is for a machine with a GPU: what asks for the first
order of threads gets that device instead.
"""

from __future__ import annotations

import os

from tests.cuda_host.device import opened
from tunegrad import devices
from tunegrad.devices import Device
from tunegrad.errors import DeviceError

__all__ = ["cuda_host"]

_GPU = os.environ.get("TUNEGRAD_TEST_CUDA")


def _opened(part: str, threads: int | None) -> Device:
    return devices.open(_GPU) if _GPU and part in ("", "0") else opened(part, threads)


devices.register("cuda-host", _opened)


def cuda_host(seed: int = 0, lazy: bool = False) -> Device:
    """The device that CUDA tests without a GPU run on. Threads run in an order drawn by a seed that
    is not 0, copies arrive late where it is ``lazy``. Skips where there is no C++ compiler.
    """
    try:
        return devices.open(f"cuda-host:{'lazy:' if lazy else ''}{seed}")
    except DeviceError as error:
        import pytest

        pytest.skip(str(error))
