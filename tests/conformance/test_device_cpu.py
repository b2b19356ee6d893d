"""The CPU's parts (renderer, compiler, loader, team) together keep the contract of a device."""

from __future__ import annotations

import numpy as np
import pytest
from device_suite import DeviceSuite

from tunegrad.artifact import OPT_LEVEL
from tunegrad.devices import Executable, Launch, Team, compile_llvm, host_target
from tunegrad.devices.host.team import BufferTable
from tunegrad.devices.programs import Buffers, Compiled, checked_buffers
from tunegrad.ir.program import Program
from tunegrad.render.llvm import render_llvm, workspace_bytes


class CpuPrograms:
    """Single programs on the CPU, in this process: what the workers do, without a worker."""

    runs = True

    def __init__(self) -> None:
        self.name, self.target = "cpu", host_target(2)
        self._team = Team(2)

    def compile(self, program: Program) -> Compiled:
        text = render_llvm(program)
        return Compiled(program, text, compile_llvm(text, self.target, OPT_LEVEL))

    def run(self, compiled: Compiled, buffers: Buffers) -> None:
        self.time(compiled, buffers, 1)

    def time(self, compiled: Compiled, buffers: Buffers, samples: int) -> tuple[float, ...]:
        program = compiled.program
        full = checked_buffers(program, buffers)
        table = BufferTable([full[b.name].ctypes.data for b in program.params])
        scratch = np.zeros(workspace_bytes(program) + 64, np.uint8)
        with Executable.load(compiled.image, program.name) as code:
            launch = Launch(code.address, table.address, scratch.ctypes.data, program.threads)
            return self._team.time(launch, samples)

    def close(self) -> None:
        self._team.close()


class TestCpu(DeviceSuite):
    @pytest.fixture
    def device(self):
        device = CpuPrograms()
        yield device
        device.close()
