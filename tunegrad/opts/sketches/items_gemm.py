"""Item GEMM: products, convolutions and windows on a GPU.

    for row0, lane0 on work-groups:
      for row1, lane1 on work-items:
        for k0:
          copy operands to shared memory
          for k1:
            row2 x lane2 accumulators, lane2 in vectors

How large the block of a group is, and how many steps of the reduction stand between two barriers, a
model of cycles says where the target tells what its units have (``cycles.py``): then an item
may have several vectors, a block's width apart, so that neighbouring items read neighbouring ones.
Else the block is as large as leaves every unit of the device one, of as many steps as shared memory
holds.
"""

from __future__ import annotations

from math import prod

from tunegrad.ir.index import Index
from tunegrad.ir.kernel import Axis, Kernel, loads
from tunegrad.ir.target import Target
from tunegrad.lazy import dataclass

from ..actions import Action, Local, Pipeline, Reorder, Stage, Thread, Unroll, Upcast
from ..actions.loops import MAX_COPIES
from ..decisions import Recorder
from .analysis import (
    Access,
    Levels,
    Sketch,
    accesses,
    axis_of,
    can_be_packed,
    contiguous_itemsize,
    item_lanes,
    once,
    output_stride,
)
from .cycles import ItemBlock, Problem, best_item_block
from .items import GROUP_ITEMS, each_counts, item_counts, nearest

_SIDE = 16
"""Work-items along the lanes of a product: a square of them reads the least for each result."""

_SLOTS = 3
"""Blocks in shared memory at a time, at most: one in use, one that arrives, one on its way."""

_WINDOWS = 64
"""Work-items of a group where nothing is shared (pooling): two warps."""

_ROWS = 4
"""Rows of a work-item's register tile where no model says how many: 8 rows were slower on PoCL (15
against 16 GFLOP/s)."""


def sketch_gemm(
    kernel: Kernel, target: Target, reduces: list[Axis], ask: Recorder
) -> tuple[Action, ...]:  # fmt: skip
    """Asks for the decisions of the sketch and returns its actions."""
    found = accesses(kernel, kernel.reduces[0])
    return _Gemm(kernel, target, ask, Levels(kernel), found).actions(reduces)


@dataclass(frozen=True, slots=True)
class _Gemm(Sketch):
    """One kernel, and the levels that its axes were split into so far."""

    found: tuple[Access, ...]

    def actions(self, reduces: list[Axis]) -> tuple[Action, ...]:
        shared = [a for a in self.kernel.axes if a.extent > 1]
        lanes = sorted(shared, key=lambda a: output_stride(self.kernel, a.name) or 1 << 40)
        lane = self.ask.pick("lane", lanes[:3])
        rest = [a for a in shared if a is not lane]
        reuse = [a for a in rest if self._serves(lane, a)]
        rows = [*reuse[::-1], *(a for a in rest[::-1] if a not in reuse)]
        row = self.ask.pick("row", rows) if rows else None
        best = self._best(lane, row) if row in reuse else None
        along, across = self._blocks(lane, row, best, wide=row in reuse)
        groups = [*(a.name for a in rest if a is not row), *(x for x in (across[0], along[0]) if x)]
        items = [x for x in (along[1], across[1], along[2]) if x]
        registers = [x for x in (across[2], along[3]) if x]
        held = prod(self.levels.extent(x) for x in (along[1], *registers))
        k, inner = self._steps(reduces, [*items, *registers], best, held)
        # Registers run innermost wherever they stand; before the reductions, no step on the way
        # makes partial sums.
        outside = [*groups, *items, *registers, *([k] if k else [])]
        order = (*outside, *inner)
        made: list[Action] = list(self.levels.actions)
        made += [Reorder(order)] if len(order) > 1 else []
        made += self.levels.each(Thread, *groups)
        made += self.levels.each(Local, *(x for x in items if x != along[1]))
        made += self.levels.each(Upcast, across[2], along[1])
        most = self.target.lanes(self.kernel.outputs[0].dtype.itemsize)
        made += item_lanes(self.ask, self.levels, along[3], most)
        made += self._terms(k, inner, held)
        block = [*inner, *items, *registers]
        staged, nbytes = self._shared(k, block)
        done = {s.param for s in staged}
        packed = self._packed(lane, [*groups, *([k] if k else []), *block], done)
        return (*made, *staged, *packed, *self._ahead(k, nbytes, best))

    def _terms(self, k: str, inner: list[str], held: int) -> list[Action]:
        """Neighbouring terms in registers: those that a step has together, and those of a short
        sum, ``held`` of which a work-item makes. One load of 16 bytes has four of them.
        """
        last = inner[-1]
        extent = self.levels.extent(last)
        if k and len(inner) > 1 and axis_of(inner[-2]) == axis_of(last):
            return [Unroll(last)]
        if axis_of(last) != last or extent >= self.target.warp or held * extent > MAX_COPIES:
            return []
        axis = next(a for a in self.kernel.reduces[0].axes if a.name == last)
        size = contiguous_itemsize(self.kernel, self.kernel.reduces[0], axis)
        width = self.target.lanes(size) if size else 1
        if width < 2 or extent % width:
            return []
        chosen = self.ask.pick("terms.unroll", [False, True], 1)
        return [Unroll(last)] if chosen else []

    def _best(self, lane: Axis, row: Axis | None) -> ItemBlock | None:
        """The block that the model of cycles prefers for sums of 4 bytes, or None."""
        reduce = self.kernel.reduces[0]
        if row is None or reduce.dtype.itemsize != 4:
            return None
        others = self.kernel.points // (lane.extent * row.extent)
        terms = prod(a.extent for a in reduce.axes)
        param = self.kernel.param
        size = max(param(x.param).dtype.itemsize for x in self.found)
        stored = max(param(s.param).dtype.itemsize for s in self.kernel.stores)
        problem = Problem(others, row.extent, lane.extent, terms, size, stored)
        nbytes = self.kernel.unique_bytes
        key = (problem, self.target)
        return once(self.kernel, key, lambda: best_item_block(problem, nbytes, self.target))

    def _ahead(self, k: str, nbytes: int, best: ItemBlock | None) -> list[Action]:
        """Copies of later blocks, where they cost no work-item its time by default."""
        if not k or not nbytes:
            return []
        axis = next(a for a in self.kernel.reduces[0].axes if a.name == axis_of(k))
        covered = self._held(list(self.levels.loops))[axis.name]
        most = min(_SLOTS, self.levels.extent(k), self.target.shared_bytes // nbytes)
        if most < 2 or covered != axis.extent:
            return []
        options = list(range(1, most + 1))
        wanted = min(most, best.slots) if best else most
        slots = self.ask.pick("slots", options, wanted - 1 if self.target.copies_ahead else 0)
        return [Pipeline(k, slots)] if slots > 1 else []

    def _serves(self, lane: Axis, axis: Axis) -> bool:
        """True if what a lane reads serves all of an axis."""
        return any(x.depends(lane.name) and not x.depends(axis.name) for x in self.found)

    def _blocks(
        self, lane: Axis, row: Axis | None, best: ItemBlock | None, *, wide: bool
    ) -> tuple[list[str], list[str]]:
        """Loops over work-groups, vectors of an item, work-items and lanes; and over work-groups,
        work-items and registers of the rows.
        """
        ask, target = self.ask, self.target
        lanes = target.lanes(self.kernel.reduces[0].dtype.itemsize)
        every, tall = each_counts(lane.extent), each_counts(row.extent) if row else [1]
        beside = all(x.stride(lane.name) == 1 for x in self.found)
        width = best.columns if best else lanes
        each = ask.pick("lane.each", every, nearest(every, width if wide or beside else 1))
        high = best.rows if best else _ROWS
        rows = ask.pick("row.each", tall, nearest(tall, high if wide else 1))
        counts = self._counts(-(-lane.extent // each), wide=wide)
        items = counts[nearest(counts, _SIDE if wide else _WINDOWS)]
        ranks = max(1, _WINDOWS // items)
        if best:
            items, ranks = best.wide, best.tall
        elif wide and row:
            ranks = min(2 * _SIDE, GROUP_ITEMS // items)
            items, ranks = self._spread((lane.extent, row.extent), (each, rows), (items, ranks))
        count = ask.pick("lane.items", counts, nearest(counts, items))
        whole = lane.extent % (count * each) == 0
        vector = lanes if best and each > lanes and whole else each
        along = self.levels.split(lane.name, (count * each, count * vector, vector))
        if row is None:
            return along, ["", "", ""]
        counts = self._counts(-(-row.extent // rows), self.levels.extent(along[2]), wide=wide)
        high = ask.pick("row.items", counts, nearest(counts, ranks))
        return along, self.levels.split(row.name, (high * rows, rows))

    def _counts(self, extent: int, taken: int = 1, *, wide: bool) -> list[int]:
        """Counts of work-items for a loop. Those of a product on warps are all powers of two: what
        is copied across others can not be proved free of races.
        """
        counts = item_counts(self.target, extent, taken)
        whole = wide and self.target.warp > 1
        return [n for n in counts if n <= extent] if whole else counts

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

    def _steps(
        self, reduces: list[Axis], around: list[str], wanted: ItemBlock | None, held_sums: int
    ) -> tuple[str, list[str]]:
        """The loop over blocks of the longest reduce axis, and the loops inside one."""
        longest = max(reduces, key=lambda a: a.extent)
        rest = [a.name for a in reduces if a is not longest]
        sizes = [0, *(n for n in (16, 32, 8, 4) if n < longest.extent)]
        held = self._held(around) | {a.name: a.extent for a in reduces}

        def fits(size: int) -> bool:
            block = {**held, longest.name: size}
            used = [x for x in self.found if not all(x.depends(a) for a in block)]
            return sum(self._copied_bytes(x, block) for x in used) <= self.target.shared_bytes

        shared = any(not all(x.depends(a) for a in held) for x in self.found)
        most = wanted.depth if wanted else max(sizes)
        if self.target.warp > 1 and not shared:  # nothing is copied
            most = 0
        best = max((n for n in sizes if n and n <= most and fits(n)), default=0)
        size = self.ask.pick("k.block", sizes, sizes.index(best))
        each = self._together(size, held_sums) if wanted and not rest else 1
        outer, *inside = self.levels.split(longest.name, (size, each))
        inner = [x for x in inside if x]
        return (outer, [*rest, *inner]) if inner else ("", [*rest, outer])

    def _together(self, size: int, held: int) -> int:
        """Terms of a step that a work-item has at a time: loads side by side are joined."""
        options = [n for n in (1, 4) if n < size and size % n == 0 and held * n <= MAX_COPIES]
        return self.ask.pick("terms.each", options, len(options) - 1) if len(options) > 1 else 1

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
            layout = self.layout(x, block)
            nbytes = self._copied_bytes(x, held)
            if not k or not layout or nbytes > left or not self._alone(x):
                continue
            reused = any(not x.depends(axis_of(n)) for n in block)
            if self.ask.pick(f"stage.{x.param}", [False, True], int(reused)):
                made.append(Stage(x.param, k, () if x.masked and x.boxed else layout))
                left -= nbytes
        return made, self.target.shared_bytes - left

    def _packed(self, lane: Axis, loops: list[str], staged: set[str]) -> list[Action]:
        """Constants that lanes would read across, in the order of their use since the load."""
        made: list[Action] = []
        for x in self.found:
            crossed = x.stride(lane.name) not in (0, 1) and not x.masked and self._alone(x)
            layout = self.layout(x, loops)
            if x.role != "const" or x.param in staged or not crossed or not layout:
                continue
            if not can_be_packed(self.kernel, self.kernel.reduces[0].axes, x):
                continue
            if self.ask.pick(f"pack.{x.param}", [False, True], 1):
                made.append(Stage(x.param, "load", layout))
        return made

    def _alone(self, x: Access) -> bool:
        """True if one place alone loads the operand, as staging needs."""
        return not x.indirect and sum(y.param == x.param for y in self.found) == 1

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
