"""Rows: kernels of several stages over one row each (softmax, layer norm), or whose store has axes
of its own.

    for rows on threads:
        for each stage:  its own axis over lanes, some vectors at a time;
                         sums folded at the end of the row

or, where the rows themselves are contiguous in memory, lanes along the rows and serial stages.
"""

from __future__ import annotations

from math import prod

from tunegrad.ir.kernel import Axis, Kernel, Reduce, Stage
from tunegrad.ir.target import Target

from ..actions import Action, Group, Upcast, Vectorize
from ..choosing import Recorder
from .analysis import accesses, output_stride
from .hints import keep_hints, memory_hints
from .threads import on_threads
from .tiling import Levels, vector_lanes

__all__ = ["lane_axis", "sketch_rows"]


def sketch_rows(kernel: Kernel, target: Target, ask: Recorder) -> tuple[Action, ...]:
    """Asks for the decisions of the rows sketch and returns its actions."""
    shared = [a for a in kernel.axes if a.extent > 1]
    forms = ["own", "shared"] if shared else ["own"]
    contiguous = (
        bool(shared)
        and output_stride(kernel, shared[-1].name) == 1
        and _loaded_along(kernel, shared[-1].name)
    )
    form = ask.pick("rows.lanes", forms, 1 if contiguous and len(forms) > 1 else 0)
    levels = Levels(kernel)
    kinds: list[Action] = []
    outer = [a.name for a in shared]
    if form == "shared":
        lane = shared[-1]
        width = vector_lanes(lane.extent, target.lanes(4))
        copies = ask.pick("rows.copies", [1, 2, 4])
        names = levels.split(lane.name, (copies * width, width))
        kinds += [Upcast(names[1])] if names[1] and levels.extent(names[1]) > 1 else []
        kinds += [Vectorize(names[2])] if names[2] and levels.extent(names[2]) > 1 else []
        outer = [*outer[:-1], *([names[0]] if names[0] else [])]
    else:
        for i, stage in enumerate(kernel.stages):
            kinds += _stage(kernel, target, i, stage, levels, ask)
    threads = on_threads(outer, levels, target, ask)
    row_bytes = (
        max((4 * prod(a.extent for a in s.axes) for s in kernel.stages), default=0)
        if form == "own"
        else 0
    )
    hints = [
        *keep_hints(kernel, target, ask),
        *memory_hints(kernel, target, ask, row_bytes=row_bytes),
    ]
    return (*levels.actions, *kinds, *threads, *hints)


def _loaded_along(kernel: Kernel, axis: str) -> bool:
    """Return True where steps of ``axis`` are of one element in as many loads as they are longer in
    others: the statistics of rows are contiguous, too, but their loads walk along the rows.
    """
    strides = [x.stride(axis) for s in kernel.stages for x in accesses(kernel, s)]
    return strides.count(1) >= sum(s not in (0, 1) for s in strides)


def _stage(
    kernel: Kernel, target: Target, i: int, stage: Stage, levels: Levels, ask: Recorder
) -> list[Action]:
    own = [a for a in stage.axes if a.extent > 1]
    axis = lane_axis(kernel, stage, own)
    if axis is None:
        return []
    width = vector_lanes(axis.extent, target.lanes(4))
    reduce = isinstance(stage, Reduce)
    copies = ask.pick(f"stage{i}.copies", [1, 2, 4, 8], 2 if reduce else 0)
    names = levels.split(axis.name, (copies * width, width))
    actions: list[Action] = []
    if names[1] and levels.extent(names[1]) > 1:
        actions.append(Upcast(names[1]))
    if names[2] and levels.extent(names[2]) > 1:
        actions.append(Group(names[2]) if reduce else Vectorize(names[2]))
    return actions


def lane_axis(kernel: Kernel, stage: Stage, own: list[Axis]) -> Axis | None:
    """The stage's own axis that most loads (and its store) walk contiguously."""
    if not own:
        return None
    found = accesses(kernel, stage)

    def score(a: Axis) -> tuple[int, int]:
        return sum(x.stride(a.name) == 1 for x in found) - sum(
            x.stride(a.name) not in (0, 1) for x in found
        ), a.extent

    return max(own, key=score)
