"""Rows: kernels of several stages over one row each (softmax, layer norm), or whose store has axes
of its own.

    for rows on threads:
        for each stage:  its own axis over lanes, some vectors at a time;
                         sums folded at the end of the row

or, where the rows themselves are contiguous in memory, lanes along the rows and serial stages.

Dots have lanes along the reduction: matrix-vector products, row sums.
"""

from __future__ import annotations

from math import prod

from tunegrad.ir.kernel import Axis, Kernel, Reduce, Stage
from tunegrad.ir.target import Target

from ..actions import Action, Group, Reorder, Upcast, Vectorize
from ..choosing import Recorder
from .analysis import (
    Levels,
    accesses,
    keep_hints,
    memory_hints,
    on_threads,
    output_stride,
    vector_lanes,
)

__all__ = [
    "lane_axis",
    "sketch_dots",
    "sketch_rows",
]


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


def sketch_dots(kernel: Kernel, target: Target, ask: Recorder) -> tuple[Action, ...]:
    """Asks for the decisions of the dots sketch and returns its actions."""
    reduce = kernel.reduces[0]
    found = accesses(kernel, reduce)
    shared = [a for a in kernel.axes if a.extent > 1]
    along = [
        a for a in reduce.axes if a.extent > 1 and all(x.stride(a.name) in (0, 1) for x in found)
    ]
    lane: Axis = ask.pick("dot.axis", along)
    width = vector_lanes(lane.extent, target.lanes(max(4, reduce.dtype.itemsize)))
    row = ask.pick("dot.row", shared[::-1]) if shared else None
    shared_operand = row is not None and any(not x.depends(row.name) for x in found)
    options = [
        (m, u)
        for m in (1, 2, 3, 4, 6, 8)
        for u in (1, 2, 4, 8)
        if m * u <= 16 and (row is None or m <= row.extent)
    ]
    options = [o for o in options if row is not None or o[0] == 1]
    streamed = any(x.nbytes > target.cached_bytes for x in found)
    want = (8, 2) if shared_operand else (1, 2) if streamed else (1, 8)
    options.sort(key=lambda o: (abs(o[0] - want[0]) + abs(o[1] - want[1]), o))
    rows_count, copies = ask.pick("dot.tile", options)
    levels = Levels(kernel)
    names = levels.split(lane.name, (copies * width, width))
    row_names = levels.split(row.name, (rows_count,)) if row is not None else ["", ""]
    order = [n for a in shared for n in ([row_names[0]] if a is row else [a.name]) if n]
    inner = [a.name for a in reduce.axes if a.extent > 1 and a is not lane]
    # The row's registers stand before the reductions, so that no step on the way makes partial
    # sums.
    everything = [*order, *(n for n in (row_names[1], *inner, *names) if n)]
    actions: list[Action] = list(levels.actions)
    if len(everything) > 1:
        actions.append(Reorder(tuple(everything)))
    if row_names[1] and levels.extent(row_names[1]) > 1:
        actions.append(Upcast(row_names[1]))
    if names[1] and levels.extent(names[1]) > 1:
        actions.append(Upcast(names[1]))
    if names[2] and levels.extent(names[2]) > 1:
        actions.append(Group(names[2]))
    actions += on_threads(order, levels, target, ask)
    return tuple(actions + memory_hints(kernel, target, ask))
