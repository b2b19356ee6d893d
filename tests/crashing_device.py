"""A device whose compiler ends its process on some programs, as drivers' compilers do."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from tests.reference_device import ReferenceDevice
from tunegrad.devices.job import Lowered

__all__ = ["CrashingDevice"]


@dataclass(frozen=True, slots=True)
class CrashingDevice(ReferenceDevice):
    """It crashes on the entry ``deadly``; with ``once``, a file that it makes then, only once."""

    deadly: str = "deadly"
    once: str = ""

    name = "crashing"

    def compile(self, lowered: Lowered, killable: bool = False) -> bytes:
        if lowered.entry == self.deadly and not (self.once and Path(self.once).exists()):
            if self.once:
                Path(self.once).touch()
            os.kill(os.getpid(), signal.SIGSEGV)
        return ReferenceDevice.compile(self, lowered, killable)
