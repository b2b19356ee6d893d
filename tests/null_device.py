"""The null device: lowers for any target, on any machine, and runs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Never

from tests.verifiers.program import verify_program
from tunegrad.devices.device import Confinement
from tunegrad.devices.job import Geometry, Lowered, io_of
from tunegrad.errors import NothingRunsError
from tunegrad.ir.program import Program
from tunegrad.ir.target import Target
from tunegrad.trial import Fingerprint, Properties

if TYPE_CHECKING:
    from tunegrad.devices.device import Engine, Inspection

__all__ = ["NullDevice"]


@dataclass(frozen=True, slots=True)
class NullDevice:
    """OpenCL C for a target with work-items, else LLVM IR. Needs neither hardware nor a driver."""

    target: Target

    name = "null"
    runs = False
    exclusive = False
    confinement = Confinement()

    def describe(self) -> str:
        return f"compiles for {self.target.name} and runs nothing"

    def fingerprint(self, numerics: str = "contract") -> Fingerprint:
        fields = {"device": "null", "arch": self.target.arch, "numerics": numerics}
        return Fingerprint(tuple(sorted(fields.items())))

    def compiler(self) -> str:
        return "none"

    def lower(self, program: Program) -> Lowered:
        """The text for the target. Raises VerifyError for what the target could never run."""
        verify_program(program, self.target)
        geometry = Geometry(program.threads, program.local)
        if self.target.has_work_items:
            from tunegrad.render.opencl import render_opencl

            return Lowered(render_opencl(program), program.name, io_of(program), (), geometry)
        from tunegrad.render.llvm import render_llvm, workspace_bytes

        text = render_llvm(program, self.target)
        return Lowered(text, program.name, io_of(program), (workspace_bytes(program),), geometry)

    def compile(self, lowered: Lowered, killable: bool = False) -> bytes:
        """The text itself: nothing is assembled."""
        return lowered.text.encode()

    def inspect(self, lowered: Lowered) -> Inspection | None:
        return None

    def facts(self, lowered: Lowered, image: bytes) -> Properties:
        return ()

    def state(self) -> Properties:
        return ()

    def open(self, pin: bool = False) -> Engine:
        """Raises NothingRunsError: there is nothing to run on."""
        self._refuse()

    def _refuse(self) -> Never:
        raise NothingRunsError(f"device null ({self.target.name}): it compiles and runs nothing")
