"""Devices: what they are, how they are opened, and how candidates are measured on them.

``open("opencl:1")`` gives a ``Device``. Its modules are imported when one of its names is asked
for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tunegrad.devices.device import BoundPlan, Code, Device, Engine, Inspection, Memory
    from tunegrad.devices.hashing import program_hash
    from tunegrad.devices.host.facts import usable_cores
    from tunegrad.devices.host.single import run_on_host
    from tunegrad.devices.job import (
        CONTENDING,
        Beside,
        Candidate,
        CompiledCandidate,
        Hooks,
        Limits,
        Outcome,
        Reference,
    )
    from tunegrad.devices.limits import MachineLimits
    from tunegrad.devices.lowered import Geometry, KernelIO, Lowered, Parameter
    from tunegrad.devices.measurer import Compiling, DeviceMeasurer
    from tunegrad.devices.processes.confine import Protections
    from tunegrad.devices.registry import (
        DEFAULT,
        found,
        host_device,
        known,
        open,  # noqa: A004 - as gzip.open
        running,
    )
    from tunegrad.devices.timing import relative_interval

__all__ = [
    "CONTENDING",
    "DEFAULT",
    "Beside",
    "BoundPlan",
    "Candidate",
    "Code",
    "CompiledCandidate",
    "Compiling",
    "Device",
    "DeviceMeasurer",
    "Engine",
    "Geometry",
    "Hooks",
    "Inspection",
    "KernelIO",
    "Limits",
    "Lowered",
    "MachineLimits",
    "Memory",
    "Outcome",
    "Parameter",
    "Protections",
    "Reference",
    "found",
    "host_device",
    "known",
    "open",
    "program_hash",
    "relative_interval",
    "run_on_host",
    "running",
    "usable_cores",
]

_HOMES = {
    "device": ("BoundPlan", "Code", "Device", "Engine", "Inspection", "Memory"),
    "hashing": ("program_hash",),
    "host.facts": ("usable_cores",),
    "host.single": ("run_on_host",),
    "job": (
        "CONTENDING", "Beside", "Candidate", "CompiledCandidate", "Hooks", "Limits", "Outcome",
        "Reference",
    ),
    "limits": ("MachineLimits",),
    "lowered": ("Geometry", "KernelIO", "Lowered", "Parameter"),
    "measurer": ("Compiling", "DeviceMeasurer"),
    "processes.confine": ("Protections",),
    "registry": ("DEFAULT", "found", "host_device", "known", "open", "running"),
    "timing": ("relative_interval",),
}  # fmt: skip
_MODULES = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
