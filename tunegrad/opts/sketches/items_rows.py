"""Item rows: kernels of several stages over one row each (softmax, layer norm) on a GPU.

    group                                             item
    for rows0 on work-groups:                         for rows0 on work-groups:
      for rows1 on work-items:                          for rows1 on work-items:
        each reduction: shared out over work-items        every stage in turn
        the store: its own axis on the same ones

Where a row is contiguous, the work-items of a group read and store it side by side; where neighbouring rows are, an
item has a row.
"""

from __future__ import annotations

from tunegrad.ir.kernel import Axis, Kernel, Reduce, Stage
from tunegrad.ir.target import Target

from ..actions import Action, Group, Local, Thread, Vectorize
from ..choosing import Recorder
from .analysis import output_stride
from .item_counts import GROUP_ITEMS, item_counts, nearest, powers
from .rows import lane_axis
from .tiling import Levels

__all__ = ["sketch_item_rows"]

_TERMS = 4
"""Terms that each work-item of a row should have: with fewer, most of the time goes into combining."""


def sketch_item_rows(kernel: Kernel, target: Target, shared: list[Axis], ask: Recorder) -> tuple[Action, ...]:
    """Asks for the decisions of the sketch and returns its actions."""
    axes = [lane_axis(kernel, s, [a for a in s.axes if a.extent > 1]) for s in kernel.stages]
    longest = max((a.extent for a in axes if a is not None), default=1)
    if not shared and longest == 1:
        return ()
    forms = ["item", "group"] if shared and longest > 1 else ["item"] if shared else ["group"]
    beside = bool(shared) and output_stride(kernel, shared[-1].name) == 1
    form = ask.pick("rows.form", forms, 0 if beside else len(forms) - 1)
    if form == "item":
        return _item(target, kernel, shared, ask)
    return _group(target, kernel, shared, axes, longest, ask)


def _item(target: Target, kernel: Kernel, shared: list[Axis], ask: Recorder) -> tuple[Action, ...]:
    """A work-item for each point of the shared axes."""
    levels = Levels(kernel)
    counts = item_counts(target, shared[-1].extent)
    inner = levels.split(shared[-1].name, (ask.pick("items", counts, nearest(counts, 64)),))
    return (*levels.actions, *_rows(levels, shared, inner))


def _group(
    target: Target, kernel: Kernel, shared: list[Axis], axes: list[Axis | None], longest: int, ask: Recorder
) -> tuple[Action, ...]:
    """Work-items for each row, and several rows a group where they are short."""
    levels = Levels(kernel)
    counts = item_counts(target, longest)
    wanted = max(n for n in powers(GROUP_ITEMS) if n <= max(2, longest // _TERMS))
    items = ask.pick("row.items", counts, nearest(counts, wanted))
    inner = ["", ""]
    if shared:
        rows = item_counts(target, shared[-1].extent, items)
        spread = max(1, shared[-1].extent // max(1, target.threads))
        inner = levels.split(
            shared[-1].name, (ask.pick("rows", rows, nearest(rows, min(spread, GROUP_ITEMS // 2 // items))),)
        )
    kinds: list[Action] = []
    for i, (stage, axis) in enumerate(zip(kernel.stages, axes, strict=True)):
        if axis is not None:
            kinds += _stage(target, kernel, i, stage, axis, items, levels, ask)
    return (*levels.actions, *_rows(levels, shared, inner), *kinds)


def _rows(levels: Levels, shared: list[Axis], inner: list[str]) -> list[Action]:
    groups = [*(a.name for a in shared[:-1]), *([inner[0]] if inner[0] else [])]
    actions: list[Action] = [Thread(x) for x in groups if levels.extent(x) > 1]
    return [*actions, Local(inner[1])] if levels.extent(inner[1]) > 1 else actions


def _stage(
    target: Target, kernel: Kernel, i: int, stage: Stage, axis: Axis, items: int, levels: Levels, ask: Recorder
) -> list[Action]:
    """A stage's own axis on the work-items: those of a store with a vector each, where a row has enough."""
    mine = min(items, max(n for n in powers(items) if n < 2 * axis.extent))
    if isinstance(stage, Reduce):
        inner = levels.split(axis.name, (mine,))[1]
        return [Group(inner)] if levels.extent(inner) > 1 else []
    width = target.lanes(kernel.param(stage.param).dtype.itemsize)
    vectors = [1, width] if width > 1 and axis.extent >= mine * width else [1]
    each = ask.pick(f"stage{i}.each", vectors, len(vectors) - 1 if axis.extent % width == 0 else 0)
    names = levels.split(axis.name, (mine * each, each))
    actions: list[Action] = [Local(names[1])] if levels.extent(names[1]) > 1 else []
    return [*actions, Vectorize(names[2])] if levels.extent(names[2]) > 1 else actions
