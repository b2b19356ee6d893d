"""Item reduce: sums, means, matrix-vector products on a GPU: no operand that outputs share.

    rows: the reduction is contiguous                columns: outputs are contiguous
    for rows0 on work-groups:                        for lanes0 on work-groups:
      for rows1 on work-items:                         for k0 on work-items:
        for k0:                                          for lanes1 on work-items:
          for k1 on work-items:                            for k1:
            v0 = v0 + ...                                    v0 = v0 + ...
      combined in shared memory                          combined in shared memory

In both, neighbouring work-items read neighbouring elements; in rows several at once, where warps
exchange their shares.
"""

from __future__ import annotations

from dataclasses import dataclass

from tunegrad.ir.kernel import Axis, Kernel
from tunegrad.ir.target import Target

from ..actions import Action, Group, Local, Reorder, Thread, Unroll
from ..choosing import Recorder
from .analysis import accesses, contiguous_itemsize, output_stride
from .item_counts import GROUP_ITEMS, TERMS, item_counts, nearest, row_items, wide_counts
from .tiling import Levels

__all__ = ["sketch_reduce"]

_LANES = 32
"""Work-items along the outputs of columns: a warp reads a line of a cache."""


def sketch_reduce(
    kernel: Kernel, target: Target, reduces: list[Axis], ask: Recorder
) -> tuple[Action, ...]:  # fmt: skip
    """Asks for the decisions of the sketch and returns its actions."""
    found = accesses(kernel, kernel.reduces[0])

    def strided(a: Axis) -> tuple[int, int]:
        return sum(x.stride(a.name) not in (0, 1) for x in found), -a.extent

    axis = ask.pick("group.axis", sorted(reduces, key=strided))
    shared = [a for a in kernel.axes if a.extent > 1]
    made = _Reduce(kernel, target, ask, axis, Levels(kernel))
    if not shared:
        return made.rows(None)
    lane = min(shared, key=lambda a: output_stride(kernel, a.name) or 1 << 40)
    largest = max(found, key=lambda x: x.nbytes, default=None)
    beside = largest is not None and largest.stride(lane.name) == 1
    form = ask.pick("group.form", ["rows", "columns"], int(beside))
    return made.rows(lane) if form == "rows" else made.columns(lane)


@dataclass(frozen=True, slots=True)
class _Reduce:
    """One kernel, the reduce axis to share out, and the levels that axes were split into so far."""

    kernel: Kernel
    target: Target
    ask: Recorder
    axis: Axis
    levels: Levels

    def rows(self, lane: Axis | None) -> tuple[Action, ...]:
        """Work-items along the reduction, side by side; several outputs where it is short."""
        axis, ask, target = self.axis, self.ask, self.target
        sizes = [n for n in item_counts(target, axis.extent) if n > 1] or [1]
        items = ask.pick("group.size", sizes, nearest(sizes, row_items(target, axis.extent)))
        outer, inner = "", ""
        if lane is not None:
            counts = item_counts(target, lane.extent, items)
            most = max(1, self.kernel.points // max(1, target.threads))
            few = nearest(counts, max(1, min(most, GROUP_ITEMS // 4 // items)))
            outer, inner = self.levels.split(lane.name, (ask.pick("group.rows", counts, few),))
        size = contiguous_itemsize(self.kernel, self.kernel.reduces[0], axis)
        wide, usual = wide_counts(target, axis.extent, items, size)
        each = ask.pick("group.each", wide, usual)
        last, side = self.levels.split(axis.name, (items * each, each))[1:]
        made = [*self.levels.actions, *self._threads(lane, outer)]
        made += [Local(inner)] if self.levels.extent(inner) > 1 else []
        made += [Unroll(side)] if each > 1 and self.levels.extent(side) > 1 else []
        return (*made, Group(last)) if self.levels.extent(last) > 1 else tuple(made)

    def columns(self, lane: Axis) -> tuple[Action, ...]:
        """Work-items along the outputs, and several of those rows, each with a part of the sum."""
        axis, ask, target = self.axis, self.ask, self.target
        counts = item_counts(target, lane.extent)
        count = ask.pick("group.lanes", counts, nearest(counts, _LANES))
        outer, inner = self.levels.split(lane.name, (count,))
        parts = item_counts(target, axis.extent, count)
        wanted = max(1, min(GROUP_ITEMS // count, axis.extent // TERMS))
        part = ask.pick("group.parts", parts, nearest(parts, wanted))
        last, inside = self.levels.split(axis.name, (-(-axis.extent // part),))
        made: list[Action] = list(self.levels.actions)
        if self.levels.extent(last) > 1:
            rest = [a.name for a in self.kernel.reduces[0].axes if a is not axis]
            order = (*self._groups(lane, outer), last, inner, *rest, inside)
            made += [Group(last), Reorder(tuple(x for x in order if x))]
        made += self._threads(lane, outer)
        return (*made, Local(inner)) if self.levels.extent(inner) > 1 else tuple(made)

    def _groups(self, lane: Axis | None, outer: str) -> list[str]:
        return [*(a.name for a in self.kernel.axes if a is not lane), *([outer] if outer else [])]

    def _threads(self, lane: Axis | None, outer: str) -> list[Action]:
        return [Thread(x) for x in self._groups(lane, outer) if self.levels.extent(x) > 1]
