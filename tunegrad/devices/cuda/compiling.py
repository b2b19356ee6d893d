"""Compilation of programs to cubins: NVRTC's half of a CUDA device, which needs no GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tunegrad.devices.cuda.cubin import cubin_facts
from tunegrad.devices.cuda.lowering import lower_cuda
from tunegrad.devices.cuda.nvrtc import build, inspected, version
from tunegrad.devices.job import Lowered
from tunegrad.ir.program import Program
from tunegrad.ir.target import Target
from tunegrad.trial import Properties

if TYPE_CHECKING:
    from tunegrad.devices.device import Inspection

__all__ = ["NvrtcDevice"]


@dataclass(frozen=True, slots=True)
class NvrtcDevice:
    """The base of devices whose code NVRTC compiles for ``target``; see
    ``devices.device.Device``.
    """

    target: Target

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
