"""How warps touch shared memory: 32 banks of 4 bytes, as GPUs have them since 2010.

An access of 16 bytes an item goes in four parts of 8 items each, one of 8 bytes in two; a part
takes as many turns as the bank that it asks most has distinct words to give. What renderers join to
one access is one.
"""

from __future__ import annotations

from collections.abc import Iterator

from tunegrad.ir import program as p
from tunegrad.ir.index import Index
from tunegrad.ir.pipelines import expand_pipelines, is_aligned
from tunegrad.ir.program import Alloc, Instr, Program
from tunegrad.render.c_family import Joined, joined

__all__ = ["turns"]

_BANKS, _WORD, _WARP, _WIDEST = 32, 4, 32, 16


def turns(program: Program) -> dict[tuple[str, str], int]:
    """The most turns that a part of an access takes, by kind of access and buffer: 1 is none too
    many.
    """
    program = expand_pipelines(program)
    shared = {a.name: a for a in program.allocs if a.space == "shared"}
    items = {
        i.var: (i.inner, i.count)
        for i in p.walk(program.body)
        if isinstance(i, p.For) and i.kind == "local"
    }
    worst: dict[tuple[str, str], int] = {}
    for kind, buffer, offset, nbytes, lane in _block(program.body):
        if buffer not in shared:
            continue
        found = max(_turns(shared[buffer], offset, nbytes, lane, items, w) for w in range(2))
        worst[kind, buffer] = max(worst.get((kind, buffer), 0), found)
    return worst


_Access = tuple[str, str, Index, int, str]


def _block(body: tuple[Instr, ...]) -> Iterator[_Access]:
    """Every access of a block and of those inside it, neighbours as the renderer joins them."""
    for i in joined(body, _widths):
        if isinstance(i, Joined):
            kind, buffer, offset, nbytes, lane = next(_accesses(i.parts[0]))
            yield kind, buffer, offset, nbytes * len(i.parts), lane
            continue
        yield from _accesses(i)
        for inner in (getattr(i, "body", ()), getattr(i, "orelse", ())):
            yield from _block(inner)


def _widths(i: p.Load | p.Store) -> list[int]:
    size = i.vtype.dtype.itemsize
    return [n for n in (8, 4, 2) if n * size <= _WIDEST and is_aligned(i.offset, n)]


def _accesses(i: p.Instr) -> Iterator[_Access]:
    match i:
        case p.MatLoad():
            yield "matrices", i.buffer, i.offset, 16, ""
        case p.CopyAsync():
            yield "copy", i.buffer, i.into, i.vtype.lanes * i.vtype.dtype.itemsize, i.lane
        case p.Load() | p.Store():
            kind = "load" if isinstance(i, p.Load) else "store"
            yield kind, i.buffer, i.offset, i.vtype.lanes * i.vtype.dtype.itemsize, i.lane


def _turns(
    a: Alloc, offset: Index, nbytes: int, lane: str, items: dict[str, tuple[int, int]], warp: int
) -> int:  # fmt: skip
    part = _WARP * _WORD // max(_WORD, nbytes)
    most = 0
    for first in range(0, _WARP, part):
        words: dict[int, set[int]] = {}
        for item in range(first, first + part):
            number = warp * _WARP + item
            env = dict.fromkeys(offset.names(), 0)
            env |= {v: number // inner % count for v, (inner, count) in items.items() if v in env}
            start = _byte(a, offset.evaluate(env | ({lane: 0} if lane in env else {})))
            for word in range(start // _WORD, (start + nbytes - 1) // _WORD + 1):
                words.setdefault(word % _BANKS, set()).add(word)
        most = max(most, *map(len, words.values()))
    return most


def _byte(a: Alloc, element: int) -> int:
    """Where an element lies: chunks of 16 bytes of swizzled rows have changed places."""
    at = element * a.dtype.itemsize
    if not a.swizzled:
        return at
    chunk, within = divmod(at, 16)
    row = at // a.swizzled
    others = row // max(1, 128 // a.swizzled) % min(8, a.swizzled // 16)
    return (chunk ^ others) * 16 + within
