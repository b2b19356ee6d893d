"""Programs of kernels whose numbers are words: by the interpreter, and compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.amx_twins import device_of
from tests.interpreter import interpret, pack_buffers
from tests.programs import Programs
from tests.verifiers.program import verify_program
from tunegrad.errors import IllegalAction
from tunegrad.ir.dtypes import DType
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.program import Program
from tunegrad.ir.target import Target
from tunegrad.opts import Chooser, Space

__all__ = ["interpreted", "runs_alike"]

Arrays = Mapping[str, NDArray[Any]]
Memory = Callable[[DType, int, int], NDArray[Any]]
"""Numbers of a type, so many, from a seed."""


def interpreted(
    kernel: Kernel, target: Target, seed: int, chooser: Chooser | None, memory: Memory
) -> tuple[str, Arrays, Arrays] | None:
    """The actions that were drawn (without a chooser: the default's), memory before and after; None
    where the draw is illegal, which a default never is.
    """
    space = Space(kernel, target)
    try:
        made = space.defaults()[0] if chooser is None else space.sample(chooser)
        program = space.lower(made)
    except IllegalAction:
        assert chooser is not None, "the default schedule is illegal"
        return None
    verify_program(program)
    buffers = {p.name: memory(p.dtype, p.size, seed) for p in kernel.params}
    buffers[kernel.outputs[0].name][:] = 0
    buffers = pack_buffers(program, buffers)
    before = {n: b.copy() for n, b in buffers.items()}
    interpret(program, buffers)
    return made.text, before, buffers


def runs_alike(
    kernel: Kernel, program: Program, target: Target, memory: Memory, seed: int = 0
) -> None:
    """Compiled code on all threads and interpreter, bit by bit."""
    arrays = {p.name: memory(p.dtype, p.size, seed) for p in kernel.params}
    mine = pack_buffers(program, arrays)
    theirs = {b.name: mine[b.name].copy() for b in program.params}
    interpret(program, mine)
    with Programs(device_of(target)) as programs:
        programs.run(programs.compile(program), theirs)
    name = kernel.outputs[0].name
    np.testing.assert_array_equal(theirs[name], mine[name])
