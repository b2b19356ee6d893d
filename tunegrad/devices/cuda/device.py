"""CUDA devices as values: the GPUs of this machine, and how programs become cubins for them.

NVIDIA's bindings are imported when a GPU is looked for or opened. Compiling needs NVRTC and no GPU.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tunegrad.devices.cuda.architectures import Chip, architecture, cuda_target, typical
from tunegrad.devices.cuda.nvrtc import NvrtcDevice, check_driver
from tunegrad.devices.device import Confinement
from tunegrad.errors import DeviceError, NothingRunsError
from tunegrad.trial import Fingerprint, Properties

if TYPE_CHECKING:
    from tunegrad.devices.cuda.driver import Driver
    from tunegrad.devices.cuda.engine import CudaEngine
    from tunegrad.devices.device import Engine

# ---- a GPU that is not there
#
# A GPU that is not there: programs are compiled for it in earnest, and nothing runs.


@dataclass(frozen=True, slots=True)
class AbsentGpu(NvrtcDevice):
    """See ``devices.device.Device``: a typical GPU of an architecture."""

    runs = False
    exclusive = False
    confinement = Confinement()

    @property
    def name(self) -> str:
        return f"null:{self.target.arch}"

    def describe(self) -> str:
        return f"compiles for {self.target.arch} ({self.target.threads} units) and runs nothing"

    def fingerprint(self, numerics: str = "contract") -> Fingerprint:
        fields = {
            "device": "null",
            "arch": self.target.arch,
            "compiler_version": self.compiler(),
            "numerics": numerics,
        }
        return Fingerprint(tuple(sorted(fields.items())))

    def state(self) -> Properties:
        return ()

    def open(self, pin: bool = False) -> Engine:
        """Raises NothingRunsError: there is nothing to run on."""
        raise NothingRunsError(f"device {self.name}: it compiles and runs nothing")


def absent(arch: str) -> AbsentGpu:
    """Read the part of a device's name after ``null:``. DeviceError for an unknown architecture."""
    return AbsentGpu(typical(arch))


# ---- device


_HIDDEN = Chip(units=1, cache_bytes=4 << 20, hertz=1e9, memory_bytes_per_s=1e12)
"""The chip that is assumed where a driver says 0, as for a part of a GPU that several share."""
_SETTING = "TUNEGRAD_CUDA_DRIVER"
"""The environment's word for what loads and launches: ``bindings`` or ``pycuda``."""


@dataclass(frozen=True, slots=True)
class CudaDevice(NvrtcDevice):
    """See ``devices.device.Device``. ``number`` is the driver's, under CUDA_VISIBLE_DEVICES.

    ``identity`` is what the driver says of the GPU, as (field, value).
    """

    number: int
    identity: tuple[tuple[str, str], ...]

    runs = True
    exclusive = False
    confinement = Confinement(driver=True)

    @property
    def name(self) -> str:
        return f"cuda:{self.number}"

    def describe(self) -> str:
        about, t = dict(self.identity), self.target
        return (
            f"{about['name']}, compute capability {about['capability']}, {t.threads} units, "
            f"{int(about['memory']) >> 30} GiB"
        )

    def fingerprint(self, numerics: str = "contract") -> Fingerprint:
        fields = {
            "device": "cuda",
            "arch": self.target.arch,
            "os": f"{platform.system().lower()}-{platform.machine()}",
            "compiler": "nvrtc",
            "compiler_version": self.compiler(),
            "numerics": numerics,
            **{f"cuda_{k}": v for k, v in self.identity},
        }
        return Fingerprint(tuple(sorted(fields.items())))

    def state(self) -> Properties:
        from tunegrad.devices.cuda.bindings import state

        return state(self.number)

    def open(self, pin: bool = False) -> CudaEngine:
        from tunegrad.devices.cuda.engine import CudaEngine

        here = _device(self.number)
        if here.identity != self.identity:
            raise DeviceError(
                f"device {self.name}: {self.describe()} is absent; it is {here.describe()}"
            )
        check_driver(int(dict(here.identity)["driver"]))
        return CudaEngine(self, _driver(self.number))


def _driver(number: int) -> Driver:
    """pycuda where a setting asks for it, else NVIDIA's own bindings, which have graphs."""
    wanted = os.environ.get(_SETTING, "bindings")
    if wanted == "bindings":
        from tunegrad.devices.cuda.bindings import BindingsDriver

        return BindingsDriver(number)
    if wanted == "pycuda":
        from tunegrad.devices.cuda.pycuda import PycudaDriver

        return PycudaDriver(number)
    raise DeviceError(f"{_SETTING}={wanted!r}; valid: bindings, pycuda")


def found() -> list[CudaDevice]:
    """The GPUs of this machine. Raises DeviceError where the bindings or a driver are missing."""
    from tunegrad.devices.cuda.bindings import count

    return [_device(number) for number in range(count())]


def select(part: str) -> CudaDevice:
    """The GPU that stands after ``cuda:``, as a number or a part of its name; '' is the first one.

    Raises DeviceError where there is none, or several have that in their names.
    """
    devices = found()
    if not devices:
        raise DeviceError("device cuda: the driver sees no GPU; CUDA_VISIBLE_DEVICES may hide it")
    valid = "; ".join(f"{d.name} ({dict(d.identity)['name']})" for d in devices)
    if part.isdigit() or not part:
        number = int(part or 0)
        if number >= len(devices):
            raise DeviceError(f"device cuda:{part}: this machine has {len(devices)} GPUs: {valid}")
        return devices[number]
    named = [d for d in devices if part.lower() in dict(d.identity)["name"].lower()]
    if not named:
        raise DeviceError(f"device cuda:{part}: no GPU has that in the name: {valid}")
    if len({dict(d.identity)["name"] for d in named}) > 1:
        raise DeviceError(f"device cuda:{part}: several GPUs have that in the name: {valid}")
    return named[0]


def _device(number: int) -> CudaDevice:
    from tunegrad.devices.cuda.bindings import api, attributes

    about = attributes(api(), number)
    major, _, minor = about["capability"].partition(".")
    # A double data rate: two transfers a cycle.
    bytes_per_s = 2e3 * int(about["memory_clock_khz"]) * int(about["memory_bus_bits"]) / 8
    chip = Chip(
        units=int(about["units"]),
        cache_bytes=int(about["l2"]) or _HIDDEN.cache_bytes,
        hertz=1e3 * int(about["clock_khz"]) or _HIDDEN.hertz,
        memory_bytes_per_s=bytes_per_s or _HIDDEN.memory_bytes_per_s,
    )
    target = cuda_target(architecture((int(major), int(minor))), chip)
    return CudaDevice(target, number, tuple(sorted(about.items())))
