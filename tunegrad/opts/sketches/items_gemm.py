"""Item GEMM: products, convolutions and windows on a GPU.

    for row0, lane0 on work-groups:
      for row1, lane1 on work-items:
        for k0:
          copy operands to shared memory
          for k1:
            row2 x lane2 accumulators, lane2 in a vector

The block of a group is as large as leaves every unit of the device one, and the steps of the
reduction between two barriers as many as shared memory holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tunegrad.ir.index import Index
from tunegrad.ir.kernel import Axis, Kernel, loads
from tunegrad.ir.target import Target

from ..actions import Action, Local, Pipeline, Reorder, Stage, Thread, Upcast
from ..choosing import Recorder
from .analysis import Access, accesses, can_be_packed, output_stride
from .item_counts import GROUP_ITEMS, each_counts, item_counts, nearest
from .tiling import Levels, axis_of, item_lanes

__all__ = ["sketch_gemm"]

_SIDE = 16
"""Work-items along the lanes of a product: a square of them reads the least for each result."""

_SLOTS = 3
"""Blocks in shared memory at a time, at most: one in use, one that arrives, one on its way."""

_WINDOWS = 64
"""Work-items of a group where nothing is shared (pooling): two warps."""

_ROWS = 4
"""Rows of a work-item's register tile: with 4 lanes 16 accumulators, which leave a GPU's registers
to 8 groups a unit. 8 rows were slower on PoCL (15 against 16 GFLOP/s)."""


def sketch_gemm(
    kernel: Kernel, target: Target, reduces: list[Axis], ask: Recorder
) -> tuple[Action, ...]:  # fmt: skip
    """Asks for the decisions of the sketch and returns its actions."""
    found = accesses(kernel, kernel.reduces[0])
    return _Gemm(kernel, target, ask, found, Levels(kernel)).actions(reduces)


@dataclass(frozen=True, slots=True)
class _Gemm:
    """One kernel, and the levels that its axes were split into so far."""

    kernel: Kernel
    target: Target
    ask: Recorder
    found: tuple[Access, ...]
    levels: Levels

    def actions(self, reduces: list[Axis]) -> tuple[Action, ...]:
        shared = [a for a in self.kernel.axes if a.extent > 1]
        lanes = sorted(shared, key=lambda a: output_stride(self.kernel, a.name) or 1 << 40)
        lane = self.ask.pick("lane", lanes[:3])
        rest = [a for a in shared if a is not lane]
        reuse = [a for a in rest if self._serves(lane, a)]
        rows = [*reuse[::-1], *(a for a in rest[::-1] if a not in reuse)]
        row = self.ask.pick("row", rows) if rows else None
        along, across = self._blocks(lane, row, wide=row in reuse)
        groups = [*(a.name for a in rest if a is not row), *(x for x in (across[0], along[0]) if x)]
        items = [x for x in (across[1], along[1]) if x]
        registers = [x for x in (across[2], along[2]) if x]
        k, inner = self._steps(reduces, [*items, *registers])
        # Registers run innermost wherever they stand; before the reductions, no step on the way
        # makes partial sums.
        outside = [*groups, *items, *registers, *([k] if k else [])]
        order = (*outside, *inner)
        made: list[Action] = list(self.levels.actions)
        made += [Reorder(order)] if len(order) > 1 else []
        made += [Thread(x) for x in groups if self.levels.extent(x) > 1]
        made += [Local(x) for x in items if self.levels.extent(x) > 1]
        made += [Upcast(across[2])] if self.levels.extent(across[2]) > 1 else []
        most = self.target.lanes(self.kernel.outputs[0].dtype.itemsize)
        made += item_lanes(self.ask, self.levels, along[2], most)
        block = [*inner, *items, *registers]
        staged, nbytes = self._shared(k, block)
        done = {s.param for s in staged}
        packed = self._packed(lane, [*groups, *([k] if k else []), *block], done)
        return (*made, *staged, *packed, *self._ahead(k, nbytes))

    def _ahead(self, k: str, nbytes: int) -> list[Action]:
        """Copies of later blocks, where they cost no work-item its time by default."""
        if not k or not nbytes:
            return []
        axis = next(a for a in self.kernel.reduces[0].axes if a.name == axis_of(k))
        covered = self._held(list(self.levels.loops))[axis.name]
        most = min(_SLOTS, self.levels.extent(k), self.target.shared_bytes // nbytes)
        if most < 2 or covered != axis.extent:
            return []
        options = list(range(1, most + 1))
        slots = self.ask.pick("slots", options, most - 1 if self.target.copies_ahead else 0)
        return [Pipeline(k, slots)] if slots > 1 else []

    def _serves(self, lane: Axis, axis: Axis) -> bool:
        """Whether what a lane reads serves all of an axis."""
        return any(x.depends(lane.name) and not x.depends(axis.name) for x in self.found)

    def _blocks(self, lane: Axis, row: Axis | None, *, wide: bool) -> tuple[list[str], list[str]]:
        """Loops over work-groups, work-items and registers, of the lanes and of the rows."""
        ask, target = self.ask, self.target
        lanes = target.lanes(self.kernel.reduces[0].dtype.itemsize)
        every, tall = each_counts(lane.extent), each_counts(row.extent) if row else [1]
        beside = all(x.stride(lane.name) == 1 for x in self.found)
        each = ask.pick("lane.each", every, nearest(every, lanes if wide or beside else 1))
        rows = ask.pick("row.each", tall, nearest(tall, _ROWS if wide else 1))
        counts = item_counts(target, -(-lane.extent // each))
        items = counts[nearest(counts, _SIDE if wide else _WINDOWS)]
        ranks = max(1, _WINDOWS // items)
        if wide and row:
            ranks = min(2 * _SIDE, GROUP_ITEMS // items)
            items, ranks = self._spread((lane.extent, row.extent), (each, rows), (items, ranks))
        count = ask.pick("lane.items", counts, nearest(counts, items))
        along = self.levels.split(lane.name, (count * each, each))
        if row is None:
            return along, ["", "", ""]
        counts = item_counts(target, -(-row.extent // rows), self.levels.extent(along[1]))
        high = ask.pick("row.items", counts, nearest(counts, ranks))
        return along, self.levels.split(row.name, (high * rows, rows))

    def _spread(
        self, extents: tuple[int, int], each: tuple[int, int], items: tuple[int, int]
    ) -> tuple[int, int]:  # fmt: skip
        """Fewer work-items a group, down to a quarter, to give every unit of the device a group."""
        lane, row = items
        others = self.kernel.points // prod(extents)
        for _ in range(2):
            lanes = -(-extents[0] // (lane * each[0]))
            rows = -(-extents[1] // (row * each[1]))
            if others * lanes * rows >= self.target.threads:
                break
            lane, row = (lane // 2, row) if lane > row else (lane, max(1, row // 2))
        return max(1, lane), row

    def _steps(self, reduces: list[Axis], around: list[str]) -> tuple[str, list[str]]:
        """The loop over blocks of the longest reduce axis, and the loops inside one."""
        longest = max(reduces, key=lambda a: a.extent)
        rest = [a.name for a in reduces if a is not longest]
        sizes = [0, *(n for n in (16, 32, 8, 4) if n < longest.extent)]
        held = self._held(around) | {a.name: a.extent for a in reduces}

        def fits(size: int) -> bool:
            block = {**held, longest.name: size}
            used = [x for x in self.found if not all(x.depends(a) for a in block)]
            return sum(self._copied_bytes(x, block) for x in used) <= self.target.shared_bytes

        best = max((n for n in sizes if n and fits(n)), default=0)
        size = self.ask.pick("k.block", sizes, sizes.index(best))
        outer, inner = self.levels.split(longest.name, (size,))
        return (outer, [*rest, inner]) if inner else ("", [*rest, outer])

    def _copied_bytes(self, x: Access, held: dict[str, int]) -> int:
        """Bytes of the copy of one operand, where ``held`` steps of each axis are inside a block.

        A masked one is staged as the box that it touches. Else each step of the reduction may have
        one element more, which keeps its rows in banks of their own.
        """
        itemsize, reduce = self.kernel.param(x.param).dtype.itemsize, self.kernel.reduces[0]
        if x.masked:
            load = next(y for s, y in loads(self.kernel) if s is reduce and y.param == x.param)
            return itemsize * prod(_span(i, held) for i in load.index)
        used = {a: n for a, n in held.items() if x.depends(a)}
        steps = prod(used.get(a.name, 1) for a in reduce.axes)
        return itemsize * (steps + prod(used.values()))

    def _shared(self, k: str, block: list[str]) -> tuple[list[Stage], int]:
        """Operands that several work-items read, in shared memory for a block of the reduction, and
        the bytes that they take.
        """
        made: list[Stage] = []
        left = self.target.shared_bytes
        held = self._held(block)
        for x in self.found:
            layout = self._layout(x, block)
            nbytes = self._copied_bytes(x, held)
            if not k or not layout or nbytes > left or not self._alone(x):
                continue
            reused = any(not x.depends(axis_of(n)) for n in block)
            if self.ask.pick(f"stage.{x.param}", [False, True], int(reused)):
                made.append(Stage(x.param, k, () if x.masked else layout))
                left -= nbytes
        return made, self.target.shared_bytes - left

    def _packed(self, lane: Axis, loops: list[str], staged: set[str]) -> list[Action]:
        """Constants that lanes would read across, in the order of their use since the load."""
        made: list[Action] = []
        for x in self.found:
            crossed = x.stride(lane.name) not in (0, 1) and not x.masked and self._alone(x)
            layout = self._layout(x, loops)
            if x.role != "const" or x.param in staged or not crossed or not layout:
                continue
            if not can_be_packed(self.kernel, self.kernel.reduces[0].axes, x):
                continue
            if self.ask.pick(f"pack.{x.param}", [False, True], 1):
                made.append(Stage(x.param, "load", layout))
        return made

    def _alone(self, x: Access) -> bool:
        """Whether one place loads the operand: what staging needs."""
        return not x.indirect and sum(y.param == x.param for y in self.found) == 1

    def _layout(self, x: Access, loops: list[str]) -> tuple[str, ...]:
        """Those of the loops that an operand depends on."""
        return tuple(n for n in loops if x.depends(axis_of(n)) and self.levels.extent(n) > 1)

    def _held(self, loops: list[str]) -> dict[str, int]:
        """Steps of each axis inside a block."""
        held: dict[str, int] = {}
        for n in loops:
            held[axis_of(n)] = held.get(axis_of(n), 1) * self.levels.extent(n)
        return held


def _span(index: Index, held: dict[str, int]) -> int:
    """Elements of one dimension that a block touches."""
    steps = [(index.coefficient(n), held.get(n, 1)) for n in index.names()]
    if any(step is None for step, _ in steps):
        return index.hi - index.lo + 1
    return 1 + sum(abs(step or 0) * (count - 1) for step, count in steps)
