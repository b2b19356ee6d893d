"""Loop tree to program: the loops around the region, staged copies at their places, buffers.

tree (loops, staged)   -->   for outer loops:            serial, thread or local
                                 copies staged here
                                 region                  see region.py
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tunegrad.ir.looptree import Loop, LoopKind, LoopTree
from tunegrad.ir.program import Alloc, Buffer, For, Pack, Program

from ..staging import StagedCopy, staged_copy
from .builder import Builder
from .copies import emit_copies
from .region import Region
from .values import axis_shapes, loop_stops


def emit(tree: LoopTree, name: str = "kernel") -> Program:
    """The program of a loop tree; whether it has races is the next pass's question.

    Raises IllegalAction when a staged copy no longer fits the loops.
    """
    plans: dict[tuple[int, str], StagedCopy] = {}
    copies = [staged_copy(tree, s) for s in tree.staged]
    for copy in sorted(copies, key=lambda c: c.space != "pack"):  # of a pack: what it is staged to
        plans[(copy.stage, copy.staged.param)] = copy
    b = Builder()
    region = Region(tree, b, plans, axis_shapes(tree))
    emit_copies(tree, b, [p for p in plans.values() if p.staged.at == ""], {}, False)
    _nest(tree, b, region, plans, 0)
    body = b.close()
    allocs = [
        Alloc(p.staged.buffer, p.dtype, p.size, p.space, p.swizzled)
        for p in copies
        if p.space != "pack"
    ]
    packs = [_pack(p) for p in copies if p.space == "pack"]
    params = [Buffer(p.name, p.dtype, p.size, p.role, p.over) for p in tree.kernel.params]
    params += [Buffer(k.name, k.dtype, k.size, "pack") for k in packs]
    unique: dict[str, Alloc] = {}
    for a in (*allocs, *region.allocs):
        if a.name not in unique or unique[a.name].size < a.size:
            unique[a.name] = a
    threads = prod(x.count for x in tree.loops if x.kind is LoopKind.THREAD)
    buffers = tuple(params), tuple(unique.values()), tuple(packs)
    return Program(name, *buffers, body, threads, tree.items)


def _pack(p: StagedCopy) -> Pack:
    names, extents = tuple(n for n, _ in p.variables), tuple(e for _, e in p.variables)
    return Pack(p.staged.buffer, p.load.param, p.dtype, names, extents, p.offset, p.valid)


def _nest(
    tree: LoopTree, b: Builder, region: Region, plans: dict[tuple[int, str], StagedCopy], at: int
) -> None:
    outer = tree.outer
    if at == len(outer):
        region.emit()
        return
    loop = outer[at]
    copies = [p for p in plans.values() if p.staged.at == loop.name]
    again = any(
        x.extent > 1 and x.kind in (LoopKind.SERIAL, LoopKind.THREAD) for x in outer[: at + 1]
    )
    if loop.extent == 1:
        emit_copies(tree, b, copies, {}, again)
        _nest(tree, b, region, plans, at + 1)
        return
    b.open()
    emit_copies(tree, b, copies, {}, again)
    _nest(tree, b, region, plans, at + 1)
    body = b.close()
    stops = loop_stops(tree, region.shapes, loop, whole=False)
    if loop.kind is LoopKind.SERIAL:
        b.add(For(loop.name, loop.extent, stops, body))
    else:
        b.add(_shared_out(tree, loop, For(loop.name, loop.extent, stops, body)))


def _shared_out(tree: LoopTree, loop: Loop, serial: For) -> For:
    """The loop over threads (GPU: work-groups) or work-items."""
    if loop.kind is LoopKind.LOCAL:
        return replace(serial, kind="local", count=loop.extent, inner=tree.item_stride(loop))
    later = tree.loops[tree.position(loop.name) + 1 :]
    inner = prod(x.count for x in later if x.kind is LoopKind.THREAD)
    return replace(serial, kind="thread", count=loop.count, inner=inner)
