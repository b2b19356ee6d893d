"""Dots: lanes along the reduction, for kernels that read long rows once: matrix-vector products,
row sums.
"""

from __future__ import annotations

from tunegrad.ir.kernel import Axis, Kernel
from tunegrad.ir.target import Target

from ..actions import Action, Group, Reorder, Upcast
from ..choosing import Recorder
from .analysis import accesses
from .hints import memory_hints
from .threads import on_threads
from .tiling import Levels, vector_lanes

__all__ = ["sketch_dots"]


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
