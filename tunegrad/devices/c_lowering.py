"""A program's text in a dialect of C, and all that a launch needs beside it."""

from __future__ import annotations

from dataclasses import replace

from tunegrad.devices.job import Geometry, Lowered, Parameter, io_of
from tunegrad.ir.program import Alloc, Pack, Program
from tunegrad.render.c_family import arguments, kernel_name

__all__ = ["lowered_c"]


def lowered_c(program: Program, text: str, shared_bytes: int = 0) -> Lowered:
    """The kernel's arguments are the program's buffers, packs that are none of them, and scratch
    that all groups share. A launch gives each group ``shared_bytes``.
    """
    io, given = io_of(program), arguments(program)
    packs = (Parameter(a.name, a.dtype.name, a.size, "pack") for a in given if isinstance(a, Pack))
    scratch = tuple(a.size * a.dtype.itemsize for a in given if isinstance(a, Alloc))
    geometry = Geometry(program.threads, program.local, shared_bytes)
    return Lowered(
        text, kernel_name(program), replace(io, params=(*io.params, *packs)), scratch, geometry
    )
