"""``opencl:NAME`` is the platform of that name, or else the device."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tunegrad.devices import registry
from tunegrad.devices.opencl import device as opencl
from tunegrad.errors import CompileFailure, DeviceError
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


def test_a_driver_that_compiles_nothing_for_a_cpu_is_refused_before_anything_is_tried(monkeypatch):
    """PoCL 3.0 has no name for a processor that is newer than its LLVM, such as Zen 5."""
    fields = {"driver": "3.0", "version": "OpenCL 3.0 PoCL HSTR: pthread-x86_64-linux-gnu-generic"}
    newer = replace(POCL, identity=tuple(sorted({**dict(POCL.identity), **fields}.items())))
    asked = []

    def compiled(self, lowered, killable=False):
        asked.append(self)
        if self is newer:
            raise CompileFailure("unknown target CPU 'generic'")
        return b""

    monkeypatch.setattr(opencl.OpenClDevice, "compile", compiled)
    monkeypatch.setattr(opencl, "found", lambda: [newer, INTEL])
    opencl._failure_to_compile.cache_clear()
    said = "device opencl:0: Portable Computing Language 3.0 compiles nothing for this CPU"
    for part in ("", "pthread", "0"):
        with pytest.raises(DeviceError, match=re.escape(said)):
            opencl.select(part)
    assert opencl.select("intel") is INTEL
    assert asked == [newer]  # once, though it failed
    (_, error), (name, device) = registry.found()[1:3]
    assert str(error).startswith(said)
    assert (name, device) == ("opencl:1", INTEL)
