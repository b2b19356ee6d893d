"""Finds when every condition of a region holds, whatever its own loops do.

Then the region is emitted without them, and once more with them for the iterations at the edge
(docs/decisions/0004-interior-branches.md).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tunegrad.ir.expr import Inside, leaves
from tunegrad.ir.expr import Load as ExprLoad
from tunegrad.ir.index import ALWAYS, Range, Valid, as_index
from tunegrad.ir.kernel import Kernel, Store, memoized
from tunegrad.ir.looptree import LoopTree

from .over import Over
from .shape import AxisShape

__all__ = ["interior"]


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
            if isinstance(x, ExprLoad | Inside):
                found[i, x.param if isinstance(x, ExprLoad) else "", x.valid] = None
    return tuple([c for c in found if c[2].ranges])
