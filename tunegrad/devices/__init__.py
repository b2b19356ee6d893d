"""Devices: compile, load, launch, verify, time. A device's modules are imported when one of its names is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tunegrad.devices.cpu.peak import MachineLimits, measure_limits
    from tunegrad.devices.hashing import program_hash
    from tunegrad.devices.host.buffers import Buffer
    from tunegrad.devices.host.codegen import assembly, compile_llvm, compiler_version
    from tunegrad.devices.host.executable import Executable
    from tunegrad.devices.host.facts import default_threads, fingerprint, host_target
    from tunegrad.devices.host.team import BufferTable, Launch, Plan, Team
    from tunegrad.devices.job import (
        CONTENDING,
        Beside,
        Candidate,
        CompiledCandidate,
        Hooks,
        KernelIO,
        Limits,
        Lowered,
        Outcome,
        Parameter,
        Reference,
    )
    from tunegrad.devices.measurer import Compiling, CpuMeasurer
    from tunegrad.devices.processes.confine import Protections

__all__ = [
    "CONTENDING",
    "Beside",
    "Buffer",
    "BufferTable",
    "Candidate",
    "CompiledCandidate",
    "Compiling",
    "CpuMeasurer",
    "Executable",
    "Hooks",
    "KernelIO",
    "Launch",
    "Limits",
    "Lowered",
    "MachineLimits",
    "Outcome",
    "Parameter",
    "Plan",
    "Protections",
    "Reference",
    "Team",
    "assembly",
    "compile_llvm",
    "compiler_version",
    "default_threads",
    "fingerprint",
    "host_target",
    "measure_limits",
    "program_hash",
]

_HOMES = {
    "host.buffers": ("Buffer",),
    "host.codegen": ("assembly", "compile_llvm", "compiler_version"),
    "processes.confine": ("Protections",),
    "host.executable": ("Executable",),
    "host.facts": ("default_threads", "fingerprint", "host_target"),
    "job": (
        "CONTENDING", "Beside", "Candidate", "CompiledCandidate", "Hooks", "KernelIO", "Limits", "Lowered", "Outcome",
        "Parameter", "Reference",
    ),
    "measurer": ("Compiling", "CpuMeasurer"),
    "host.team": ("BufferTable", "Launch", "Plan", "Team"),
    "cpu.peak": ("MachineLimits", "measure_limits"),
    "hashing": ("program_hash",),
}  # fmt: skip
_MODULES = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
