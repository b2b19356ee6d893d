"""A GPU that is not there: programs are compiled for it in earnest, and nothing runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tunegrad.devices.cuda.architectures import typical
from tunegrad.devices.cuda.cubin import cubin_facts
from tunegrad.devices.cuda.lowering import lower_cuda
from tunegrad.devices.cuda.nvrtc import build, inspected, version
from tunegrad.devices.job import Lowered
from tunegrad.devices.processes.confinement import Confinement
from tunegrad.errors import NothingRunsError
from tunegrad.ir.program import Program
from tunegrad.ir.target import Target
from tunegrad.trial import Fingerprint, Properties

if TYPE_CHECKING:
    from tunegrad.devices.device import Engine, Inspection

__all__ = ["AbsentGpu", "absent"]


@dataclass(frozen=True, slots=True)
class AbsentGpu:
    """See ``devices.device.Device``: a typical GPU of an architecture."""

    target: Target

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

    def compiler(self) -> str:
        return version()

    def lower(self, program: Program) -> Lowered:
        return lower_cuda(program, self.target)

    def compile(self, lowered: Lowered, killable: bool = False) -> bytes:
        return build(lowered.text, lowered.entry, self.target.arch).image

    def inspect(self, lowered: Lowered) -> Inspection | None:
        return inspected(lowered, self.target)

    def facts(self, lowered: Lowered, image: bytes) -> Properties:
        return cubin_facts(image, lowered.geometry, self.target)

    def state(self) -> Properties:
        return ()

    def open(self, pin: bool = False) -> Engine:
        """Raises NothingRunsError: there is nothing to run on."""
        raise NothingRunsError(f"device {self.name}: it compiles and runs nothing")


def absent(arch: str) -> AbsentGpu:
    """What stands after ``null:``. Raises DeviceError for an architecture that is not known."""
    return AbsentGpu(typical(arch))
