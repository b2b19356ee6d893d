"""Flat: kernels without a reduction on a GPU. Neighbouring work-items store neighbouring vectors.

    for lane0 on work-groups:
        for lane1 on work-items:
            lane2 in a vector

What is read along another axis than it is stored along (a transpose) goes through a tile of shared
memory, which the work-items fill in the order of the source:

    for row0, lane0 on work-groups:
        for row1, lane1 on work-items:
            copy the tile row1, lane1, row2 to shared memory
            row2 in registers
"""

from __future__ import annotations

from dataclasses import dataclass

from tunegrad.ir.kernel import Axis, Kernel
from tunegrad.ir.target import Target

from ..actions import Action, Local, Reorder, Stage, Thread, Upcast
from ..choosing import Recorder
from .analysis import Access, accesses, output_stride
from .item_counts import GROUP_ITEMS, each_counts, item_counts, nearest
from .tiling import Levels, axis_of, item_lanes

__all__ = ["sketch_flat"]

_TILE = 32
"""Rows and columns of a transposed tile: 128 bytes of f32, a line of a cache, on both sides."""

_TILE_ROWS = 4
"""Rows of a work-item in it: a vector of the source."""


def sketch_flat(kernel: Kernel, target: Target, ask: Recorder) -> tuple[Action, ...]:
    """Asks for the decisions of the flat sketch and returns its actions."""
    found = accesses(kernel, kernel.stores[0])
    return _Flat(kernel, target, ask, found, Levels(kernel)).actions()


@dataclass(frozen=True, slots=True)
class _Flat:
    """One kernel, and the levels that its axes were split into so far."""

    kernel: Kernel
    target: Target
    ask: Recorder
    found: tuple[Access, ...]
    levels: Levels

    def actions(self) -> tuple[Action, ...]:
        shared = [a for a in self.kernel.axes if a.extent > 1]
        lanes = sorted(shared, key=lambda a: output_stride(self.kernel, a.name) or 1 << 40)
        lane = self.ask.pick("lane", lanes[:3])
        rest = [a for a in shared if a is not lane]
        crossed = self._crossed(lane, rest)
        rows = [*([crossed] if crossed else []), *(a for a in rest[::-1] if a is not crossed)]
        row = self.ask.pick("row", rows) if rows else None
        tile = row if row is crossed else None
        along = self._lanes(lane, is_tile=tile is not None)
        across = ["", "", ""]
        if row:
            across = self._rows(row, self.levels.extent(along[1]), is_tile=tile is not None)
        groups = [*(a.name for a in rest if a is not row), *(x for x in (across[0], along[0]) if x)]
        items = [x for x in (across[1], along[1]) if x]
        registers = [x for x in (across[2], along[2]) if x]
        made = [*self.levels.actions, *self._placed(groups, items, registers)]
        made += [Upcast(across[2])] if self.levels.extent(across[2]) > 1 else []
        most = self.target.lanes(self.kernel.outputs[0].dtype.itemsize)
        made += item_lanes(self.ask, self.levels, along[2], most)
        if tile and items:
            made += self._staged(lane, tile, [*items, *registers], items[-1])
        return tuple(made)

    def _crossed(self, lane: Axis, rest: list[Axis]) -> Axis | None:
        """The axis along which something is contiguous that the lanes read across."""
        for x in self.found:
            across = [a for a in rest if x.stride(a.name) == 1]
            if across and x.depends(lane.name) and x.stride(lane.name) != 1 and not x.masked:
                return across[0]
        return None

    def _lanes(self, lane: Axis, *, is_tile: bool) -> list[str]:
        every = each_counts(lane.extent)
        wide = 1 if is_tile else self.target.lanes(self.kernel.outputs[0].dtype.itemsize)
        each = self.ask.pick("lane.each", every, nearest(every, wide))
        counts = item_counts(self.target, -(-lane.extent // each))
        wanted = nearest(counts, _TILE if is_tile else GROUP_ITEMS)
        count = self.ask.pick("lane.items", counts, wanted)
        return self.levels.split(lane.name, (count * each, each))

    def _rows(self, row: Axis, taken: int, *, is_tile: bool) -> list[str]:
        every = each_counts(row.extent)
        each = self.ask.pick("row.each", every, nearest(every, _TILE_ROWS if is_tile else 1))
        counts = item_counts(self.target, -(-row.extent // each), taken)
        wanted = nearest(counts, _TILE // each if is_tile else 1)
        count = self.ask.pick("row.items", counts, wanted)
        return self.levels.split(row.name, (count * each, each))

    def _placed(self, groups: list[str], items: list[str], registers: list[str]) -> list[Action]:
        order = (*groups, *items, *registers)
        made: list[Action] = [Reorder(order)] if len(order) > 1 else []
        made += [Thread(x) for x in groups if self.levels.extent(x) > 1]
        return [*made, *(Local(x) for x in items if self.levels.extent(x) > 1)]

    def _staged(self, lane: Axis, row: Axis, loops: list[str], at: str) -> list[Action]:
        """The operand that the lanes read across, in a tile."""
        for x in self.found:
            alone = not x.indirect and sum(y.param == x.param for y in self.found) == 1
            if alone and x.stride(row.name) == 1 and x.stride(lane.name) != 1:
                held = [n for n in loops if self.levels.extent(n) > 1]
                layout = tuple(n for n in held if x.depends(axis_of(n)))
                stage = self.ask.pick(f"stage.{x.param}", [False, True], 1)
                return [Stage(x.param, at, layout)] if stage else []
        return []
