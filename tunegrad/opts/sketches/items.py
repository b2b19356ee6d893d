"""Kernels of a GPU besides products of matrices: work-groups over blocks of the output, work-items
inside them.

    sketch_reduce     reductions: work-items share out the reduction, the output, or both
    sketch_item_rows  several stages over a row: softmax, layer norm
    sketch_flat       no reduction: elementwise, copies, transposes
"""

from __future__ import annotations

from collections.abc import Sequence

from tunegrad.ir.kernel import Axis, Kernel, Reduce
from tunegrad.ir.kernel import Stage as KernelStage
from tunegrad.ir.target import Target
from tunegrad.lazy import dataclass

from ..actions import Action, Group, Local, Reorder, Stage, Thread, Unroll, Upcast, Vectorize
from ..decisions import Recorder
from .analysis import (
    Access,
    Levels,
    Sketch,
    accesses,
    contiguous_itemsize,
    item_lanes,
    output_stride,
    stored_accesses,
    stored_itemsize,
)
from .rows import lane_axis

GROUP_ITEMS = 256
"""Work-items of a default group: what every OpenCL GPU has, eight warps that hide their waits."""

TERMS = 4
"""Terms of a reduction that each work-item should have: with fewer, combining takes longer."""

_WIDE_TERMS = 16
"""The same where a warp exchanges its shares: four loads of four elements each in flight."""


def powers(most: int) -> list[int]:
    """1, 2, 4 ... up to ``most``."""
    return [1 << i for i in range(most.bit_length()) if 1 << i <= most]


def item_counts(target: Target, extent: int, taken: int = 1) -> list[int]:
    """Counts for a loop of ``extent`` beside ``taken`` other items, most first; never empty."""
    most = target.max_local // max(1, taken)
    return [n for n in powers(most)[::-1] if n < 2 * extent] or [1]


def each_counts(extent: int) -> list[int]:
    """Outputs of one work-item along an axis, most first."""
    return [n for n in (8, 4, 2, 1) if n <= extent]


def nearest(counts: Sequence[int], wanted: int) -> int:
    """The position of the largest count up to ``wanted``, most first; else that of the least."""
    return next((i for i, n in enumerate(counts) if n <= wanted), len(counts) - 1)


def row_items(target: Target, extent: int) -> int:
    """Work-items that a default schedule has share out a reduction of ``extent`` terms: whole warps
    where there are some, as many as leave each what its registers hold; else as many as have a few
    terms each.
    """
    if target.warp > 1 and extent >= target.warp:
        wanted, most = max(target.warp, extent // _WIDE_TERMS), target.max_local
    else:
        wanted, most = max(2, extent // TERMS), GROUP_ITEMS
    return max(n for n in powers(most) if n <= wanted)


_SECTOR = 32
"""Bytes that memory moves at least for a work-item that reads apart from its neighbours."""


def _loads_more_apart(kernel: Kernel, target: Target, extent: int, parts: int) -> bool:
    """True if work-items along a reduction of ``extent`` terms, which read apart from each other,
    get more of them at once than ``parts`` along it for each output, where outputs are neighbours:
    few outputs leave a GPU idle. A row that is stored is written apart, too.

    On an H200, of 4 to 4,096 outputs (docs/PERFORMANCE_H200.md): 0.9 to 112 times as fast.
    """
    most = target.threads * GROUP_ITEMS
    itemsize = max(p.dtype.itemsize for p in kernel.params)
    moved = max(1.0, _SECTOR / itemsize) * (1 + any(s.axes for s in kernel.stores))
    apart = min(most, kernel.points * row_items(target, extent)) / moved
    return target.warp > 1 and apart > min(most, kernel.points * parts)


def wide_counts(target: Target, extent: int, items: int, itemsize: int) -> tuple[list[int], int]:
    """Neighbouring terms that a work-item may take at once, and which count a default schedule has:
    a load of as many bytes as one may have, where warps exchange shares. ``itemsize`` 0: nothing
    lies side by side.
    """
    width = target.lanes(itemsize) if itemsize else 1
    if width < 2 or extent < items * width:
        return [1], 0
    return [1, width], int(target.warp > 1 and extent % width == 0)


_TILE = 32
"""Rows and columns of a transposed tile: 128 bytes of f32, a line of a cache, on both sides."""

_TILE_ROWS = 4
"""Rows of a work-item in it: a vector of the source."""


def sketch_flat(kernel: Kernel, target: Target, ask: Recorder) -> tuple[Action, ...]:
    """Asks for the decisions of the flat sketch and returns its actions.

        for lane0 on work-groups:
            for lane1 on work-items:
                lane2 in a vector

    What is read along another axis than it is stored along (a transpose) goes through a tile of
    shared memory, which the work-items fill in the order of the source:

        for row0, lane0 on work-groups:
            for row1, lane1 on work-items:
                copy the tile row1, lane1, row2 to shared memory
                row2 in registers
    """
    found = stored_accesses(kernel)
    return _Flat(kernel, target, ask, Levels(kernel), found).actions()


@dataclass(frozen=True, slots=True)
class _Flat(Sketch):
    """One kernel, and the levels that its axes were split into so far."""

    found: tuple[Access, ...]

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
        made += self.levels.each(Upcast, across[2])
        most = self.target.lanes(stored_itemsize(self.kernel))
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
        wide = 1 if is_tile else self.target.lanes(stored_itemsize(self.kernel))
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
        return [*made, *self.levels.each(Thread, *groups), *self.levels.each(Local, *items)]

    def _staged(self, lane: Axis, row: Axis, loops: list[str], at: str) -> list[Action]:
        """The operand that the lanes read across, in a tile."""
        for x in self.found:
            alone = not x.indirect and sum(y.param == x.param for y in self.found) == 1
            if alone and x.stride(row.name) == 1 and x.stride(lane.name) != 1:
                stage = self.ask.pick(f"stage.{x.param}", [False, True], 1)
                return [Stage(x.param, at, self.layout(x, loops))] if stage else []
        return []


_LANES = 32
"""Work-items along the outputs of columns: a warp reads a line of a cache."""


def sketch_reduce(
    kernel: Kernel, target: Target, reduces: list[Axis], ask: Recorder
) -> tuple[Action, ...]:  # fmt: skip
    """Asks for the decisions of the sketch and returns its actions.

        rows: the reduction is contiguous                columns: outputs are contiguous
        for rows0 on work-groups:                        for lanes0 on work-groups:
          for rows1 on work-items:                         for k0 on work-items:
            for k0:                                          for lanes1 on work-items:
              for k1 on work-items:                            for k1:
                v0 = v0 + ...                                    v0 = v0 + ...
          combined in shared memory                          combined in shared memory

    In both, neighbouring work-items read neighbouring elements; in rows several at once, where
    warps exchange their shares.
    """
    found = accesses(kernel, kernel.reduces[0])

    def strided(a: Axis) -> tuple[int, int]:
        return sum(x.stride(a.name) not in (0, 1) for x in found), -a.extent

    axis = ask.pick("group.axis", sorted(reduces, key=strided))
    shared = [a for a in kernel.axes if a.extent > 1]
    made = _Reduce(kernel, target, ask, Levels(kernel), axis)
    if not shared:
        return made.rows(None)
    lane = min(shared, key=lambda a: output_stride(kernel, a.name) or 1 << 40)
    largest = max(found, key=lambda x: x.nbytes, default=None)
    parts = _parts(min(_LANES, lane.extent), axis.extent)
    beside = (
        largest is not None
        and largest.stride(lane.name) == 1
        and not _loads_more_apart(kernel, target, axis.extent, parts)
    )
    form = ask.pick("group.form", ["rows", "columns"], int(beside))
    return made.rows(lane) if form == "rows" else made.columns(lane)


def _parts(outputs: int, extent: int) -> int:
    """Work-items that a default schedule has share out each sum of a group of ``outputs``."""
    return max(1, min(GROUP_ITEMS // outputs, extent // TERMS))


@dataclass(frozen=True, slots=True)
class _Reduce(Sketch):
    """One kernel, the reduce axis to share out, and the levels that axes were split into so far."""

    axis: Axis

    def rows(self, lane: Axis | None) -> tuple[Action, ...]:
        """Work-items along the reduction, side by side; several outputs where it is short."""
        axis, ask, target = self.axis, self.ask, self.target
        sizes = [n for n in item_counts(target, axis.extent) if n > 1] or [1]
        items = ask.pick("group.size", sizes, nearest(sizes, row_items(target, axis.extent)))
        outer, inner = "", ""
        if lane is not None:
            counts = item_counts(target, lane.extent, items)
            most = max(1, self.kernel.points // max(1, target.threads))
            few = nearest(counts, max(1, min(most, GROUP_ITEMS // 4 // items)))
            outer, inner = self.levels.split(lane.name, (ask.pick("group.rows", counts, few),))
        size = contiguous_itemsize(self.kernel, self.kernel.reduces[0], axis)
        wide, usual = wide_counts(target, axis.extent, items, size)
        each = ask.pick("group.each", wide, usual)
        last, side = self.levels.split(axis.name, (items * each, each))[1:]
        made = [*self.levels.actions, *self._threads(lane, outer)]
        made += self.levels.each(Local, inner)
        made += self.levels.each(Unroll, side if each > 1 else "")
        return (*made, *self.levels.each(Group, last))

    def columns(self, lane: Axis) -> tuple[Action, ...]:
        """Work-items along the outputs, and several of those rows, each with a part of the sum."""
        axis, ask, target = self.axis, self.ask, self.target
        counts = item_counts(target, lane.extent)
        count = ask.pick("group.lanes", counts, nearest(counts, _LANES))
        outer, inner = self.levels.split(lane.name, (count,))
        parts = item_counts(target, axis.extent, count)
        part = ask.pick("group.parts", parts, nearest(parts, _parts(count, axis.extent)))
        last, inside = self.levels.split(axis.name, (-(-axis.extent // part),))
        made: list[Action] = list(self.levels.actions)
        if self.levels.extent(last) > 1:
            rest = [a.name for a in self.kernel.reduces[0].axes if a is not axis]
            order = (*self._groups(lane, outer), last, inner, *rest, inside)
            made += [Group(last), Reorder(tuple(x for x in order if x))]
        made += self._threads(lane, outer)
        return (*made, *self.levels.each(Local, inner))

    def _groups(self, lane: Axis | None, outer: str) -> list[str]:
        return [*(a.name for a in self.kernel.axes if a is not lane), *([outer] if outer else [])]

    def _threads(self, lane: Axis | None, outer: str) -> list[Action]:
        return self.levels.each(Thread, *self._groups(lane, outer))


def sketch_item_rows(kernel: Kernel, target: Target, ask: Recorder) -> tuple[Action, ...]:
    """Asks for the decisions of the sketch and returns its actions.

        group                                             item
        for rows0 on work-groups:                         for rows0 on work-groups:
          for rows1 on work-items:                          for rows1 on work-items:
            each reduction: shared out over work-items        every stage in turn
            the store: its own axis on the same ones

    Where a row is contiguous, the work-items of a group read and store it side by side, each
    several neighbours at once where warps exchange their shares; where neighbouring rows are, an
    item has a row. Each stage reads the row: where an item has 16 elements of it, in loops that are
    unrolled, the compiler keeps them in registers, else they are in a cache after the first time.
    """
    shared = [a for a in kernel.axes if a.extent > 1]
    axes = [lane_axis(kernel, s, _own(s)) for s in kernel.stages]
    longest = max((a.extent for a in axes if a is not None), default=1)
    if not shared and longest == 1:
        return ()
    alone = bool(shared) and not any(r.rows for r in kernel.reduces)  # rows are the group's
    forms = [*(["item"] if alone else []), *(["group"] if longest > 1 else [])]
    beside = (
        bool(shared)
        and output_stride(kernel, shared[-1].name) == 1
        and not _loads_more_apart(kernel, target, longest, 1)
    )
    form = ask.pick("rows.form", forms or ["group"], 0 if beside else max(0, len(forms) - 1))
    rows = _Rows(kernel, target, ask, Levels(kernel), shared)
    return rows.item() if form == "item" else rows.group(axes, longest)


def _own(s: KernelStage) -> list[Axis]:
    """The axes that work-items may share out: those of a row, where a stage makes one."""
    axes = s.row or s.axes if isinstance(s, Reduce) else s.axes
    return [a for a in axes if a.extent > 1]


@dataclass(frozen=True, slots=True)
class _Rows(Sketch):
    """One kernel, its shared axes, and the levels that its axes were split into so far."""

    shared: list[Axis]

    def item(self) -> tuple[Action, ...]:
        """A work-item for each point of the shared axes."""
        last = self.shared[-1]
        counts = item_counts(self.target, last.extent)
        items = self.ask.pick("items", counts, nearest(counts, GROUP_ITEMS // 4))
        placed = self._placed(self.levels.split(last.name, (items,)))
        return (*self.levels.actions, *placed)

    def group(self, axes: list[Axis | None], longest: int) -> tuple[Action, ...]:
        """Work-items for each row, and several rows a group where they are short."""
        counts = item_counts(self.target, longest)
        items = self.ask.pick("row.items", counts, nearest(counts, row_items(self.target, longest)))
        loops = ["", ""]
        if self.shared:
            last = self.shared[-1]
            rows = item_counts(self.target, last.extent, items)
            most = max(1, last.extent // max(1, self.target.threads))
            few = nearest(rows, min(most, GROUP_ITEMS // 2 // items))
            loops = self.levels.split(last.name, (self.ask.pick("rows", rows, few),))
        kinds: list[Action] = []
        for i, (stage, axis) in enumerate(zip(self.kernel.stages, axes, strict=True)):
            if axis is not None:
                kinds += self._stage(i, stage, axis, items)
        return (*self.levels.actions, *self._placed(loops), *kinds)

    def _placed(self, loops: list[str]) -> list[Action]:
        groups = [*(a.name for a in self.shared[:-1]), *([loops[0]] if loops[0] else [])]
        return [*self.levels.each(Thread, *groups), *self.levels.each(Local, loops[1])]

    def _stage(self, i: int, stage: KernelStage, axis: Axis, items: int) -> list[Action]:
        """A stage's own axis on the work-items; a vector each of a store where a row has enough."""
        folded = any(r.rows for r in self.kernel.reduces)
        most = axis.extent if folded else 2 * axis.extent - 1  # a row and its readers differ
        mine = min(items, max(n for n in powers(items) if n <= most))
        if isinstance(stage, Reduce) and stage.rows:
            inner = self.levels.split(axis.name, (mine,))[1]
            return self.levels.each(Local, inner)
        if isinstance(stage, Reduce):
            size = contiguous_itemsize(self.kernel, stage, axis)
            wide, usual = wide_counts(self.target, axis.extent, mine, size)
            each = self.ask.pick(f"stage{i}.each", wide, usual)
            inner, side = self.levels.split(axis.name, (mine * each, each))[1:]
            sides = self.levels.each(Unroll, side if each > 1 else "")
            return [*sides, *self.levels.each(Group, inner)]
        width = self.target.lanes(self.kernel.param(stage.param).dtype.itemsize)
        vectors = [1, width] if width > 1 and axis.extent >= mine * width else [1]
        best = len(vectors) - 1 if axis.extent % width == 0 else 0
        each = self.ask.pick(f"stage{i}.each", vectors, best)
        names = self.levels.split(axis.name, (mine * each, each))
        return [*self.levels.each(Local, names[1]), *self.levels.each(Vectorize, names[2])]
