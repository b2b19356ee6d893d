"""The hash that a row of a store has, for rows that tests write by hand."""

from __future__ import annotations

from tunegrad.compiling import build
from tunegrad.devices import program_hash
from tunegrad.devices.cpu.device import CpuDevice
from tunegrad.errors import IllegalAction
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.opts import Schedule


def hash_of(kernel: Kernel, actions: str, target: Target) -> str:
    """What the worker that compiled it would have said; "" for actions that are not legal."""
    try:
        return program_hash(build(kernel, Schedule.parse(actions), CpuDevice(target)))
    except IllegalAction:
        return ""
