"""Item reduce: reductions without operands that outputs share, on a GPU: sums, means, matrix-vector products.

    rows: the reduction is contiguous                columns: outputs are contiguous
    for rows0 on work-groups:                        for lanes0 on work-groups:
      for rows1 on work-items:                         for k0 on work-items:
        for k0:                                          for lanes1 on work-items:
          for k1 on work-items:                            for k1:
            v0 = v0 + ...                                    v0 = v0 + ...
      combined in shared memory                          combined in shared memory

In both, neighbouring work-items read neighbouring elements.
"""

from __future__ import annotations

from tunegrad.ir.kernel import Axis, Kernel
from tunegrad.ir.target import Target

from ..actions import Action, Group, Local, Reorder, Thread
from ..choosing import Recorder
from .analysis import accesses, output_stride
from .item_counts import GROUP_ITEMS, item_counts, nearest
from .tiling import Levels

__all__ = ["sketch_reduce"]

_TERMS = 4
"""Terms that each work-item should have: with fewer, most of the time goes into combining."""

_LANES = 32
"""Work-items along the outputs of columns: a warp reads a line of a cache."""


def sketch_reduce(
    kernel: Kernel, target: Target, shared: list[Axis], reduces: list[Axis], ask: Recorder
) -> tuple[Action, ...]:
    """Asks for the decisions of the sketch and returns its actions."""
    found = accesses(kernel, kernel.reduces[0])

    largest = max(found, key=lambda x: x.nbytes, default=None)

    def strided(a: Axis) -> tuple[int, int]:
        return sum(x.stride(a.name) not in (0, 1) for x in found), -a.extent

    axis = ask.pick("group.axis", sorted(reduces, key=strided))
    sizes = [n for n in item_counts(target, axis.extent) if n > 1]
    if not shared:
        return _rows(target, kernel, [], None, axis, sizes, ask)
    lane = min(shared, key=lambda a: output_stride(kernel, a.name) or 1 << 40)
    beside = largest is not None and largest.stride(lane.name) == 1
    forms = ["rows", "columns"]
    if ask.pick("group.form", forms, int(beside)) == "rows":
        return _rows(target, kernel, shared, lane, axis, sizes, ask)
    return _columns(target, kernel, lane, axis, ask)


def _rows(
    target: Target, kernel: Kernel, shared: list[Axis], lane: Axis | None, axis: Axis, sizes: list[int], ask: Recorder
) -> tuple[Action, ...]:
    """Work-items along the reduction, those of one output side by side; several outputs where they are short."""
    levels = Levels(kernel)
    wanted = min(GROUP_ITEMS, max(2, axis.extent // _TERMS))
    items = ask.pick("group.size", sizes, nearest(sizes, wanted)) if sizes else 1
    outer, inner = "", ""
    if lane is not None:
        counts = item_counts(target, lane.extent, items)
        spread = max(1, kernel.points // max(1, target.threads))
        rows = ask.pick("group.rows", counts, nearest(counts, max(1, min(spread, GROUP_ITEMS // 4 // items))))
        outer, inner = levels.split(lane.name, (rows,))
    last = levels.split(axis.name, (items,))[1]
    groups = [*(a.name for a in shared if a is not lane), *([outer] if outer else [])]
    actions = [*levels.actions, *(Thread(x) for x in groups if levels.extent(x) > 1)]
    actions += [Local(inner)] if levels.extent(inner) > 1 else []
    return (*actions, Group(last)) if levels.extent(last) > 1 else tuple(actions)


def _columns(
    target: Target, kernel: Kernel, lane: Axis, axis: Axis, ask: Recorder
) -> tuple[Action, ...]:
    """Work-items along the outputs, side by side, and several of those rows, each with a part of the reduction."""
    levels = Levels(kernel)
    counts = item_counts(target, lane.extent)
    count = ask.pick("group.lanes", counts, nearest(counts, _LANES))
    outer, inner = levels.split(lane.name, (count,))
    parts = item_counts(target, axis.extent, count)
    wanted = max(1, min(GROUP_ITEMS // count, axis.extent // _TERMS))
    part = ask.pick("group.parts", parts, nearest(parts, wanted))
    last, inside = levels.split(axis.name, (-(-axis.extent // part),))
    groups = [*(a.name for a in kernel.axes if a is not lane), *([outer] if outer else [])]
    rest = [*(a.name for a in kernel.reduces[0].axes if a is not axis), *([inside] if inside else [])]
    actions: list[Action] = list(levels.actions)
    if levels.extent(last) > 1:
        actions += [Group(last), Reorder((*groups, last, *([inner] if inner else []), *rest))]
    actions += [Thread(x) for x in groups if levels.extent(x) > 1]
    return (*actions, Local(inner)) if levels.extent(inner) > 1 else tuple(actions)
