"""One program, run once in this process on this thread, for references: no candidate's device."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from numpy.typing import NDArray

from tunegrad.devices.host.buffers import Buffer
from tunegrad.devices.host.codegen import compile_llvm
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.host.team import BufferTable, Executable
from tunegrad.ir.program import Program
from tunegrad.render.llvm import render_llvm, workspace_bytes

Array = NDArray[Any]

_one_compiles = threading.Lock()
"""References are computed in several threads; what LLVM keeps per process is for one at a time."""


def run_on_host(program: Program, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of a program of one thread, lowered for ``ir.target``s of this machine; flat
    arrays in and out.

    Raises CompileFailure where it can not be compiled.
    """
    with _one_compiles:
        image = _image(program)
    buffers = {b.name: Buffer(b.size * b.dtype.itemsize, touched=False) for b in program.params}
    for b in program.params:
        if b.role != "out":
            buffers[b.name].array(b.dtype.name)[:] = arrays[b.name]
    table = BufferTable([buffers[b.name].address for b in program.params])
    workspace = Buffer(workspace_bytes(program))
    with Executable.load(image, program.name) as executable:
        entry = ctypes.CFUNCTYPE(
            None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
        )
        entry(executable.address)(table.address, workspace.address, 0, None)
    outputs = (b for b in program.params if b.role in ("out", "inout"))
    return {b.name: buffers[b.name].array(b.dtype.name) for b in outputs}


@lru_cache(maxsize=2)
def _image(program: Program) -> bytes:
    """The code of two programs: a kernel's input sets come one after the other."""
    target = host_target(1)
    return compile_llvm(render_llvm(program, target), target)
