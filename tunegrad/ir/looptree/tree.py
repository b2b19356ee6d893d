"""The tree itself, where its loops run, and what they hold in registers."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from tunegrad.errors import IllegalAction

from ..expr import Load
from ..index import Index
from ..kernel import Kernel, Reduce, Stage, loads
from ..target import Target
from .loops import LANES, Loop, LoopKind, MatrixTile, Staged, TileLoops
from .rules import check
from .text import lines

__all__ = ["LoopTree", "accumulators", "loop_tree", "operand"]


@dataclass(frozen=True, slots=True)
class LoopTree:
    """A schedule's state.

    ``index`` gives each axis as a sum over loop names; ``padded`` axes run to a multiple, masked.
    """

    kernel: Kernel
    target: Target
    loops: tuple[Loop, ...]
    index: tuple[tuple[str, Index], ...]
    staged: tuple[Staged, ...] = ()
    padded: tuple[str, ...] = ()
    kept: tuple[int, ...] = ()
    streamed: tuple[str, ...] = ()
    prefetched: tuple[tuple[str, int], ...] = ()
    matrix: MatrixTile | TileLoops | None = None
    pipelined: tuple[str, int] | None = None
    """The loop whose copies run ahead, and how many iterations have a place in shared memory."""
    epilogue: str = ""
    """The output whose neighbours decide which item stores which of a group's sums; "" where each
    stores what it holds.
    """
    _region: int = field(default=-1, init=False, repr=False, compare=False)

    def loop(self, name: str) -> Loop:
        """The loop of that name; IllegalAction lists the ones there are."""
        for found in self.loops:
            if found.name == name:
                return found
        names = ", ".join(x.name for x in self.loops)
        raise IllegalAction(f"no loop {name!r} in kernel {self.kernel.name}; its loops are {names}")

    def position(self, name: str) -> int:
        """Position of the loop in the list."""
        for i, found in enumerate(self.loops):
            if found.name == name:
                return i
        return self.loops.index(self.loop(name))  # there is none: this says so

    def axis_index(self, axis: str) -> Index:
        """The axis as a sum over loops."""
        for name, index in self.index:
            if name == axis:
                return index
        raise KeyError(axis)

    def extent(self, axis: str) -> int:
        """The axis's true extent."""
        return next(a.extent for a in self.kernel.all_axes() if a.name == axis)

    def nominal(self, axis: str) -> int:
        """The extent that its loops cover; more than ``extent`` when a tile does not divide it."""
        return self.axis_index(axis).hi + 1

    def with_loop(self, old: Loop, *new: Loop) -> LoopTree:
        """The tree with one loop replaced in place."""
        at = self.position(old.name)
        return self.with_loops(self.loops[:at] + new + self.loops[at + 1 :])

    def with_loops(
        self, loops: tuple[Loop, ...], index: tuple[tuple[str, Index], ...] | None = None
    ) -> LoopTree:
        """The tree with other loops, and the axes as sums over them; all else stays."""
        return LoopTree(  # many a microsecond faster than replace()
            self.kernel, self.target, loops, self.index if index is None else index,
            self.staged, self.padded, self.kept, self.streamed, self.prefetched, self.matrix,
            self.pipelined, self.epilogue,
        )  # fmt: skip

    @property
    def region(self) -> int:
        """Position in the list where the region begins."""
        if self._region < 0:  # once: most rules ask
            begin = 0
            for i, loop in enumerate(self.loops):
                if loop.stage < 0 and not loop.kind.is_register:
                    begin = i + 1
            object.__setattr__(self, "_region", begin)
        return self._region

    @property
    def outer(self) -> tuple[Loop, ...]:
        """The loops around the region, outermost first."""
        return tuple([x for x in self.loops[: self.region] if _is_around(x)])

    @property
    def partial(self) -> tuple[Loop, ...]:
        """The reduce loops around the region: those between which partial sums live in memory."""
        own = [x for x in self.loops[: self.region] if x.stage >= 0 and x.extent > 1]
        return tuple([x for x in own if _is_around(x)])

    @property
    def shared_registers(self) -> tuple[Loop, ...]:
        """Register loops of shared axes, in list order."""
        return tuple([x for x in self.loops if x.stage < 0 and x.kind.is_register])

    def own(self, stage: int) -> tuple[Loop, ...]:
        """The loops of one stage inside the region: serial ones, then register ones, each in list
        order.
        """
        begin = self.region
        mine = [x for x in self.loops[begin:] if x.stage == stage and not x.kind.is_register]
        if self.target.max_local:  # work-items begin with the stage
            before = [x for x in self.loops[:begin] if x.stage == stage]
            mine = [*(x for x in before if x.kind is LoopKind.LOCAL), *mine]
        return (*mine, *[x for x in self.loops if x.stage == stage and x.kind.is_register])

    @property
    def items(self) -> int:
        """Work-items of a group: those of shared loops, for each of a stage's own."""
        shared = prod([x.extent for x in self.loops if x.kind is LoopKind.LOCAL and x.stage < 0])
        return shared * self.own_items

    @property
    def own_items(self) -> int:
        """The most work-items among which a stage shares out its own loops."""
        local = [x for x in self.loops if x.kind is LoopKind.LOCAL]
        return max([x.extent for x in local if x.stage >= 0], default=1)

    def item_stride(self, loop: Loop) -> int:
        """Distance between neighbouring iterations of a local loop, in numbers of work-items.

        Loops that stand further in vary faster. All stages' own loops take one place: inside the
        shared ones, or around them.
        """
        local = [x for x in self.loops if x.kind is LoopKind.LOCAL]
        own_inside = not any(x.stage >= 0 for x in local[:1])
        if loop.stage >= 0:
            return 1 if own_inside else self.items // self.own_items
        later = prod([x.extent for x in local[local.index(loop) + 1 :] if x.stage < 0])
        return later * (self.own_items if own_inside else 1)

    def lane_loop(self, stage: int) -> Loop | None:
        """The loop whose iterations are vector lanes in this stage."""
        for x in self.loops:
            if x.kind in LANES and x.stage in (-1, stage):
                return x
        return None

    def inside(self, at: str) -> tuple[Loop, ...]:
        """The loops that run inside loop ``at``: those after it, and all register loops; "" and
        "load" mean all.
        """
        if at in ("", "load"):
            return self.loops
        begin = self.position(at)
        return tuple(x for i, x in enumerate(self.loops) if i > begin or x.kind.is_register)

    def checked(self) -> LoopTree:
        """The tree itself, or IllegalAction when the list breaks a rule of its form."""
        check(self)
        return self

    def __str__(self) -> str:
        return "\n".join(lines(self))


def _is_around(loop: Loop) -> bool:
    """True if a loop that stands before the end of the shared ones is around the region.

    Registers are not, nor are work-items that share out a stage: they begin with the stage.
    """
    return not loop.kind.is_register and not (loop.kind is LoopKind.LOCAL and loop.stage >= 0)


def loop_tree(kernel: Kernel, target: Target) -> LoopTree:
    """The unscheduled nest: every axis one serial loop, shared axes first, then each stage's
    own.
    """
    loops = [Loop(a.name, a.extent, (a.name,), -1, False) for a in kernel.axes]
    for i, s in enumerate(kernel.stages):
        folds = s.folds if isinstance(s, Reduce) else ()
        loops += [Loop(a.name, a.extent, (a.name,), i, a in folds) for a in s.axes]
    return LoopTree(
        kernel, target, tuple(loops), tuple((a.name, a.index) for a in kernel.all_axes())
    )


def operand(tree: LoopTree, param: str) -> tuple[int, Load]:
    """The first stage that loads ``param`` and its one load there, which staging replaces; other
    stages keep theirs.

    IllegalAction when that stage loads it in several places or at elements of another one, whose
    values no region bounds, or none does.
    """
    found: list[tuple[Stage, Load]] = []
    for s, x in loads(tree.kernel):
        if x.param == param and (not found or (found[0][0] is s and (s, x) not in found)):
            found.append((s, x))
    if len(found) != 1:
        raise IllegalAction(
            f"stage(param={param}): a stage of kernel {tree.kernel.name} loads it in "
            f"{len(found)} places; needs one"
        )
    if any(True for i in found[0][1].index for _ in i.elements()):
        raise IllegalAction(f"stage(param={param}): where it is read depends on data")
    return tree.kernel.stages.index(found[0][0]), found[0][1]


def accumulators(t: LoopTree, stage: int) -> int:
    """Register variables that the accumulators of a reduce stage take (each one lane-loop wide)."""
    lane = t.lane_loop(stage)
    inner = [x for x in t.own(stage) if x.kind is LoopKind.UPCAST or not x.reduce]
    inner = [x for x in inner if x.kind.is_register]
    return prod(x.extent for x in (*t.shared_registers, *inner) if x is not lane)
