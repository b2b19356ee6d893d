"""The reference device: the interpreter. Slow, exact, and an error for everything a program must not do."""

from __future__ import annotations

import time
from typing import Self

from tunegrad.devices.programs import Buffers, Compiled, checked_buffers
from tunegrad.ir.interpret_program import interpret
from tunegrad.ir.program import Program
from tunegrad.ir.target import Target
from tunegrad.ir.verify_program import verify_program

__all__ = ["ReferenceDevice"]


class ReferenceDevice:
    """Runs programs of any target; ``time`` gives the interpreter's own wall time, good for nothing but tests."""

    runs = True

    def __init__(self, target: Target | None = None) -> None:
        self.name = "reference"
        self.target = target or Target(name="reference", kind="cpu", arch="interpreter")

    def compile(self, program: Program) -> Compiled:
        """The program's own text. Raises VerifyError for a program that breaks the rules of its form."""
        verify_program(program)
        return Compiled(program, program.text)

    def run(self, compiled: Compiled, buffers: Buffers) -> None:
        """Interpret once. Raises VerifyError for a race, an access out of bounds, a read of what nobody wrote."""
        interpret(compiled.program, checked_buffers(compiled.program, buffers))

    def time(self, compiled: Compiled, buffers: Buffers, samples: int) -> tuple[float, ...]:
        """Wall seconds of ``samples`` interpretations."""
        seconds = []
        for _ in range(samples):
            start = time.perf_counter()
            self.run(compiled, buffers)
            seconds.append(time.perf_counter() - start)
        return tuple(seconds)

    def close(self) -> None:
        """Nothing to give back."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
