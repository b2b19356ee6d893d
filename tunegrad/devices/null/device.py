"""The null device: compiles for any target, on any machine, and runs nothing."""

from __future__ import annotations

from typing import Never, Self

from tunegrad.devices.programs import Buffers, Compiled
from tunegrad.errors import DeviceError
from tunegrad.ir.program import Program
from tunegrad.ir.target import Target
from tunegrad.ir.verify_program import verify_program

__all__ = ["NullDevice"]


class NullDevice:
    """Renders OpenCL C for a GPU target and LLVM IR for a CPU target. Needs neither hardware nor a driver."""

    runs = False

    def __init__(self, target: Target) -> None:
        self.name = "null"
        self.target = target

    def compile(self, program: Program) -> Compiled:
        """The text for the target; nothing is assembled. Raises VerifyError for what the target could never run."""
        verify_program(program, self.target)
        if self.target.kind == "gpu":
            from tunegrad.render.opencl import render_opencl

            return Compiled(program, render_opencl(program))
        from tunegrad.render.llvm import render_llvm

        return Compiled(program, render_llvm(program, self.target))

    def run(self, compiled: Compiled, buffers: Buffers) -> None:  # noqa: ARG002  # the interface of devices
        """Raises DeviceError: there is nothing to run on."""
        self._refuse(compiled)

    def time(self, compiled: Compiled, buffers: Buffers, samples: int) -> tuple[float, ...]:  # noqa: ARG002
        """Raises DeviceError: there is nothing to time on."""
        self._refuse(compiled)

    def _refuse(self, compiled: Compiled) -> Never:
        raise DeviceError(
            f"device null ({self.target.name}): it compiles and runs nothing, not {compiled.program.name}"
        )

    def close(self) -> None:
        """Nothing to give back."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
