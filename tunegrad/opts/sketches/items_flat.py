"""Flat: kernels without a reduction on a GPU. Neighbouring work-items store neighbouring vectors.

    for lane0 on work-groups:
        for lane1 on work-items:
            lane2 in a vector

What is read along another axis than it is stored along (a transpose) goes through a tile of shared memory, which the
work-items fill in the order of the source:

    for row0, lane0 on work-groups:
        for row1, lane1 on work-items:
            copy the tile row1, row2, lane1 to shared memory
            row2 in registers
"""

from __future__ import annotations

from tunegrad.ir.kernel import Axis, Kernel
from tunegrad.ir.target import Target

from ..actions import Action, Local, Reorder, Stage, Thread, Upcast, Vectorize
from ..choosing import Recorder
from .analysis import Access, accesses, output_stride
from .item_counts import GROUP_ITEMS, each_counts, item_counts, nearest
from .tiling import Levels, axis_of

__all__ = ["sketch_flat"]

_TILE = 32
"""Rows and columns of a transposed tile: 128 bytes of f32, a line of every GPU's cache, on both sides."""


def sketch_flat(kernel: Kernel, target: Target, shared: list[Axis], ask: Recorder) -> tuple[Action, ...]:
    """Asks for the decisions of the flat sketch and returns its actions."""
    found = accesses(kernel, kernel.stores[0])
    lane = ask.pick("lane", sorted(shared, key=lambda a: output_stride(kernel, a.name) or 1 << 40)[:3])
    rest = [a for a in shared if a is not lane]
    crossed = _crossed(found, lane, rest)
    rows = sorted(reversed(rest), key=lambda a: a is not crossed)
    row = ask.pick("row", rows) if rows else None
    is_tile = crossed is not None and row is crossed
    levels = Levels(kernel)
    lanes = _lanes(kernel, target, levels, lane, ask, is_tile=is_tile)
    taken = levels.extent(lanes[1])
    across = _rows(target, levels, row, taken, ask, is_tile=is_tile) if row else ["", "", ""]
    groups = [*(a.name for a in rest if a is not row), *(x for x in (across[0], lanes[0]) if x)]
    items = [x for x in (across[1], lanes[1]) if x]
    registers = [x for x in (across[2], lanes[2]) if x]
    actions = [*levels.actions, *_placed(levels, groups, items, registers)]
    if levels.extent(across[2]) > 1:
        actions.append(Upcast(across[2]))
    if levels.extent(lanes[2]) > 1:
        fits = levels.extent(lanes[2]) <= target.lanes(kernel.outputs[0].dtype.itemsize)
        vector = fits and ask.pick("lane.vector", [False, True], 1)
        actions.append(Vectorize(lanes[2]) if vector else Upcast(lanes[2]))
    if row is not None and is_tile and items:
        actions += _staged(found, lane, row, [*items, *registers], items[-1], levels, ask)
    return tuple(actions)


def _crossed(found: tuple[Access, ...], lane: Axis, rest: list[Axis]) -> Axis | None:
    """The axis along which something large is read that the lanes read across."""
    for x in found:
        across = [a for a in rest if x.stride(a.name) == 1 and a.extent > 1]
        if across and x.depends(lane.name) and x.stride(lane.name) != 1 and not x.masked:
            return across[0]
    return None


def _lanes(kernel: Kernel, target: Target, levels: Levels, lane: Axis, ask: Recorder, *, is_tile: bool) -> list[str]:
    every = each_counts(lane.extent)
    wide = 1 if is_tile else target.lanes(kernel.outputs[0].dtype.itemsize)
    each = ask.pick("lane.each", every, nearest(every, wide))
    counts = item_counts(target, -(-lane.extent // each))
    count = ask.pick("lane.items", counts, nearest(counts, _TILE if is_tile else GROUP_ITEMS))
    return levels.split(lane.name, (count * each, each))


def _rows(target: Target, levels: Levels, row: Axis, taken: int, ask: Recorder, *, is_tile: bool) -> list[str]:
    every = each_counts(row.extent)
    each = ask.pick("row.each", every, nearest(every, 4 if is_tile else 1))
    counts = item_counts(target, -(-row.extent // each), taken)
    wanted = _TILE // each if is_tile else 1
    count = ask.pick("row.items", counts, nearest(counts, wanted))
    return levels.split(row.name, (count * each, each))


def _placed(levels: Levels, groups: list[str], items: list[str], registers: list[str]) -> list[Action]:
    order = (*groups, *items, *registers)
    actions: list[Action] = [Reorder(order)] if len(order) > 1 else []
    actions += [Thread(x) for x in groups if levels.extent(x) > 1]
    return [*actions, *(Local(x) for x in items if levels.extent(x) > 1)]


def _staged(
    found: tuple[Access, ...], lane: Axis, row: Axis, loops: list[str], at: str, levels: Levels, ask: Recorder
) -> list[Action]:
    """The operand that is read across the lanes, in a tile whose rows the lanes read."""
    for x in found:
        if x.stride(row.name) == 1 and x.stride(lane.name) != 1 and sum(y.param == x.param for y in found) == 1:
            layout = tuple(n for n in loops if levels.extent(n) > 1 and x.depends(axis_of(n)))
            return [Stage(x.param, at, layout)] if ask.pick(f"stage.{x.param}", [False, True], 1) else []
    return []
