"""Item tensor: products of 16 bits by a matrix unit, as products, convolutions and the like have.

    for m0, n0 on work-groups:
      for m1, n1 on warps:
        for the other reductions, k0:
          copy operands to shared memory
          for k1:
            m2 x n2 tiles in registers, each by the unit

m is what one factor follows alone, n what the other does, and where the results lie side by side;
neighbouring axes are one loop where they hold whole tiles. A constant is laid out for the unit when
the model is loaded, and read by the warps as they need it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from tunegrad.ir.expr import Apply, Cast, Load, Op
from tunegrad.ir.kernel import Axis, Kernel, Reduce
from tunegrad.ir.target import MatrixUnit, Target

from ..actions import Action, Fuse, Local, Reorder, Stage, Tensorcore, Thread, Unroll, Upcast
from ..choosing import Recorder
from .analysis import Access, accesses, output_stride
from .tiling import Levels, axis_of

__all__ = ["Product", "product_of", "sketch_tensor"]

_TILES = (2, 4)
"""Tiles of the unit that a warp holds along m and along n: 32 x 32 results, 32 registers."""

_WARPS = 2
"""Warps of a default group along m, and along n: a block of 64 x 64."""

_MOST = 4
"""Tiles of a warp, or warps, along one loop."""

_STEPS = 32
"""Steps of k between two barriers."""


@dataclass(frozen=True, slots=True)
class Product:
    """A kernel that a matrix unit can run: the axes of m, of n (results lie side by side), those
    that both factors follow, and the reduction that is k.
    """

    unit: MatrixUnit
    a: Access
    b: Access
    m: tuple[Axis, ...]
    n: tuple[Axis, ...]
    both: tuple[Axis, ...]
    k: Axis


def product_of(kernel: Kernel, target: Target) -> Product | None:
    """The kernel as a product for a unit of the target; None where it is none."""
    if len(kernel.reduces) != 1 or any(s.axes for s in kernel.stores):
        return None
    stage = kernel.reduces[0]
    loads = _factors(stage)
    unit = next((u for u in target.units if _fits(u, stage, loads)), None)
    if unit is None:
        return None
    by_param = {x.param: x for x in accesses(kernel, stage)}
    if len(by_param) != 2:
        return None
    one, other = (by_param[x.param] for x in loads)
    shared = [a for a in kernel.axes if a.extent > 1]
    k = [
        a
        for a in stage.axes
        if a.extent % unit.shape[2] == 0 and one.depends(a.name) and other.depends(a.name)
    ]
    if not k:
        return None
    depth = min(k, key=lambda a: (one.stride(a.name) != 1, -a.extent))
    for x, y in sorted(((one, other), (other, one)), key=lambda pair: _crosses(kernel, pair[0])):
        m, n = (
            tuple(a for a in shared if z.depends(a.name) and not w.depends(a.name))
            for z, w in ((x, y), (y, x))
        )
        if _holds(m, unit.shape[0]) and _holds(n, unit.shape[1]):
            both = tuple(a for a in shared if a not in m and a not in n)
            return Product(unit, x, y, m, n, both, depth)
    return None


def _crosses(kernel: Kernel, a: Access) -> bool:
    """Whether results lie side by side along what a factor follows: that of n should."""
    return any(output_stride(kernel, x.name) == 1 and a.depends(x.name) for x in kernel.axes)


def _holds(axes: tuple[Axis, ...], size: int) -> bool:
    """Whether a loop of these axes is long enough for the unit: half of it at least."""
    return bool(axes) and 2 * max(a.extent for a in axes) >= size


def _factors(stage: Reduce) -> tuple[Load, ...]:
    """The two loads that are multiplied and added; none where that is not what a stage does."""
    x = stage.expr
    if stage.op is not Op.ADD or not isinstance(x, Apply) or x.op is not Op.MUL:
        return ()
    found = (y.x if isinstance(y, Cast) else y for y in x.args)
    loads = tuple(y for y in found if isinstance(y, Load))
    return loads if len(loads) == 2 else ()


def _fits(unit: MatrixUnit, stage: Reduce, loads: Sequence[Load]) -> bool:
    taken, gives = unit.dtypes
    return bool(loads) and stage.dtype.name == gives and all(x.dtype.name == taken for x in loads)


def sketch_tensor(
    kernel: Kernel, target: Target, product: Product, ask: Recorder
) -> tuple[Action, ...]:
    """Asks for the decisions of the sketch and returns its actions."""
    return _Tensor(kernel, target, ask, product, Levels(kernel)).actions()


@dataclass(frozen=True, slots=True)
class _Tensor:
    """One kernel, and the levels that its axes were split into so far."""

    kernel: Kernel
    target: Target
    ask: Recorder
    found: Product
    levels: Levels
    fused: dict[str, list[str]] = field(default_factory=dict)
    """The axes of fused loops, by name."""

    def actions(self) -> tuple[Action, ...]:
        p, ask = self.found, self.ask
        rows, columns, depth = p.unit.shape
        fused: list[Action] = []
        m, m_rest = self._run("m", p.m, rows, fused)
        n, n_rest = self._run("n", p.n, columns, fused)
        high = self._count("m.tiles", m, rows, _TILES[0])
        wide = self._count("n.tiles", n, columns, _TILES[1])
        tall = self._count("m.warps", m, rows * high, _WARPS)
        beside = self._count("n.warps", n, columns * wide, _WARPS)
        along = self.levels.split(m, (tall * high * rows, high * rows, rows))
        across = self.levels.split(n, (beside * wide * columns, wide * columns, columns))
        sizes = [n for n in (_STEPS, 2 * _STEPS, _STEPS // 2) if p.k.extent % n == 0]
        size = ask.pick("k.block", sizes or [depth])
        steps = self.levels.split(p.k.name, (size, depth))
        rest = [a.name for a in self.kernel.reduces[0].axes if a is not p.k and a.extent > 1]
        groups = [a.name for a in (*p.both, *m_rest, *n_rest)]
        groups += [x for x in (along[0], across[0]) if x]
        items = [x for x in (along[1], across[1]) if x]
        registers = [x for x in (along[2], across[2]) if x]
        outer = [*rest, *([steps[0]] if steps[0] else [])]
        inner = [steps[1]] if steps[1] else []
        unit = [along[3], across[3], steps[2]]
        # Registers run innermost wherever they stand; before the reductions, no step on the way
        # makes partial sums.
        order = (*groups, *items, *registers, *unit[:2], *outer, *inner)
        made: list[Action] = [*fused, *self.levels.actions, Reorder((*order, unit[2]))]
        made += [Thread(x) for x in groups if self.levels.extent(x) > 1]
        made += [Local(x) for x in items if self.levels.extent(x) > 1]
        made += [Upcast(x) for x in registers if self.levels.extent(x) > 1]
        made += [Unroll(x) for x in inner if self.levels.extent(x) > 1]
        made.append(Tensorcore(p.unit.name, *unit))
        low, side = self._tiled(unit[0], p.unit.rows), self._tiled(unit[1], p.unit.pair)
        mine = [*along[1:3], *low], [*across[1:3], *side], [*inner, unit[2]]
        at = outer[-1] if outer else ""
        staged = self._staged(p, at, *([x for x in part if x] for part in mine))
        everything = [*groups, *outer, *items, *inner, *registers, *low, *side, unit[2]]
        return (*made, *staged, *self._packed(everything))

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
            longest = max(axes, key=lambda a: (a.extent >= size, a is last, a.extent))
            return longest.name, [a for a in axes if a is not longest]
        name = together[0].name
        self.levels.loops.pop(name)
        for a in together[1:]:
            fused.append(Fuse(name, a.name))
            self.levels.loops.pop(a.name)
            name = f"{name}{a.name}f"
        self.levels.loops[name] = extent
        self.fused[name] = [a.name for a in together]
        return name, [a for a in axes if a not in together]

    def _count(self, what: str, loop: str, size: int, wanted: int) -> int:
        """How many tiles of ``size``: what a loop holds whole, and one axis alone in part."""
        extent, fused = self.levels.extent(loop), loop.endswith("f")
        counts = [1]
        while counts[-1] < _MOST and 2 * counts[-1] * size <= extent:
            counts.append(2 * counts[-1])
        counts = [n for n in counts if not fused or extent % (n * size) == 0]
        even = [n for n in counts if n <= wanted and extent % (n * size) == 0]
        return self.ask.pick(what, counts, counts.index(max(even, default=1)))

    def _staged(self, p: Product, at: str, m: list[str], n: list[str], k: list[str]) -> list[Stage]:
        """What several warps read, in shared memory for a block of k.

        Its rows are along k, which work-items read in pairs, unless it lies along n.
        """
        made: list[Stage] = []
        left = self.target.shared_bytes
        for x, loops in ((p.a, m), (p.b, n)):
            layout = [*loops, *k]
            if x is p.b and x.stride(p.k.name) != 1 and any(x.stride(a.name) == 1 for a in p.n):
                layout = [*k, *loops]
            nbytes = self.kernel.param(x.param).dtype.itemsize * prod(
                self.levels.extent(name) for name in layout
            )
            if not at or x.role == "const" or nbytes > left:
                continue
            if self.ask.pick(f"stage.{x.param}", [True, False]):
                made.append(Stage(x.param, at, self._used(layout)))
                left -= nbytes
        return made

    def _packed(self, loops: list[str]) -> list[Stage]:
        """Constants in the order of their use, since the load."""
        p, made = self.found, []
        for x in (p.a, p.b):
            mine = [n for n in loops if any(x.depends(a) for a in self._axes(n))]
            if x.role == "const" and self.ask.pick(f"pack.{x.param}", [True, False]):
                made.append(Stage(x.param, "load", self._used(mine)))
        return made

    def _used(self, loops: list[str]) -> tuple[str, ...]:
        return tuple(n for n in loops if self.levels.extent(n) > 1)
