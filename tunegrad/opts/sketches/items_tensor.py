"""Item tensor: products of 16 bits by a matrix unit, as products, convolutions and the like have.

    for m0, n0 on work-groups:
      for m1, n1 on warps:
        for every block of the reductions, in one loop:    copies run ahead of it
          copy operands to shared memory
          for k1:
            m2 x n2 tiles in registers, each by the unit

m is what one factor follows alone, n what the other does, and where the results lie side by side;
neighbouring axes are one loop where they hold whole tiles. All reductions but the unit's own terms
are one loop, so that a convolution waits for its first block alone. A constant is laid out when the
model is loaded, in the order in which blocks are copied. How large blocks are is asked of a model
of cycles (``cycles.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import lru_cache
from math import prod

from tunegrad.ir.kernel import Axis, Kernel
from tunegrad.ir.target import MatrixUnit, Target
from tunegrad.lazy import dataclass

from ..actions import (
    Action,
    Epilogue,
    Fuse,
    Local,
    Pipeline,
    Reorder,
    Stage,
    Tensorcore,
    Thread,
    Unroll,
    Upcast,
)
from ..decisions import Recorder
from ..staging import row_stride
from .analysis import Levels, Sketch, axis_of, output_stride
from .contraction import Contraction, warp_contraction
from .cycles import Block, Problem, blocks_by_cycles, cycles, resident

_MOST = 4
"""Tiles of a warp, or warps, along one loop."""

_READERS = 8
"""Items that load 16 bytes of shared memory at a time, of one row."""

_TRANSPOSED_BYTES, _SPARE_BYTES = 2, 32
"""Bytes of the elements that a warp can load across k; padding of rows of larger elements."""

_HALF_SECTOR = 8
"""Bytes that an item of a unit stores of a row, under which its four items fill half a sector."""

_BENEATH = (2, 4, 8)
"""Numbers of blocks of rows that the grid may visit before the next columns."""

_SLOTS = (4, 3, 2)
"""Steps in shared memory at a time, where copies run ahead."""


def product_cycles(kernel: Kernel, target: Target) -> float | None:
    """Cycles of a kernel by the model, in blocks that suit it; None where no unit multiplies it."""
    found = warp_contraction(kernel, target)
    if found is None:
        return None
    extents = (prod(a.extent for a in axes) for axes in (found.both, found.m, found.n))
    problem = _problem(kernel, found, *extents)
    blocks = _ranked(problem, found.unit, target)
    fitting = (b for b in blocks if found.k.extent % b.depth == 0)
    best = next(fitting, None)
    return None if best is None else cycles(best, problem, found.unit, target)


@lru_cache(maxsize=64)
def _ranked(problem: Problem, unit: MatrixUnit, target: Target) -> tuple[Block, ...]:
    """Blocks by the model, best first. Every schedule of a kernel asks for them."""
    return tuple(blocks_by_cycles(problem, unit, target, _slot_counts(target)))


def _problem(kernel: Kernel, found: Contraction[MatrixUnit], batch: int, m: int, n: int) -> Problem:
    terms = prod(a.extent for a in kernel.reduces[0].axes)
    stored = max(kernel.param(s.param).dtype.itemsize for s in kernel.stores)
    size = kernel.param(found.a.param).dtype.itemsize
    return Problem(batch, m, n, terms, size, stored, _spare(found, size))


def _lies_along_n(p: Contraction[MatrixUnit]) -> bool:
    """True if the factor that n follows lies in rows along it; no constant does."""
    along = any(p.b.stride(a.name) == 1 for a in p.n)
    return p.b.role != "const" and p.b.stride(p.k.name) != 1 and along


def _spare(p: Contraction[MatrixUnit], size: int) -> int:
    """Bytes that such rows are longer, where they are not loaded by warps (``opts.staging``)."""
    return _SPARE_BYTES if size > _TRANSPOSED_BYTES and _lies_along_n(p) else 0


def _slot_counts(target: Target) -> tuple[int, ...]:
    return (*(_SLOTS if target.copies_ahead else ()), 1)


def sketch_tensor(
    kernel: Kernel, target: Target, product: Contraction[MatrixUnit], ask: Recorder
) -> tuple[Action, ...]:
    """Asks for the decisions of the sketch and returns its actions."""
    return _Tensor(kernel, target, ask, Levels(kernel), product).actions()


@dataclass(frozen=True, slots=True)
class _Tensor(Sketch):
    """One kernel, and the levels that its axes were split into so far."""

    found: Contraction[MatrixUnit]
    fused: dict[str, list[str]] = field(default_factory=dict)
    """The axes of fused loops, by name."""

    def actions(self) -> tuple[Action, ...]:
        p, ask = self.found, self.ask
        rows, columns, depth = p.unit.shape
        fused: list[Action] = []
        m, m_rest = self._run("m", p.m, rows, fused)
        n, n_rest = self._run("n", p.n, columns, fused)
        best = self._best(m, n, [*p.both, *m_rest, *n_rest])
        high = self._count("m.tiles", m, rows, best.tiles[0])
        wide = self._count("n.tiles", n, columns, best.tiles[1])
        tall = self._count("m.warps", m, rows * high, best.warps[0])
        beside = self._count("n.warps", n, columns * wide, best.warps[1])
        beneath = self._beneath(m, tall * high * rows, n, beside * wide * columns)
        blocks, *along = self.levels.split(
            m, (beneath * tall * high * rows, tall * high * rows, high * rows, rows)
        )
        across = self.levels.split(n, (beside * wide * columns, wide * columns, columns))
        sizes = [s for s in _multiples(depth) if p.k.extent % s == 0]
        size = ask.pick("k.block", sizes, sizes.index(best.depth))
        fused += self._reductions_last()
        steps = self.levels.split(p.k.name, (size, depth))
        outer = self._one_loop(steps[0])
        groups = [a.name for a in (*p.both, *m_rest, *n_rest)]
        groups += [x for x in (blocks, across[0], along[0]) if x]
        items = [x for x in (along[1], across[1]) if x]
        registers = [x for x in (along[2], across[2]) if x]
        inner = [steps[1]] if steps[1] else []
        unit = [along[3], across[3], steps[2]]
        # Registers run innermost wherever they stand; before the reductions, no step on the way
        # makes partial sums.
        order = (*groups, *items, *registers, *unit[:2], *([outer] if outer else []), *inner)
        made: list[Action] = [*fused, *self.levels.actions, Reorder((*order, unit[2]))]
        made += self.levels.each(Thread, *groups)
        made += self.levels.each(Local, *items)
        made += self.levels.each(Upcast, *registers)
        made += self.levels.each(Unroll, *inner)
        made.append(Tensorcore(p.unit.name, *unit))
        low, side = self._tiled(unit[0], p.unit.rows), self._tiled(unit[1], p.unit.pair)
        mine = [*along[1:3], *low], [*across[1:3], *side], [*inner, unit[2]]
        parts = [[x for x in part if x] for part in mine]
        made += self._staged(best, groups, outer, *parts)
        slots = next((a.slots for a in made if isinstance(a, Pipeline)), 1)
        loops = [x for x in mine[1] if x]
        return (*made, *self._epilogue(Block((high, wide), (tall, beside), size, slots), n, loops))

    # sizes

    def _best(self, m: str, n: str, groups: Sequence[Axis]) -> Block:
        """The block of the fewest cycles by the model that the loops hold."""
        unit, k = self.found.unit, self.found.k
        extents = self.levels.extent(m), self.levels.extent(n)
        problem = _problem(self.kernel, self.found, prod(a.extent for a in groups), *extents)
        for b in _ranked(problem, unit, self.target):
            held = all(
                part % made == 0 if self._is_fused(loop) else made < 2 * part
                for loop, part, made in zip((m, n), extents, b.extents(unit), strict=True)
            )
            if held and k.extent % b.depth == 0:
                return b
        return Block((1, 1), (1, 1), unit.shape[2], 1)

    def _is_fused(self, loop: str) -> bool:
        return loop in self.fused

    def _count(self, what: str, loop: str, size: int, wanted: int) -> int:
        """Pick a number of tiles of ``size``: one that a loop holds, or one axis alone in part."""
        extent, fused = self.levels.extent(loop), self._is_fused(loop)
        counts = [1]
        while counts[-1] < max(_MOST, wanted) and 2 * counts[-1] * size < 2 * extent:
            counts.append(2 * counts[-1])
        counts = [n for n in counts if not fused or extent % (n * size) == 0]
        return self.ask.pick(what, counts, counts.index(wanted) if wanted in counts else 0)

    def _beneath(self, m: str, rows: int, n: str, columns: int) -> int:
        """Pick how many blocks of rows follow each other before the next columns: near groups read
        the same columns then, and fewer rows; by default all groups of a row follow each other.
        """
        high, wide = (self.levels.extent(x) // y for x, y in ((m, rows), (n, columns)))
        counts = [1, *(c for c in _BENEATH if wide > 1 and c < high and high % c == 0)]
        return self.ask.pick("order", counts, 0) if len(counts) > 1 else 1

    # loops

    def _tiled(self, loop: str, size: int) -> list[str]:
        """The names of a loop's two halves once the unit has it."""
        root = loop.rstrip("0123456789")
        level = int(loop[len(root) :] or 0)
        extent = self.levels.loops.pop(loop)
        names = [f"{root}{level}", f"{root}{level + 1}"]
        self.levels.loops[names[0]], self.levels.loops[names[1]] = extent // size, size
        return names

    def _axes(self, loop: str) -> list[str]:
        """The axes of a loop: of a fused one, those that its name is made of."""
        if loop in self.fused:
            return self.fused[loop]
        root = axis_of(loop)
        return self.fused.get(root, [root])

    def _run(
        self, what: str, axes: tuple[Axis, ...], size: int, fused: list[Action]
    ) -> tuple[str, list[Axis]]:
        """The loop that is split for the unit, and the axes that are left for the groups."""
        order = [a.name for a in self.kernel.axes]
        last = axes[-1]
        together = [last]
        for a in reversed(axes[:-1]):
            if order.index(together[0].name) - order.index(a.name) != 1:
                break
            together.insert(0, a)
        extent = prod(a.extent for a in together)
        whole = len(together) > 1 and extent % size == 0
        if not (whole and self.ask.pick(f"{what}.fuse", [True, False])):
            # Below half of the unit a loop can not be padded to it.
            longest = max(axes, key=lambda a: (min(2, 2 * a.extent // size), a is last, a.extent))
            return longest.name, [a for a in axes if a is not longest]
        return self._fuse([a.name for a in together], fused), [a for a in axes if a not in together]

    def _fuse(self, loops: list[str], into: list[Action]) -> str:
        """One loop of neighbours; what it is called."""
        name, extent = loops[0], self.levels.loops.pop(loops[0])
        axes = list(self._axes(name))
        for other in loops[1:]:
            into.append(Fuse(name, other))
            extent *= self.levels.loops.pop(other)
            axes += self._axes(other)
            name = f"{name}{other}f"
        self.levels.loops[name], self.fused[name] = extent, axes
        return name

    @property
    def _others(self) -> list[str]:
        """The reductions besides the one that the unit adds up."""
        axes = self.kernel.reduces[0].axes
        return [a.name for a in axes if a is not self.found.k and a.extent > 1]

    def _reductions_last(self) -> list[Action]:
        """The unit's own reduction after the others, which become one loop."""
        found = [a.name for a in self.kernel.reduces[0].axes if a.extent > 1]
        wanted = [*self._others, self.found.k.name]
        return [] if found == wanted else [Reorder(tuple(wanted))]

    def _one_loop(self, blocks: str) -> str:
        """All reductions around a block of the unit's own, as one loop; "" for none."""
        loops = [*self._others, *([blocks] if blocks else [])]
        return self._fuse(loops, self.levels.actions) if len(loops) > 1 else "".join(loops)

    # operands

    def _staged(
        self, best: Block, groups: list[str], at: str, m: list[str], n: list[str], k: list[str]
    ) -> list[Action]:
        """Stage what several warps read in shared memory for a block of k, with copies that run
        ahead.

        Rows are along k, which work-items read in pairs, unless they lie along n. A constant is
        packed when the model is loaded, block after block.
        """
        slots = self._slots(best, at)
        made: list[Action] = []
        left = self.target.shared_bytes // slots
        staged = False
        for x, loops in ((self.found.a, m), (self.found.b, n)):
            layout, constant = [*loops, *k], x.role == "const"
            size = self.kernel.param(x.param).dtype.itemsize
            nbytes = size * prod(map(self.levels.extent, layout))
            if x is self.found.b and _lies_along_n(self.found):
                layout = [*k, *loops]
                nbytes += _spare(self.found, size) * prod(map(self.levels.extent, k))
            around = [g for g in (*groups, at) if g and any(x.depends(a) for a in self._axes(g))]
            if constant and self.ask.pick(f"pack.{x.param}", [True, False]):
                made.append(Stage(x.param, "load", self._used([*around, *layout])))
            if at and nbytes <= left and self.ask.pick(f"stage.{x.param}", [True, False]):
                made.append(Stage(x.param, at, self._used(layout)))
                left -= nbytes
                staged = True
        return [*made, Pipeline(at, slots)] if staged and slots > 1 else made

    def _epilogue(self, block: Block, n: str, loops: list[str]) -> list[Action]:
        """Results through shared memory, where they lie side by side along n and a run of 16 bytes
        is longer than what an item holds. By default where no group has to wait for the memory.
        """
        (first, *_) = self.kernel.stores
        param, unit, target = self.kernel.param(first.param), self.found.unit, self.target
        columns = prod(map(self.levels.extent, loops))
        wide = _READERS * target.lanes(param.dtype.itemsize)
        if self._is_fused(n) or output_stride(self.kernel, n) != 1 or columns < wide:
            return []
        if any(e & (e - 1) for e in map(self.levels.extent, loops)):
            return []
        problem = _problem(self.kernel, self.found, 1, 1, 1)
        summed = self.kernel.reduces[0].dtype.itemsize
        more = unit.rows * block.warps[0] * row_stride(columns) * summed
        before, after = (resident(block, problem, unit, target, x) for x in (0, more))
        if not after:
            return []
        narrow = param.dtype.itemsize * unit.pair < _HALF_SECTOR
        chosen = self.ask.pick("epilogue", [False, True], int(after == before and narrow))
        return [Epilogue(first.param)] if chosen else []

    def _slots(self, best: Block, at: str) -> int:
        """Steps in shared memory at a time: 1 where copies do not run ahead."""
        most = self.levels.extent(at)
        options = [s for s in (1, *reversed(_SLOTS)) if s <= most]
        return self.ask.pick(
            "slots", options, options.index(best.slots) if best.slots in options else 0
        )

    def _used(self, loops: list[str]) -> tuple[str, ...]:
        return tuple(n for n in loops if self.levels.extent(n) > 1)


def _multiples(depth: int) -> tuple[int, ...]:
    """Terms of a step that a search may try."""
    return depth, 2 * depth, 4 * depth
