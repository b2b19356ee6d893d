"""``opencl:NAME`` is the platform of that name, or else the device."""

from __future__ import annotations

import re

import pytest

from tunegrad.devices.opencl import device as opencl
from tunegrad.errors import DeviceError
from tunegrad.ir.target import Target


def made(number: int, platform: str, name: str) -> opencl.OpenClDevice:
    identity = (("name", name), ("platform", platform), ("type", "cpu"))
    return opencl.OpenClDevice(number, Target("opencl", "gpu", name), identity)


POCL = made(0, "Portable Computing Language", "pthread-Intel(R) Xeon(R)")
INTEL = made(1, "Intel(R) OpenCL", "Intel(R) Xeon(R)")


@pytest.fixture(autouse=True)
def _found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencl, "found", lambda: [POCL, INTEL])


@pytest.mark.parametrize(
    ("part", "wanted"),
    [("intel", INTEL), ("portable", POCL), ("pthread", POCL), ("1", INTEL), ("", POCL)],
)
def test_opencl_name_is_a_platform_before_it_is_a_device(part, wanted):
    assert opencl.select(part) is wanted


def test_opencl_name_that_several_devices_have_is_refused():
    with pytest.raises(DeviceError, match=re.escape("device opencl:xeon: several OpenCL devices")):
        opencl.select("xeon")
