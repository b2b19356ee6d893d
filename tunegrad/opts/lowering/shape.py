"""Limits each loop when tiles do not divide an axis.

An axis whose loops cover more than its extent has a tail. Three ways to keep inside:

    stop   serial loops count to ``min(extent, ceil((E - base) / step))``
    split  register loops form the finest tile t of the axis, so the last one always holds E mod t:
           the code is written twice, for a full tile and for that remainder
    mask   everything else (padded axes, work-items, register loops that are not the finest): loads
           give zero, updates are dropped, stores are skipped where the axis is past its extent
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tunegrad.ir.index import Index, as_index
from tunegrad.ir.looptree import Loop, LoopKind, LoopTree

__all__ = ["AxisShape", "axis_shapes", "loop_stops"]


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
