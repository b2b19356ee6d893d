"""One program on the CPU in this process, compiled as models are: buffers between guard zones, run
and timed natively.

For benchmarks and tests that know what they run. Searching measures candidates in processes that
can be killed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tunegrad.devices.cpu.device import OPT_LEVEL
from tunegrad.devices.host.buffers import Buffer
from tunegrad.devices.host.codegen import compile_llvm
from tunegrad.devices.host.team import BufferTable, Executable, Launch, Team
from tunegrad.ir.dtypes import DType
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.program import Program
from tunegrad.ir.target import Target
from tunegrad.render.llvm import render_llvm, workspace_bytes

__all__ = ["SingleKernel", "draw_arrays"]

_POISON = 0xCB


class SingleKernel:
    """A loaded program and its memory. Close it, or use it as a context manager."""

    def __init__(
        self, program: Program, target: Target, team: Team, arrays: Mapping[str, NDArray[Any]]
    ) -> None:
        self.program, self.team = program, team
        self.buffers = {b.name: Buffer(b.size * b.dtype.itemsize) for b in program.params}
        self.workspace = Buffer(max(1, workspace_bytes(program)))
        self._dtypes = {b.name: b.dtype.name for b in program.params}
        for b in program.params:
            if b.role in ("in", "const"):
                self.array(b.name)[:] = arrays[b.name]
        for pack in program.packs:
            self.array(pack.name)[:] = pack.run(self.array(pack.source))
        self._table = BufferTable(
            [self.buffers[b.name].address for b in program.params], self.buffers
        )
        self._code = Executable.load(
            compile_llvm(render_llvm(program, target), target, OPT_LEVEL), program.name
        )
        self.launch = Launch(
            self._code.address, self._table.address, self.workspace.address, program.threads
        )

    def array(self, name: str) -> NDArray[Any]:
        """A buffer's memory, flat."""
        return self.buffers[name].array(self._dtypes[name])

    def run(self) -> dict[str, NDArray[Any]]:
        """Run once, outputs and scratch poisoned before; the outputs, copied."""
        outputs = [b.name for b in self.program.params if b.role == "out"]
        for name in outputs:
            self.buffers[name].bytes.fill(_POISON)
        self.workspace.bytes.fill(_POISON)
        self.team.run(
            self.launch.address, self.launch.buffers, self.launch.workspace, self.launch.threads
        )
        return {name: self.array(name).copy() for name in outputs}

    def damage(self) -> str:
        """Name a guard zone that was written; '' when all are intact."""
        for name, buffer in (*self.buffers.items(), ("workspace", self.workspace)):
            found = buffer.check_guards()
            if found:
                return f"{name}: {found}"
        return ""

    def time(self, samples: int) -> tuple[float, ...]:
        """Seconds of each of ``samples`` launches, by the native clock."""
        return self.team.time(self.launch, samples)

    def close(self) -> None:
        """Unmap the code."""
        self._code.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def draw_arrays(kernel: Kernel, seed: int) -> dict[str, NDArray[Any]]:
    """Flat arrays for every input: standard normal floats, small integers. bf16 gets the upper
    halves of f32.
    """
    rng = np.random.default_rng(seed)
    return {p.name: _draw(p.dtype, p.size, rng) for p in kernel.params if p.role != "out"}


def _draw(dtype: DType, size: int, rng: np.random.Generator) -> NDArray[Any]:
    if dtype.is_bool:
        return rng.integers(0, 2, size).astype(np.bool_)
    if dtype.is_int:
        return rng.integers(-5, 6, size).astype(dtype.numpy)
    values = rng.standard_normal(size)
    if dtype.name == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(dtype.numpy)
