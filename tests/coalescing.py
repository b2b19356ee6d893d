"""What the work-items of one warp touch together: how much of what is moved for them they use.

A GPU moves sectors of 32 bytes. The first warp of the first group runs every access of a program
once, all serial loops at their first iteration; the share that is used is the bytes of its elements
over the bytes of their sectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tunegrad.ir.index import Index, as_index
from tunegrad.ir.program import For, If, Instr, Load, Program, Store

__all__ = ["Touched", "touched"]

WARP = 32
SECTOR_BYTES = 32


@dataclass(frozen=True, slots=True)
class Touched:
    """One access of a parameter by a warp: bytes of its elements, and of their sectors."""

    buffer: str
    is_store: bool
    used_bytes: int
    moved_bytes: int

    @property
    def share(self) -> float:
        """How much of what is moved is used."""
        return self.used_bytes / self.moved_bytes


def touched(program: Program) -> Iterator[Touched]:
    """Every access of a parameter, in program order."""
    sizes = {b.name: b.dtype.itemsize for b in program.params}
    yield from _block(program, program.body, (), sizes)


def _block(
    program: Program, body: tuple[Instr, ...], around: tuple[For, ...], sizes: dict[str, int]
) -> Iterator[Touched]:
    for i in body:
        if isinstance(i, For):
            yield from _block(program, i.body, (*around, i), sizes)
        elif isinstance(i, If):
            yield from _block(program, (*i.body, *i.orelse), around, sizes)
        elif isinstance(i, Load | Store) and i.buffer in sizes:
            yield _access(program, i, around, sizes[i.buffer])


def _access(program: Program, i: Load | Store, around: tuple[For, ...], itemsize: int) -> Touched:
    elements: set[int] = set()
    for item in range(min(WARP, program.local)):
        at: dict[str, Index] = {}
        for loop in around:
            mine = item // loop.inner % loop.count if loop.kind == "local" else 0
            at[loop.var] = as_index(mine)
        for lane in range(i.vtype.lanes):
            offset = i.offset.substitute(at | ({i.lane: as_index(lane)} if i.lane else {}))
            assert offset.is_const, offset
            elements.add(offset.const)
    used_bytes = len(elements) * itemsize
    moved_bytes = len({e * itemsize // SECTOR_BYTES for e in elements}) * SECTOR_BYTES
    return Touched(i.buffer, isinstance(i, Store), used_bytes, moved_bytes)
