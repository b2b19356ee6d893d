"""The CPU as a device: programs become LLVM IR, then objects linked into the running process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.devices.device import Confinement
from tunegrad.devices.host.facts import compiler_version, fingerprint, host_target, llvm
from tunegrad.errors import IllegalAction
from tunegrad.ir.target import Target
from tunegrad.lazy import dataclass

if TYPE_CHECKING:
    from tunegrad.devices.cpu.engine import CpuEngine
    from tunegrad.devices.device import Inspection
    from tunegrad.devices.host.codegen import OptLevel
    from tunegrad.devices.lowered import Lowered
    from tunegrad.ir.program import Program
    from tunegrad.trial import Fingerprint, Properties

OPT_LEVEL: OptLevel = 1
"""LLVM's pipeline, for candidates and models alike: scheduled loops need but a short one."""


@dataclass(frozen=True, slots=True)
class CpuDevice:
    """See ``devices.device.Device``.

    ``target`` may be of another CPU: then it compiles, and is not opened.
    """

    target: Target
    opt_level: OptLevel = OPT_LEVEL

    name = "cpu"
    runs = True
    exclusive = True
    confinement = Confinement(threads=False)

    def describe(self) -> str:
        t = self.target
        sizes = f"L1 {t.l1_bytes >> 10} KiB, L2 {t.l2_bytes >> 10} KiB, L3 {t.l3_bytes >> 10} KiB"
        cores = f"{t.threads} thread{'s' if t.threads != 1 else ''}"
        units = f", matrix units {', '.join(t.matrix_units)}" if t.units else ""
        return (
            f"{t.arch}, {cores}, {t.registers} vector registers of {t.vector_bytes} bytes, "
            f"{sizes}{units}"
        )

    def fingerprint(self, numerics: str = "contract") -> Fingerprint:
        return fingerprint(self.target, numerics)

    def compiler(self) -> str:
        return f"{compiler_version()} level-{self.opt_level}"

    def lower(self, program: Program) -> Lowered:
        from tunegrad.devices.lowered import Geometry, Lowered, io_of
        from tunegrad.render.llvm import render_llvm, workspace_bytes

        if program.threads > self.target.threads:
            raise IllegalAction(f"{program.threads} threads, the target has {self.target.threads}")
        scratch = workspace_bytes(program)
        return Lowered(
            render_llvm(program, self.target),
            program.name,
            io_of(program),
            (scratch,) if scratch else (),
            Geometry(program.threads),
        )

    def compile(self, lowered: Lowered, killable: bool = False) -> bytes:
        from tunegrad.render.llvm_checks import check_text

        check_text(lowered.text, lowered.entry, len(lowered.io.params))
        text, target = lowered.text, self.target
        if self.opt_level == 0:
            return bytes(llvm().compile_quick(text, target, killable))
        return bytes(llvm().compile_llvm(text, target, self.opt_level, killable=killable))

    def inspect(self, lowered: Lowered) -> Inspection:
        from tunegrad.devices.cpu.machine_code import code_facts, hot_loop
        from tunegrad.devices.device import Inspection
        from tunegrad.devices.host.codegen import assembly

        text = assembly(lowered.text, self.target, self.opt_level)
        return Inspection(text, code_facts(text), hot_loop(text))

    def facts(self, lowered: Lowered, image: bytes) -> Properties:
        from tunegrad.devices.cpu.machine_code import object_facts

        return object_facts(image, lowered.entry)

    def state(self) -> Properties:
        return ()

    def open(self, pin: bool = False) -> CpuEngine:
        from tunegrad.devices.cpu.engine import CpuEngine

        return CpuEngine(self, pin)


def device_of(threads: int | None = None) -> CpuDevice:
    """The CPU of this machine, for kernels of so many threads (default: a fair number)."""
    return CpuDevice(host_target(threads))
