"""A program as CUDA C++ and all that a launch needs beside it."""

from __future__ import annotations

from tunegrad.devices.c_lowering import lowered_c
from tunegrad.devices.cuda.architectures import capability_of
from tunegrad.devices.job import Lowered
from tunegrad.errors import OutOfResources
from tunegrad.ir.pipelines import expand_pipelines
from tunegrad.ir.program import Program, carried_registers
from tunegrad.ir.target import Target
from tunegrad.render.c_family import launched_bytes
from tunegrad.render.cuda import CUDA, WRAPPERS, render_cuda

__all__ = ["lower_cuda"]


def lower_cuda(program: Program, target: Target) -> Lowered:
    """Raises OutOfResources for a program that needs more than a group of the target has, or an
    instruction that it has not.
    """
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
    text = render_cuda(program)
    _check_wrappers(program.name, text, target)
    return lowered_c(program, text, launched_bytes(program, CUDA))


def _check_wrappers(name: str, text: str, target: Target) -> None:
    """Raises OutOfResources where a text has an instruction that came with a later architecture."""
    major, minor = capability_of(target.arch)
    if not major:  # the CPU has twins of all
        return
    for w in WRAPPERS.values():
        if w.least_sm > 10 * major + minor and f" {w.name}(" in text:
            raise OutOfResources(
                f"program {name}: {w.name} needs sm_{w.least_sm}, the target is {target.arch}"
            )


def _registers(program: Program, target: Target) -> int:
    """Registers that an item may have in a group of so many; 0 where the target does not say."""
    items = -(-program.local // max(1, target.warp)) * max(1, target.warp)
    if not target.unit_registers:
        return target.regs_per_item
    return min(target.regs_per_item, target.unit_registers // items)
