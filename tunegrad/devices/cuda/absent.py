"""A GPU that is not there: programs are compiled for it in earnest, and nothing runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tunegrad.devices.cuda.architectures import typical
from tunegrad.devices.cuda.compiling import NvrtcDevice
from tunegrad.devices.processes.confinement import Confinement
from tunegrad.errors import NothingRunsError
from tunegrad.trial import Fingerprint, Properties

if TYPE_CHECKING:
    from tunegrad.devices.device import Engine

__all__ = ["AbsentGpu", "absent"]


@dataclass(frozen=True, slots=True)
class AbsentGpu(NvrtcDevice):
    """See ``devices.device.Device``: a typical GPU of an architecture."""

    runs = False
    exclusive = False
    anywhere = True
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
    """Read the part of a device's name after ``null:``. Raises DeviceError for an architecture that
    is not known.
    """
    return AbsentGpu(typical(arch))
