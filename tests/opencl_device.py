"""The OpenCL device that tests run on: the first one, or the one that a setting names.

    TUNEGRAD_TEST_OPENCL=intel pytest tests/device/test_opencl_programs.py

A device that is named must be there: a job that is about it may not pass by skipping.
"""

from __future__ import annotations

import os

import pytest

from tests.programs import Compiled, Programs
from tunegrad import devices
from tunegrad.devices import Device
from tunegrad.errors import CandidateCrashed, DeviceError
from tunegrad.ir.program import Program

__all__ = ["SETTING", "compiled", "opencl_device"]

SETTING = "TUNEGRAD_TEST_OPENCL"


def opencl_device() -> Device:
    """The device. Skips where there is none; raises DeviceError where a named one is missing."""
    named = os.environ.get(SETTING, "")
    try:
        return devices.open(f"opencl:{named}" if named else "opencl")
    except DeviceError as error:
        if named:
            raise
        pytest.skip(str(error))


def compiled(on: Programs, program: Program) -> Compiled:
    """The program, compiled. The test is expected to fail where a named driver crashes."""
    try:
        return on.compile(program)
    except CandidateCrashed as crash:
        if os.environ.get(SETTING):
            pytest.xfail(str(crash))
        raise
