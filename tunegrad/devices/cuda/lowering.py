"""A program as CUDA C++ and all that a launch needs beside it."""

from __future__ import annotations

from tunegrad.devices.job import Geometry, KernelIO, Lowered, Parameter, unread
from tunegrad.errors import OutOfResources
from tunegrad.ir.pipelines import expand_pipelines
from tunegrad.ir.program import Alloc, Program
from tunegrad.ir.program_registers import carried_registers
from tunegrad.ir.target import Target
from tunegrad.render.c_family import arguments, kernel_name, launched_bytes
from tunegrad.render.cuda import CUDA, render_cuda

__all__ = ["lower_cuda"]


def lower_cuda(program: Program, target: Target) -> Lowered:
    """Raises OutOfResources for a program that needs more than a group of the target has."""
    if program.local > target.max_local:
        raise OutOfResources(
            f"program {program.name}: {program.local} work-items, groups of {target.arch} have up "
            f"to {target.max_local}"
        )
    allocs = expand_pipelines(program).allocs
    shared = sum(a.size * a.dtype.itemsize for a in allocs if a.space == "shared")
    if shared > target.shared_bytes:
        raise OutOfResources(
            f"program {program.name}: {shared} bytes shared, {target.arch} has "
            f"{target.shared_bytes}"
        )
    carried, most = carried_registers(program), _registers(program, target)
    if most and carried > most:
        raise OutOfResources(
            f"program {program.name}: a loop carries {carried} registers, an item of "
            f"{program.local} has up to {most}"
        )
    given = arguments(program)
    roles = {b.name: b.role for b in program.params}
    params = tuple(
        Parameter(a.name, a.dtype.name, a.size, roles.get(a.name, "pack"))
        for a in given
        if not isinstance(a, Alloc)
    )
    scratch = tuple(a.size * a.dtype.itemsize for a in given if isinstance(a, Alloc))
    return Lowered(
        render_cuda(program),
        kernel_name(program),
        KernelIO(params, program.packs, unread(program)),
        scratch,
        Geometry(program.threads, program.local, launched_bytes(program, CUDA)),
    )


def _registers(program: Program, target: Target) -> int:
    """What an item may have in a group of so many; 0 where the target does not say."""
    items = -(-program.local // max(1, target.warp)) * max(1, target.warp)
    if not target.unit_registers:
        return target.regs_per_item
    return min(target.regs_per_item, target.unit_registers // items)
