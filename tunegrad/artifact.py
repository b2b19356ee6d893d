"""A schedule of a kernel as LLVM IR for a CPU, with all that launching it needs: the one place where they meet.

    kernel, schedule, target   -->   loop tree   -->   program   -->   Lowered(text, name, io, workspace, threads)

A pure function: the search's workers and a loaded model get byte-identical text for the same action list.
"""

from __future__ import annotations

from tunegrad.devices import KernelIO, Lowered, Parameter
from tunegrad.errors import OutOfResources
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.program import Program, walk
from tunegrad.ir.target import Target
from tunegrad.opts import Schedule, Space
from tunegrad.render.llvm import render_llvm, workspace_bytes

__all__ = ["MAX_INSTRUCTIONS", "build", "lowered"]

MAX_INSTRUCTIONS = 20_000
"""Instructions of a program, at most: LLVM needs about a second for as many vector ones, and longer for scalar ones."""


def build(kernel: Kernel, schedule: Schedule, target: Target) -> Lowered:
    """The schedule as LLVM IR text. Raises IllegalAction for one that is not legal, OutOfResources for one too large."""
    return lowered(Space(kernel, target).lower(schedule))


def lowered(program: Program) -> Lowered:
    """A program as LLVM IR text. Raises OutOfResources for one of more than ``MAX_INSTRUCTIONS``."""
    count = sum(1 for _ in walk(program.body))
    if count > MAX_INSTRUCTIONS:
        raise OutOfResources(f"program of {count} instructions: at most {MAX_INSTRUCTIONS}")
    params = tuple(Parameter(b.name, b.dtype.name, b.size, b.role) for b in program.params)
    io = KernelIO(params, program.packs)
    return Lowered(render_llvm(program), program.name, io, workspace_bytes(program), program.threads)
