"""What NVRTC makes of programs for GPUs that are not here. It is a library in a wheel."""

from __future__ import annotations

import pytest

from tunegrad.devices import Device
from tunegrad.devices.cuda.device import absent
from tunegrad.devices.cuda.nvrtc import Built, build, version
from tunegrad.errors import DeviceError
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.program import Program
from tunegrad.opts import Space

__all__ = ["built", "clean_default", "require_nvrtc"]


def require_nvrtc() -> None:
    """Skip where it is missing."""
    try:
        version()
    except DeviceError as error:
        pytest.skip(str(error))


def built(device: Device, program: Program) -> Built:
    lowered = device.lower(program)
    return build(lowered.text, lowered.entry, device.target.arch)


def clean_default(arch: str, kernel: Kernel) -> Built:
    """The default schedule of a kernel, which spills nothing."""
    device = absent(arch)
    space = Space(kernel, device.target)
    found = built(device, space.lower(space.defaults()[0]))
    assert (found.warnings, found.spilled_bytes, found.stack_bytes) == ("", 0, 0)
    return found
