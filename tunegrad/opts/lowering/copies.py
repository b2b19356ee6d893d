"""Copies of staged operands: vectors where the source is contiguous, over the team, zero-filled.

Those of a work-group are in ``item_copies``.
"""

from __future__ import annotations

from math import prod

from tunegrad.ir.index import ALWAYS, NEVER, Index, Valid, as_index, var
from tunegrad.ir.looptree import LoopKind, LoopTree
from tunegrad.ir.program import Barrier, For, If, Instr

from ..staging import StagedCopy
from .builder import Builder
from .item_copies import copy_by_items

__all__ = ["copies_ahead", "emit_copies"]


def copies_ahead(
    tree: LoopTree, b: Builder, plans: list[StagedCopy], env: dict[str, Index]
) -> tuple[Instr, ...]:
    """The copies of one iteration of a pipeline, without barriers."""
    b.open()
    for p in plans:
        if p.space != "pack":
            copy_by_items(tree, b, p, env, ahead=tree.target.copies_ahead)
    return b.close()


def emit_copies(
    tree: LoopTree, b: Builder, plans: list[StagedCopy], env: dict[str, Index], again: bool
) -> None:
    """The copies at one place, between barriers where others read them; ``again`` says the place
    runs repeatedly.
    """
    plans = [p for p in plans if p.space != "pack"]
    together = [p for p in plans if p.space != "thread"]
    if together and again:
        b.add(Barrier())
    for p in plans:
        if p.space == "shared":
            copy_by_items(tree, b, p, env)
        else:
            _by_loops(tree, b, p, env)
    if together:
        b.add(Barrier())


def _by_loops(tree: LoopTree, b: Builder, p: StagedCopy, env: dict[str, Index]) -> None:
    """Whole vectors along the last dimension, then what is left of it element by element."""
    offset, valid = p.offset.substitute(env), p.valid.substitute(env)
    if not p.variables:
        _nest(tree, b, p, [], (offset, valid, as_index(0)), ("", 1))
        return
    last, extent = p.variables[-1]
    lanes = _copy_lanes(tree, p, offset, last, extent)
    count = extent // lanes
    lane = f"{last}.v" if lanes > 1 else ""
    step = var(f"{last}.q", count) * lanes + var(lane, lanes) if lanes > 1 else var(last, extent)
    _part(
        tree,
        b,
        p,
        (offset, valid),
        step,
        [(f"{last}.q", count) if lanes > 1 else (last, extent)],
        (lane, lanes),
    )
    rest = extent - count * lanes
    if rest:
        _part(
            tree,
            b,
            p,
            (offset, valid),
            var(f"{last}.r", rest) + count * lanes,
            [(f"{last}.r", rest)],
            ("", 1),
        )


def _part(
    tree: LoopTree, b: Builder, p: StagedCopy, source: tuple[Index, Valid], step: Index,
    innermost: list[tuple[str, int]], vector: tuple[str, int],
) -> None:  # fmt: skip
    """The copy of the elements whose last dimension is ``step``, over the loops ``innermost``."""
    last = p.variables[-1][0]
    target, stride = as_index(0), 1
    for n, e in reversed(p.variables):
        target = target + (step if n == last else var(n, e)) * stride
        stride *= e
    offset, valid = source[0].substitute({last: step}), source[1].substitute({last: step})
    _nest(tree, b, p, [*p.variables[:-1], *innermost], (offset, valid, target), vector)


def _copy_lanes(tree: LoopTree, p: StagedCopy, offset: Index, last: str, extent: int) -> int:
    if not tree.target.has_vector_registers or not last or offset.coefficient(last) not in (0, 1):
        return 1
    lanes = tree.target.lanes(p.dtype.itemsize)
    while lanes > extent:
        lanes //= 2
    return lanes


def _nest(
    tree: LoopTree, b: Builder, p: StagedCopy, loops: list[tuple[str, int]],
    what: tuple[Index, Valid, Index], vector: tuple[str, int],
) -> None:  # fmt: skip
    offset, valid, target = what
    lane, lanes = vector
    loops = [x for x in loops if x[1] > 1]
    threads = prod(x.count for x in tree.loops if x.kind is LoopKind.THREAD)
    inner_names = {loops[-1][0], lane} if loops else {lane}
    outer = (
        Valid(r for r in valid if not (r.index.names() & inner_names)) if not valid.never else NEVER
    )
    inner = Valid(r for r in valid if r.index.names() & inner_names)

    def innermost(fill: bool) -> tuple:  # type: ignore[type-arg]
        b.open()
        b.open()
        value = (
            (b.number(0, p.dtype), 1)
            if fill
            else b.load(p.source, offset, inner, p.dtype, lane, lanes)
        )
        b.store(p.staged.buffer, target, ALWAYS, value, p.dtype, lane, lanes)
        body = b.close()
        if loops and not (len(loops) == 1 and p.space == "team"):
            n, e = loops[-1]
            b.add(For(n, e, (as_index(e),), body))
        else:
            for instr in body:
                b.add(instr)
        return b.close()

    body: tuple = ()  # type: ignore[type-arg]
    if outer.always:
        body = innermost(False)
    elif outer.never:
        body = innermost(True)
    else:
        body = (If(outer, innermost(False), innermost(True)),)
    around = loops if len(loops) == 1 and p.space == "team" else loops[:-1]
    for i, (n, e) in reversed(list(enumerate(around))):
        if i == 0 and p.space == "team" and threads > 1:
            body = (For(n, e, (as_index(e),), body, "thread", threads),)
        else:
            body = (For(n, e, (as_index(e),), body),)
    for instr in body:
        b.add(instr)
