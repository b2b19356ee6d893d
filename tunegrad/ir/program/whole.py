"""The whole program, its print, and the indices that it works out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..index import Index
from ..keys import key_of
from ..pack import Pack
from .blocks import For, If, Instr, walk
from .buffers import Alloc, Buffer
from .instructions import CopyAsync, Load, Position, Store, Test
from .matrices import MatLoad
from .text import body_lines

__all__ = ["Program", "indexed", "indices"]


@dataclass(frozen=True, slots=True)
class Program:
    """``threads`` is the CPU team's size, or the number of work-groups; ``local`` the work-items of
    a group.
    """

    name: str
    params: tuple[Buffer, ...]
    allocs: tuple[Alloc, ...]
    packs: tuple[Pack, ...]
    body: tuple[Instr, ...]
    threads: int = 1
    local: int = 1

    @property
    def text(self) -> str:
        """Its canonical print."""
        return "\n".join(_lines(self))

    @property
    def hash(self) -> str:
        """32 hex digits that identify the program; equal programs are compiled and measured
        once.
        """
        return key_of(self.text)

    def __str__(self) -> str:
        return self.text


def indices(program: Program) -> Iterator[Index]:
    """Every index of a program's instructions: offsets, stops, conditions and positions."""
    for i in walk(program.body):
        match i:
            case Load() | Store() | MatLoad():
                yield i.offset
            case CopyAsync():
                yield i.offset
                yield i.into
            case For():
                yield from i.stops
                yield Index((), i.extent * max(1, i.count))
            case If() | Test():
                yield from (r.index for r in i.valid)
            case Position():
                yield i.index
            case _:
                pass


def indexed(program: Program) -> dict[str, int]:
    """The buffers whose elements are indices, with the least extent that they are indices of."""
    found: dict[str, int] = {}
    if not any(b.dtype.is_int for b in program.params):
        return found
    for index in set(indices(program)):
        for e in index.elements():
            found[e.buffer] = min(e.den, found.get(e.buffer, e.den))
    return found


def _lines(p: Program) -> Iterator[str]:
    yield f"program threads={p.threads} local={p.local}"
    for b in p.params:
        yield f"  {b.role} {b.name} {b.dtype}[{b.size}]"
    for a in p.allocs:
        rows = f" swizzled {a.swizzled}" if a.swizzled else ""
        yield f"  alloc {a.name} {a.dtype}[{a.size}] {a.space}{rows}"
    for k in p.packs:
        over = " ".join(f"{v}:{e}" for v, e in zip(k.variables, k.extents, strict=True))
        yield f"  pack {k.name} {k.dtype} over {over} = {k.source}[{k.offset}] if {k.valid}"
    yield from body_lines(p.body, "  ")
