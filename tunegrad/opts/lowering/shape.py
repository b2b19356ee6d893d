"""Axes as loops: their indices over loops, and limits where tiles do not divide an axis.

An axis whose loops cover more than its extent has a tail. Three ways to keep inside:

    stop   serial loops count to ``min(extent, ceil((E - base) / step))``
    split  register loops form the finest tile t of the axis, so the last one always holds E mod t:
           the code is written twice, for a full tile and for that remainder
    mask   everything else (padded axes, work-items, register loops that are not the finest): loads
           give zero, updates are dropped, stores are skipped where the axis is past its extent
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod

from tunegrad.ir.expr import Inside, Load, leaves
from tunegrad.ir.index import ALWAYS, Index, Range, Valid, as_index
from tunegrad.ir.kernel import Kernel, Store, memoized
from tunegrad.ir.looptree import Loop, LoopKind, LoopTree

__all__ = [
    "AxisShape",
    "Over",
    "axis_shapes",
    "interior",
    "loop_stops",
]


class Over:
    """Indices, conditions and offsets over loops.

    Mutable: it remembers them by the identity of what they are of.
    """

    def __init__(self, tree: LoopTree) -> None:
        self.axes = dict(tree.index)
        self._layouts = {p.name: p.layout for p in tree.kernel.params}
        self._indices: dict[int, tuple[Index, Index]] = {}
        self._conditions: dict[int, tuple[Valid, Valid]] = {}
        self._offsets: dict[int, tuple[Load, Index, frozenset[str]]] = {}

    def index(self, index: Index) -> Index:
        """An index over axes as one over loops."""
        found = self._indices.get(id(index))
        # the entry keeps what it is of, so that nothing else can have its identity
        if found is None:
            found = self._indices[id(index)] = index, index.substitute(self.axes)
        return found[1]

    def condition(self, valid: Valid) -> Valid:
        """A condition over axes as one over loops."""
        if not valid.ranges:
            return valid
        found = self._conditions.get(id(valid))
        if found is None:
            found = self._conditions[id(valid)] = valid, valid.substitute(self.axes)
        return found[1]

    def offset(self, x: Load) -> tuple[Index, frozenset[str]]:
        """The element that a load reads, over loops, and the axes that say so."""
        found = self._offsets.get(id(x))
        if found is None:
            offset = self._layouts[x.param].offset([self.index(i) for i in x.index])
            axes = frozenset[str]().union(*[i.names() for i in x.index])
            found = self._offsets[id(x)] = x, offset, axes
        return found[1], found[2]


@dataclass(frozen=True, slots=True)
class AxisShape:
    """An axis with a tail.

    ``tile`` is the finest register tile, ``rest`` what the last one holds, 0 when it divides.
    """

    axis: str
    extent: int
    mode: str
    registers: tuple[Loop, ...] = ()
    tile: int = 1
    rest: int = 0


def axis_shapes(tree: LoopTree) -> dict[str, AxisShape]:
    """Every axis with a tail."""
    shapes = {}
    for axis, index in tree.index:
        extent = tree.extent(axis)
        if index.hi + 1 == extent:
            continue
        loops = [x for x in tree.loops if axis in x.axes and x.extent > 1]
        registers = tuple(x for x in loops if x.kind.is_register)
        tile = prod(x.extent for x in registers)
        steps = [index.coefficient(x.name) for x in loops if not x.kind.is_register]
        masked = (
            axis in tree.padded
            or any(len(x.axes) > 1 or x.kind is LoopKind.LOCAL for x in loops)
            or (tree.target.has_work_items and any(x.kind is LoopKind.THREAD for x in loops))
            or any(s is None or s < tile for s in steps)
        )
        if masked:
            shapes[axis] = AxisShape(axis, extent, "mask")
        else:
            shapes[axis] = AxisShape(axis, extent, "split", registers, tile, extent % tile)
    return shapes


def loop_stops(
    tree: LoopTree, shapes: dict[str, AxisShape], loop: Loop, *, whole: bool
) -> tuple[Index, ...]:
    """The trip count of a loop, as the least of these.

    ``whole`` leaves a partial register tile to the caller.
    """
    axis = loop.axes[0]
    shape = shapes.get(axis)
    if shape is None or shape.mode == "mask" or len(loop.axes) > 1:
        return (as_index(loop.extent),)
    index = tree.axis_index(axis)
    step = index.coefficient(loop.name) or 1
    finer = [
        x.name for x in tree.loops if x.axes == (axis,) and (index.coefficient(x.name) or 0) <= step
    ]
    left = shape.extent - index.substitute(dict.fromkeys(finer, as_index(0)))
    rounded = left // step if whole and step == shape.tile else (left + (step - 1)) // step
    if rounded.is_const:
        return (as_index(max(0, min(loop.extent, rounded.const))),)
    return (
        (as_index(loop.extent),) if rounded.lo >= loop.extent else (as_index(loop.extent), rounded)
    )


def interior(
    tree: LoopTree,
    plans: Collection[tuple[int, str]],
    shapes: Mapping[str, AxisShape],
    over: Over,
) -> tuple[Valid, frozenset[str]]:
    """The condition under which conditions of the region hold whatever its own loops do, and those
    conditions: all but those of which some point of the region is always outside, as of a row in
    lanes that is padded.

    Never with work-items: a branch may not stand around barriers.

    Then the region is emitted without them, and once more with them for the iterations at the edge
    (docs/decisions/0004-interior-branches.md).
    """
    if tree.target.has_work_items:
        return ALWAYS, frozenset()
    condition = over.condition
    outer = {x.name for x in tree.outer}
    found: dict[str, Range] = {}
    for i, param, valid in _conditions(tree.kernel):
        if (i, param) not in plans:
            found.update((r.key, r) for r in condition(valid))
    for shape in shapes.values():
        if shape.mode == "mask":
            r = Range(tree.axis_index(shape.axis), 0, shape.extent)
            found[Valid((r,)).key] = r
    ranges, held = [], list[str]()
    for key, r in found.items():
        zero = {n: as_index(0) for n in r.index.names() - outer}
        base = r.index.substitute(zero)
        rest = r.index - base
        if rest.names() & outer:
            return ALWAYS, frozenset()
        whole = Range(base, r.lo - rest.lo, r.hi - rest.hi)
        if not Valid((whole,)).never:
            ranges.append(whole)
            held.append(key)
    return Valid(ranges), frozenset(held)


@memoized(64)
def _conditions(kernel: Kernel) -> tuple[tuple[int, str, Valid], ...]:
    """The conditions of a kernel, with the stage that asks, and the parameter of a load ("" where
    it is none).
    """
    found: dict[tuple[int, str, Valid], None] = {}
    for i, stage in enumerate(kernel.stages):
        if isinstance(stage, Store):
            found[i, "", stage.valid] = None
        for x in leaves(stage.expr):
            if isinstance(x, Load | Inside):
                found[i, x.param if isinstance(x, Load) else "", x.valid] = None
    return tuple([c for c in found if c[2].ranges])
