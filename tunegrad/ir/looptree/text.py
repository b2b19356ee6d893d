"""A loop tree as text: its loops as nested ``for``, and what is staged where."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..kernel import Reduce, Stage, Store
from .loops import Loop, LoopKind, TileLoops

if TYPE_CHECKING:
    from .tree import LoopTree

__all__ = ["lines"]


def lines(t: LoopTree) -> Iterator[str]:
    """The lines of ``t``, outer loops first."""
    if t.epilogue:
        yield f"sums go through shared memory to who stores neighbours of {t.epilogue}"
    if t.pipelined is not None:
        yield f"copies of {t.pipelined[0]} run ahead, {t.pipelined[1]} slots"
    if t.matrix is not None:
        m = t.matrix
        if isinstance(m, TileLoops):
            yield f"{m.unit} on {m.m} x {m.n} x {m.k}"
        else:
            yield f"{m.unit} on {m.high}, {m.row} x {m.column}, {m.pair} x {m.k}"
    yield from (f"prefetch {name}, {ahead} bytes ahead" for name, ahead in t.prefetched)
    yield from (f"stream {name}" for name in t.streamed)
    yield from (f"keep the values of stage {i}" for i in t.kept)
    pad = ""
    for s in t.staged:
        if s.at in ("", "load"):
            yield (
                f"copy {s.param} -> {s.buffer} "
                f"({', '.join(s.layout) or 'region'}){' once, at load' if s.at else ''}"
            )
    for x in t.outer:
        how = (
            f" on {x.count} threads"
            if x.kind is LoopKind.THREAD
            else ""
            if x.kind is LoopKind.SERIAL
            else f" {x.kind}"
        )
        yield f"{pad}for {x.name} in {x.extent}{how}:"
        pad += "    "
        for s in t.staged:
            if s.at == x.name:
                yield f"{pad}copy {s.param} -> {s.buffer} ({', '.join(s.layout) or 'region'})"
    registers = t.shared_registers
    if registers:
        yield f"{pad}# registers: " + " x ".join(
            f"{x.name}:{x.extent}{'v' if x.kind is LoopKind.VECTOR else ''}" for x in registers
        )
    for i, stage in enumerate(t.kernel.stages):
        yield from _stage_lines(t, i, stage, pad)


def _stage_lines(t: LoopTree, i: int, s: Stage, pad: str) -> Iterator[str]:
    own, inner = t.own(i), pad
    around = [x for x in own if isinstance(s, Reduce) and not (x.reduce or x.kind.is_register)]
    for x in around:
        yield from _loop_lines(t, x, inner)
        inner += "    "
    name = f"{s.name}{_place(s)}" if isinstance(s, Reduce) else f"{s.param}{_place(s)}"
    if isinstance(s, Reduce):
        yield f"{inner}{name} = identity" + (f" or {t.kernel.stores[0].param}" if t.partial else "")
    for x in own[len(around) :]:
        yield from _loop_lines(t, x, inner)
        inner += "" if x.kind.is_register else "    "
    yield f"{inner}{name} = " + (
        f"{s.op}({name}, {s.expr})" if isinstance(s, Reduce) else f"{s.expr}"
    )


def _place(s: Stage) -> str:
    """The place in a row, or in an output, that a stage writes."""
    if isinstance(s, Store):
        return f"[{', '.join(x.key for x in s.index)}]"
    return f"[{', '.join(a.name for a in s.row)}]" if s.rows else ""


def _loop_lines(t: LoopTree, x: Loop, pad: str) -> Iterator[str]:
    if x.kind.is_register:
        yield f"{pad}# {x.kind} {x.name}:{x.extent}"
        return
    yield f"{pad}for {x.name} in {x.extent}{' local' if x.kind is LoopKind.LOCAL else ''}:"
    for staged in t.staged:
        if staged.at == x.name:
            yield (
                f"{pad}    copy {staged.param} -> {staged.buffer} "
                f"({', '.join(staged.layout) or 'region'})"
            )
