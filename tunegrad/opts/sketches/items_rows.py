"""Item rows: kernels of several stages over one row each (softmax, layer norm) on a GPU.

    group                                             item
    for rows0 on work-groups:                         for rows0 on work-groups:
      for rows1 on work-items:                          for rows1 on work-items:
        each reduction: shared out over work-items        every stage in turn
        the store: its own axis on the same ones

Where a row is contiguous, the work-items of a group read and store it side by side, each several
neighbours at once where warps exchange their shares; where neighbouring rows are, an item has a
row. Each stage reads the row: where an item has 16 elements of it, in loops that are unrolled, the
compiler keeps them in registers, else they are in a cache after the first time.
"""

from __future__ import annotations

from dataclasses import dataclass

from tunegrad.ir.kernel import Axis, Kernel, Reduce, Stage
from tunegrad.ir.target import Target

from ..actions import Action, Group, Local, Thread, Unroll, Vectorize
from ..choosing import Recorder
from .analysis import contiguous_itemsize, output_stride
from .item_counts import GROUP_ITEMS, item_counts, nearest, powers, row_items, wide_counts
from .rows import lane_axis
from .tiling import Levels

__all__ = ["sketch_item_rows"]


def sketch_item_rows(kernel: Kernel, target: Target, ask: Recorder) -> tuple[Action, ...]:
    """Asks for the decisions of the sketch and returns its actions."""
    shared = [a for a in kernel.axes if a.extent > 1]
    axes = [lane_axis(kernel, s, _own(s)) for s in kernel.stages]
    longest = max((a.extent for a in axes if a is not None), default=1)
    if not shared and longest == 1:
        return ()
    alone = bool(shared) and not any(r.rows for r in kernel.reduces)  # rows are the group's
    forms = [*(["item"] if alone else []), *(["group"] if longest > 1 else [])]
    beside = bool(shared) and output_stride(kernel, shared[-1].name) == 1
    form = ask.pick("rows.form", forms or ["group"], 0 if beside else max(0, len(forms) - 1))
    rows = _Rows(kernel, target, ask, shared, Levels(kernel))
    return rows.item() if form == "item" else rows.group(axes, longest)


def _own(s: Stage) -> list[Axis]:
    """The axes that work-items may share out: those of a row, where a stage makes one."""
    axes = s.row or s.axes if isinstance(s, Reduce) else s.axes
    return [a for a in axes if a.extent > 1]


@dataclass(frozen=True, slots=True)
class _Rows:
    """One kernel, its shared axes, and the levels that its axes were split into so far."""

    kernel: Kernel
    target: Target
    ask: Recorder
    shared: list[Axis]
    levels: Levels

    def item(self) -> tuple[Action, ...]:
        """A work-item for each point of the shared axes."""
        last = self.shared[-1]
        counts = item_counts(self.target, last.extent)
        items = self.ask.pick("items", counts, nearest(counts, GROUP_ITEMS // 4))
        placed = self._placed(self.levels.split(last.name, (items,)))
        return (*self.levels.actions, *placed)

    def group(self, axes: list[Axis | None], longest: int) -> tuple[Action, ...]:
        """Work-items for each row, and several rows a group where they are short."""
        counts = item_counts(self.target, longest)
        items = self.ask.pick("row.items", counts, nearest(counts, row_items(self.target, longest)))
        loops = ["", ""]
        if self.shared:
            last = self.shared[-1]
            rows = item_counts(self.target, last.extent, items)
            most = max(1, last.extent // max(1, self.target.threads))
            few = nearest(rows, min(most, GROUP_ITEMS // 2 // items))
            loops = self.levels.split(last.name, (self.ask.pick("rows", rows, few),))
        kinds: list[Action] = []
        for i, (stage, axis) in enumerate(zip(self.kernel.stages, axes, strict=True)):
            if axis is not None:
                kinds += self._stage(i, stage, axis, items)
        return (*self.levels.actions, *self._placed(loops), *kinds)

    def _placed(self, loops: list[str]) -> list[Action]:
        groups = [*(a.name for a in self.shared[:-1]), *([loops[0]] if loops[0] else [])]
        made: list[Action] = [Thread(x) for x in groups if self.levels.extent(x) > 1]
        return [*made, Local(loops[1])] if self.levels.extent(loops[1]) > 1 else made

    def _stage(self, i: int, stage: Stage, axis: Axis, items: int) -> list[Action]:
        """A stage's own axis on the work-items; a vector each of a store where a row has enough."""
        folded = any(r.rows for r in self.kernel.reduces)
        most = axis.extent if folded else 2 * axis.extent - 1  # a row and its readers differ
        mine = min(items, max(n for n in powers(items) if n <= most))
        if isinstance(stage, Reduce) and stage.rows:
            inner = self.levels.split(axis.name, (mine,))[1]
            return [Local(inner)] if self.levels.extent(inner) > 1 else []
        if isinstance(stage, Reduce):
            size = contiguous_itemsize(self.kernel, stage, axis)
            wide, usual = wide_counts(self.target, axis.extent, mine, size)
            each = self.ask.pick(f"stage{i}.each", wide, usual)
            inner, side = self.levels.split(axis.name, (mine * each, each))[1:]
            found: list[Action] = []
            found += [Unroll(side)] if each > 1 and self.levels.extent(side) > 1 else []
            return [*found, Group(inner)] if self.levels.extent(inner) > 1 else found
        width = self.target.lanes(self.kernel.param(stage.param).dtype.itemsize)
        vectors = [1, width] if width > 1 and axis.extent >= mine * width else [1]
        best = len(vectors) - 1 if axis.extent % width == 0 else 0
        each = self.ask.pick(f"stage{i}.each", vectors, best)
        names = self.levels.split(axis.name, (mine * each, each))
        made: list[Action] = [Local(names[1])] if self.levels.extent(names[1]) > 1 else []
        return [*made, Vectorize(names[2])] if self.levels.extent(names[2]) > 1 else made
