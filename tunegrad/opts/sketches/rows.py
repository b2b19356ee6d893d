"""Rows: kernels of several stages over one row each, of rows inside the kernel, and dots."""

from __future__ import annotations

from math import prod

from tunegrad.ir.expr import loads_in
from tunegrad.ir.kernel import Axis, Kernel, Reduce, own_axes
from tunegrad.ir.kernel import Stage as KernelStage
from tunegrad.ir.target import Target

from ..actions import Action, Group, Reorder, Stage, Upcast, Vectorize
from ..decisions import Recorder
from .analysis import (
    Levels,
    accesses,
    keep_hints,
    memory_hints,
    on_threads,
    output_stride,
    vector_lanes,
)

# ---- rows and dots
#
# Rows: kernels of several stages over one row each (softmax, layer norm), or whose store has axes
# of its own.
#
#     for rows on threads:
#         for each stage:  its own axis over lanes, some vectors at a time;
#                          sums folded at the end of the row
#
# or, where the rows themselves are contiguous in memory, lanes along the rows and serial stages.
#
# Dots have lanes along the reduction: matrix-vector products, row sums.


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
    outer, rows = [a.name for a in shared], 1
    if form == "shared":
        lane = shared[-1]
        width = vector_lanes(lane.extent, target.lanes(4))
        rows = width * ask.pick("rows.copies", [1, 2, 4])
        names = levels.split(lane.name, (rows, width))
        kinds += [*levels.each(Upcast, names[1]), *levels.each(Vectorize, names[2])]
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
        *keep_hints(kernel, target, ask, rows, part=1),
        *memory_hints(kernel, target, ask, row_bytes=row_bytes),
    ]
    return (*levels.actions, *kinds, *threads, *hints)


def _loaded_along(kernel: Kernel, axis: str) -> bool:
    """Return True where steps of ``axis`` are of one element in as many loads as they are longer in
    others: the statistics of rows are contiguous, too, but their loads walk along the rows. Where
    several outputs are reductions, numbers that a whole row has in common do not count.
    """
    several = len(kernel.outputs) > 1
    strides = [
        x.stride(axis)
        for s in kernel.stages
        for x in accesses(kernel, s)
        if not (several and s.axes) or any(x.depends(a.name) for a in s.axes)
    ]
    return strides.count(1) >= sum(s not in (0, 1) for s in strides)


def _stage(
    kernel: Kernel, target: Target, i: int, stage: KernelStage, levels: Levels, ask: Recorder
) -> list[Action]:
    own = [a for a in stage.axes if a.extent > 1]
    axis = lane_axis(kernel, stage, own)
    if axis is None:
        return []
    width = vector_lanes(axis.extent, target.lanes(4))
    reduce = isinstance(stage, Reduce)
    # vectors of a turn share what the row has in common: a root and a quotient in a layer norm
    copies = ask.pick(f"stage{i}.copies", [1, 2, 4, 8], 2)
    names = levels.split(axis.name, (copies * width, width))
    lanes = levels.each(Group if reduce else Vectorize, names[2])
    return [*levels.each(Upcast, names[1]), *lanes]


def lane_axis(kernel: Kernel, stage: KernelStage, own: list[Axis]) -> Axis | None:
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
    actions += [*levels.each(Upcast, row_names[1], names[1]), *levels.each(Group, names[2])]
    actions += on_threads(order, levels, target, ask)
    return tuple(actions + memory_hints(kernel, target, ask, streamed=streamed))


# ---- attention
#
# Attention, and other kernels that fold rows: a block of queries in the lanes, all keys in turn.
#
#     for head, block of queries on threads:
#         copy Q of the block, queries innermost
#         for 8 keys in S:                        scores: keys are broadcast; 2 vectors of queries
#             for k in d: ...                     by 8 keys are registers
#         maximum, exponentials and their sum     down the keys: no lane needs another one
#         for 8 numbers of a value in d:          weighted sums: values are broadcast
#             for keys in S: ...
#         Y of the block
#
# or, where there are too few queries, one query at a time: lanes along the numbers of a key, the
# keys, and the numbers of a value. Nothing but the rows of a block is ever in memory: scores and
# their exponentials, which a core's own cache holds.


_CHAINS = (4, 2, 1, 8)
"""Accumulators of a maximum and of a sum beside each other."""


def sketch_attention(kernel: Kernel, target: Target, ask: Recorder) -> tuple[Action, ...]:
    """Asks for the decisions of a kernel with rows and returns its actions."""
    lanes = target.lanes(4)
    query = _queries(kernel)
    few = query is None or 2 * query.extent <= lanes
    forms = ["own"] if query is None else ["queries", "own"]
    form = ask.pick("attention.lanes", forms, int(few and len(forms) > 1))
    if form == "own" or query is None:
        return _one_by_one(kernel, target, ask)
    levels = Levels(kernel)
    width = vector_lanes(query.extent, lanes)
    copies = _copies(kernel, target, query, width, ask)
    block = levels.split(query.name, (copies * width, width))
    kinds = [*levels.each(Upcast, *block[1:2]), *levels.each(Vectorize, *block[2:])]
    for i, s in enumerate(kernel.reduces):
        axis = max(s.row or s.folds, key=lambda a: a.extent)
        options = _sizes(axis.extent, _free(target) // copies) if s.rows else _CHAINS
        size = ask.pick(f"stage{i}.block", options)
        names = levels.split(axis.name, (size,))
        kinds += levels.each(Upcast, *names[1:])
    outer = [a.name for a in kernel.axes if a is not query and a.extent > 1]
    outer += [block[0]] if block[0] else []
    threads = on_threads(outer, levels, target, ask)
    registers = [x for x in block[1:] if levels.extent(x) > 1]
    staged = _queries_staged(kernel, query, outer, registers, ask)
    rows = prod(levels.extent(x) for x in registers)
    kept = keep_hints(kernel, target, ask, rows)
    return (*levels.actions, *kinds, *threads, *staged, *kept)


def _queries(kernel: Kernel) -> Axis | None:
    """The innermost shared axis that only one factor of the first row follows."""
    scores = kernel.reduces[0]
    found = accesses(kernel, scores)
    return next(
        (
            a
            for a in reversed(kernel.axes)
            if a.extent > 1 and sum(x.depends(a.name) for x in found) == 1
        ),
        None,
    )


def _copies(kernel: Kernel, target: Target, query: Axis, width: int, ask: Recorder) -> int:
    """Vectors of queries side by side: two, where the rows of as many fit a core's own cache."""
    longest = max(prod(a.extent for a in r.row) for r in kernel.reduces)
    fits = 4 * width * longest * 4 <= target.l2_bytes and query.extent > width
    return ask.pick("queries.copies", [1, 2, 4], int(fits))


def _free(target: Target) -> int:
    """Registers for results: what operands leave of them."""
    return max(4, target.registers * 3 // 4)


def _sizes(extent: int, most: int) -> list[int]:
    """Elements of a row side by side: all registers, before fewer that divide the row."""
    found = [n for n in (12, 10, 8, 6, 4, 3, 2, 1) if n <= min(most, extent)]
    even = [n for n in found if extent % n == 0 and 2 * n > min(most, 12)]
    return list(dict.fromkeys((*even[:1], *found))) or [1]


def _queries_staged(
    kernel: Kernel, query: Axis, outer: list[str], registers: list[str], ask: Recorder
) -> list[Action]:
    """A copy of the block of queries, transposed; its lanes would be gathered otherwise."""
    scores = kernel.reduces[0]
    loads = loads_in(scores.expr)
    mine = [x for x in loads if any(query.name in i.names() for i in x.index)]
    if len(mine) != 1 or [x.param for x in loads].count(mine[0].param) > 1 or not outer:
        return []
    names = frozenset[str]().union(*(i.names() for i in mine[0].index))
    terms = [a.name for a in scores.folds if a.name in names and a.extent > 1]
    if any(a.name in names for a in scores.row):
        return []
    staged = Stage(mine[0].param, outer[-1], (*terms, *registers))
    return [staged] if ask.pick("queries.stage", [False, True], 1) else []


def _one_by_one(kernel: Kernel, target: Target, ask: Recorder) -> tuple[Action, ...]:
    """A query at a time: lanes along what lies side by side."""
    levels = Levels(kernel)
    kinds: list[Action] = []
    for i, s in enumerate(kernel.stages):
        row = s.row if isinstance(s, Reduce) else s.axes
        folds = own_axes(s) if isinstance(s, Reduce) else ()
        beside = accesses(kernel, s)

        def along(a: Axis, beside: tuple = beside) -> tuple[int, int]:  # type: ignore[type-arg]
            return sum(x.stride(a.name) == 1 for x in beside), a.extent

        axes = [a for a in (*row, *folds) if a.extent > 1]
        if not axes:
            continue
        lane = max(axes, key=along)
        width = vector_lanes(lane.extent, target.lanes(4))
        copies = ask.pick(f"stage{i}.copies", [2, 1, 4]) if lane in folds else 1
        names = levels.split(lane.name, (copies * width, width))
        kinds += levels.each(Upcast, *names[1:2])
        kinds += levels.each(Group if lane in folds else Vectorize, *names[2:])
        if isinstance(s, Reduce) and s.rows and lane in folds:
            other = max(row, key=lambda a: a.extent)
            size = ask.pick(f"stage{i}.block", _sizes(other.extent, 8))
            block = levels.split(other.name, (size,))
            kinds += levels.each(Upcast, *block[1:])
    outer = [a.name for a in kernel.axes if a.extent > 1]
    threads = on_threads(outer, levels, target, ask)
    return (*levels.actions, *kinds, *threads, *keep_hints(kernel, target, ask, 1))
