"""Item GEMM: products, convolutions and windows on a GPU.

    for row0, lane0 on work-groups:
      for row1, lane1 on work-items:
        for k0:
          copy operands to shared memory
          for k1:
            row2 x lane2 accumulators, lane2 in a vector

The block of a group is as large as leaves every unit of the device one, and the steps of the reduction between two
barriers as many as shared memory holds.
"""

from __future__ import annotations

from math import prod

from tunegrad.ir.index import Index
from tunegrad.ir.kernel import Axis, Kernel, loads
from tunegrad.ir.target import Target

from ..actions import Action, Local, Reorder, Stage, Thread, Upcast, Vectorize
from ..choosing import Recorder
from .analysis import Access, accesses, output_stride
from .item_counts import GROUP_ITEMS, each_counts, item_counts, nearest
from .tiling import Levels, axis_of

__all__ = ["sketch_gemm"]

_SIDE = 16
"""Work-items along the lanes of a product: a square of them reads the least for each result."""

_ROWS = 4
"""Rows of a work-item's register tile: with 4 lanes 16 accumulators, which leave a GPU's registers to 8 groups a unit.
8 rows were slower on PoCL (15 against 16 GFLOP/s)."""


def sketch_gemm(
    kernel: Kernel, target: Target, shared: list[Axis], reduces: list[Axis], ask: Recorder
) -> tuple[Action, ...]:
    """Asks for the decisions of the sketch and returns its actions."""
    found = accesses(kernel, kernel.reduces[0])
    lane = ask.pick("lane", sorted(shared, key=lambda a: output_stride(kernel, a.name) or 1 << 40)[:3])
    rest = [a for a in shared if a is not lane]
    reuse = [a for a in rest if any(x.depends(lane.name) and not x.depends(a.name) for x in found)]
    rows = [*reuse[::-1], *(a for a in rest[::-1] if a not in reuse)]
    row = ask.pick("row", rows) if rows else None
    levels = Levels(kernel)
    lanes, across = _blocks(kernel, target, levels, lane, row, ask, wide=row in reuse)
    groups = [*(a.name for a in rest if a is not row), *(x for x in (across[0], lanes[0]) if x)]
    items = [x for x in (across[1], lanes[1]) if x]
    registers = [x for x in (across[2], lanes[2]) if x]
    k, inner = _steps(kernel, target, levels, found, reduces, [*items, *registers], ask)
    # Registers run innermost wherever they stand; before the reductions, no step on the way makes partial sums.
    order = [*groups, *items, *registers, *([k] if k else []), *inner]
    actions: list[Action] = list(levels.actions)
    actions += [Reorder(tuple(order))] if len(order) > 1 else []
    actions += [Thread(x) for x in groups if levels.extent(x) > 1]
    actions += [Local(x) for x in items if levels.extent(x) > 1]
    actions += [Upcast(across[2])] if levels.extent(across[2]) > 1 else []
    if levels.extent(lanes[2]) > 1:
        fits = levels.extent(lanes[2]) <= target.lanes(kernel.outputs[0].dtype.itemsize)
        vector = fits and ask.pick("lane.vector", [False, True], 1)
        actions.append(Vectorize(lanes[2]) if vector else Upcast(lanes[2]))
    block = [*inner, *items, *registers]
    actions += _shared(kernel, target, found, k, block, levels, ask)
    staged = {a.param for a in actions if isinstance(a, Stage)}
    outside = [*groups, *([k] if k else []), *block]
    return (*actions, *_packed([x for x in found if x.param not in staged], lane, outside, levels, ask))


def _blocks(
    kernel: Kernel, target: Target, levels: Levels, lane: Axis, row: Axis | None, ask: Recorder, *, wide: bool
) -> tuple[list[str], list[str]]:
    """Loops over work-groups, work-items and registers, of the lanes and of the rows."""
    dtype = kernel.reduces[0].dtype
    every = each_counts(lane.extent)
    each = ask.pick("lane.each", every, nearest(every, target.lanes(dtype.itemsize) if wide else 1))
    tall = each_counts(row.extent) if row else [1]
    rows = ask.pick("row.each", tall, nearest(tall, _ROWS if wide else 1))
    items, ranks = (_SIDE, _SIDE) if wide else (GROUP_ITEMS // 4, 1)
    most_lanes = item_counts(target, -(-lane.extent // each))
    items = most_lanes[nearest(most_lanes, items)]
    if wide and row:
        ranks = min(2 * _SIDE, GROUP_ITEMS // items)
        items, ranks = _spread(kernel, target, (lane, row), (each, rows), (items, ranks))
    count = ask.pick("lane.items", most_lanes, nearest(most_lanes, items))
    lanes = levels.split(lane.name, (count * each, each))
    if row is None:
        return lanes, ["", "", ""]
    counts = item_counts(target, -(-row.extent // rows), levels.extent(lanes[1]))
    high = ask.pick("row.items", counts, nearest(counts, ranks))
    return lanes, levels.split(row.name, (high * rows, rows))


def _spread(
    kernel: Kernel, target: Target, axes: tuple[Axis, Axis], each: tuple[int, int], items: tuple[int, int]
) -> tuple[int, int]:
    """Fewer work-items a group, where that gives every unit of the device a group: down to a quarter."""
    lane, row = items
    others = kernel.points // (axes[0].extent * axes[1].extent)
    for _ in range(2):
        groups = others * -(-axes[0].extent // (lane * each[0])) * -(-axes[1].extent // (row * each[1]))
        if groups >= target.threads:
            break
        lane, row = (lane // 2, row) if lane > row else (lane, max(1, row // 2))
    return max(1, lane), row


def _steps(
    kernel: Kernel, target: Target, levels: Levels, found: tuple[Access, ...], reduces: list[Axis], around: list[str],
    ask: Recorder,
) -> tuple[str, list[str]]:  # fmt: skip
    """The loop over blocks of the longest reduce axis, and the loops inside; operands are staged for a block."""
    longest = max(reduces, key=lambda a: a.extent)
    rest = [a.name for a in reduces if a is not longest]
    sizes = [0, *(n for n in (16, 32, 8, 4) if n < longest.extent)]
    held = _held(levels, around) | {a.name: a.extent for a in reduces}

    def fits(size: int) -> bool:
        nbytes = _staged_bytes(kernel, found, {**held, longest.name: size})
        return nbytes <= target.shared_bytes

    best = max((n for n in sizes if n and fits(n)), default=0)
    outer, inner = levels.split(longest.name, (ask.pick("k.block", sizes, sizes.index(best)),))
    return (outer, [*rest, inner]) if inner else ("", [*rest, outer])


def _staged_bytes(kernel: Kernel, found: tuple[Access, ...], held: dict[str, int]) -> int:
    """Bytes of the operands that work-items share, where ``held`` steps of each axis are inside a block."""
    return sum(_copied_bytes(kernel, x, held) for x in found if not all(x.depends(a) for a in held))


def _copied_bytes(kernel: Kernel, x: Access, held: dict[str, int]) -> int:
    """Bytes of the copy of one operand: of the box that it is staged as where it is masked.

    Each step of the reduction may have one element more, which keeps its rows in banks of their own.
    """
    param = kernel.param(x.param)
    if not x.masked:
        steps = prod(held[a.name] for a in kernel.reduces[0].axes if a.name in held and x.depends(a.name))
        return param.dtype.itemsize * (steps + prod(n for a, n in held.items() if x.depends(a)))
    load = next(y for s, y in loads(kernel) if s is kernel.reduces[0] and y.param == x.param)
    return param.dtype.itemsize * prod(_span(i, held) for i in load.index)


def _span(index: Index, held: dict[str, int]) -> int:
    """Elements of one dimension that a block touches."""
    steps = [(index.coefficient(n), held.get(n, 1)) for n in index.names()]
    if any(step is None for step, _ in steps):
        return index.hi - index.lo + 1
    return 1 + sum(abs(step or 0) * (count - 1) for step, count in steps)


def _shared(
    kernel: Kernel, target: Target, found: tuple[Access, ...], k: str, loops: list[str], levels: Levels, ask: Recorder
) -> list[Action]:
    """Operands that several work-items of a group read, copied to shared memory for each block of the reduction."""
    actions: list[Action] = []
    left = target.shared_bytes
    counts = {x.param: sum(y.param == x.param for y in found) for x in found}
    held = _held(levels, loops)
    for x in found:
        layout = tuple(n for n in loops if x.depends(axis_of(n)) and levels.extent(n) > 1)
        nbytes = _copied_bytes(kernel, x, held)
        if not k or counts[x.param] > 1 or not layout or nbytes > left:
            continue
        reused = any(not x.depends(axis_of(n)) for n in loops)
        if ask.pick(f"stage.{x.param}", [False, True], int(reused)):
            actions.append(Stage(x.param, k, () if x.masked else layout))
            left -= nbytes
    return actions


def _packed(
    found: list[Access], lane: Axis, loops: list[str], levels: Levels, ask: Recorder
) -> list[Action]:
    """Constants that lanes would read across, in the order of their use from the time when the model is loaded."""
    actions: list[Action] = []
    for x in found:
        alone = sum(y.param == x.param for y in found) == 1
        if x.role == "const" and alone and not x.masked and x.stride(lane.name) not in (0, 1):
            layout = tuple(n for n in loops if x.depends(axis_of(n)) and levels.extent(n) > 1)
            if layout and ask.pick(f"pack.{x.param}", [False, True], 1):
                actions.append(Stage(x.param, "load", layout))
    return actions


def _held(levels: Levels, loops: list[str]) -> dict[str, int]:
    """Steps of each axis inside a block."""
    held: dict[str, int] = {}
    for n in loops:
        held[axis_of(n)] = held.get(axis_of(n), 1) * levels.extent(n)
    return held
