"""Stores through shared memory: the item that holds a sum passes it to the item that stores its
neighbours.

for each slice of the group's results:
    barrier                                         but before the first one
    slice[row, column] = sum                        what each item holds
    barrier
    for q, run by run, shared out over the items:
        sums = slice[q // runs, run of columns]
        out = epilogue(sums)                        a run of results side by side
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product

from tunegrad.ir.index import ALWAYS, Index, Range, Valid, as_index, var
from tunegrad.ir.kernel import Store
from tunegrad.ir.looptree import Loop, LoopKind, LoopTree
from tunegrad.ir.program import Alloc, Barrier, For, If

from ..epilogues import StagedEpilogue
from .builder import Builder
from .copies import this_item
from .values import Point, Result, Values, fix, fix_valid, known

__all__ = ["slice_alloc", "store_by_slices"]

Sums = Mapping[tuple[str, Point], Result]
ValuesAt = Callable[[int, dict[str, Index], frozenset[str]], Values]
"""The values of a stage where loops are fixed, and conditions are known to hold."""


def slice_alloc(e: StagedEpilogue) -> Alloc:
    """The shared memory of a slice."""
    return Alloc(e.buffer, e.reduce.dtype, e.size, "shared")


def store_by_slices(
    tree: LoopTree, b: Builder, e: StagedEpilogue, sums: Sums, values_at: ValuesAt
) -> None:
    """All stores of a tree, whose items hold ``sums``."""
    registers = [x.name for x in tree.shared_registers]
    mine = [x for x in e.columns if x.name in registers]
    again = any(x.kind is LoopKind.SERIAL and x.extent > 1 for x in tree.outer)
    for n, here in enumerate(_points(e.slices)):
        if n or again:
            b.add(Barrier())
        for there in _points(mine):
            at = dict(here + there)
            point = tuple((n, at[n]) for n in registers if n in at)
            row, column = (fix(i, point) for i in e.held())
            value = known(sums[e.reduce.name, point])
            b.store(e.buffer, e.place(row, column), ALWAYS, value, e.reduce.dtype, "", 1)
        b.add(Barrier())
        _finish(tree, b, e, here, values_at)


def _points(loops: list[Loop] | tuple[Loop, ...]) -> list[Point]:
    found = product(*([(x.name, v) for v in range(x.extent)] for x in loops))
    return [tuple(p) for p in found]


def _finish(
    tree: LoopTree, b: Builder, e: StagedEpilogue, here: Point, values_at: ValuesAt
) -> None:
    """The runs of one slice, shared out over the items of the group."""
    items, me = this_item(tree)
    rounds = -(-e.runs // items)
    name, lane = f"{e.buffer}.q", f"{e.buffer}.c"
    q = var(name, rounds) * items + me
    across = e.width // e.run
    row, first = q // across, q % across * e.run
    b.open()
    for i, s in enumerate(tree.kernel.stages):
        if isinstance(s, Store):
            _store(b, e, (i, s), (row, first + var(lane, e.run)), (here, lane), values_at)
    body = b.close()
    if not body:
        return
    if q.hi >= e.runs:
        body = (If(Valid((Range(row, 0, e.height),)), body),)
    if rounds > 1:
        body = (For(name, rounds, (as_index(rounds),), body),)
    for instr in body:
        b.add(instr)


def _store(
    b: Builder, e: StagedEpilogue, stage: tuple[int, Store], at: tuple[Index, Index],
    within: tuple[Point, str], values_at: ValuesAt,
) -> None:  # fmt: skip
    """A run of results: what is in shared memory first, then the values, then the stores, so that
    neighbours are one access. A condition that holds for a whole run is asked once.
    """
    i, s = stage
    here, lane = within
    env = e.loops_at(*at)
    values = values_at(i, env, frozenset())
    kernel = values.tree.kernel
    axes = {a.name for a in kernel.axes}
    asked = tuple(values.masks(axes) & values.needed(s.valid))
    whole = {r.key: _at(Valid((r,)), env, here) for r in asked}
    whole = {k: v for k, v in whole.items() if lane not in v.names()}
    if any(v.never for v in whole.values()):  # rows past the last one, of a tile that is not whole
        return
    around = Valid([r for v in whole.values() for r in v])
    b.open()
    values = values_at(i, env, frozenset(whole))
    values.registers = frozenset((*(n for n, _ in here), lane))
    points = [(*here, (lane, c)) for c in range(e.run)]
    for p in points:
        offset = fix(e.place(*at), p)
        found = b.load(e.buffer, offset, ALWAYS, e.reduce.dtype, "", 1)
        values.results[e.reduce.name, p] = found
    made = [values.emit(s.expr, p, None) for p in points]
    layout, dtype = kernel.param(s.param).layout, kernel.param(s.param).dtype
    # over the loops first: divisions that a fused loop makes are gone there, and stay so
    target = layout.offset([x.substitute(dict(values.tree.index)) for x in s.index]).substitute(env)
    valid = (values.masks(axes) & values.needed(s.valid)).substitute(env)
    for p, value in zip(points, made, strict=True):
        b.store(s.param, fix(target, p), fix_valid(valid, p), value, dtype, "", 1)
    body = b.close()
    for instr in body if around.always else (If(around, body),):
        b.add(instr)


def _at(valid: Valid, env: dict[str, Index], here: Point) -> Valid:
    return fix_valid(valid.substitute(env), here)
