"""Emits the region: accumulators in registers, each stage's loops, the epilogue.

if the tile is full:                       (split axes; once more for the remainder)
    registers = identity
    for own serial loops:                  (a last, partial iteration is peeled)
        registers op= expr                 for every point of the register loops (long f32 sums in
                                           blocks: chains.py)
    fold lanes and copies
    if not the first partial sum: registers op= out
    if the last one: out = epilogue(registers)   else: out = registers
"""

from __future__ import annotations

from tunegrad.ir.index import NEVER, Range, Valid, as_index
from tunegrad.ir.kernel import Reduce, Store
from tunegrad.ir.looptree import LoopKind, LoopTree
from tunegrad.ir.program import Alloc, Barrier

from ..epilogues import staged_epilogue
from ..keeping import ROW, kept_of
from ..staging import StagedCopy
from .builder import Builder
from .epilogue import slice_alloc, store_by_slices
from .interior import interior
from .reductions import Reductions
from .shape import AxisShape
from .stage_loops import NOTHING, Limits

__all__ = ["Region"]


class Region(Reductions):
    """Emits everything inside the last shared serial loop of a tree into a builder."""

    def __init__(
        self,
        tree: LoopTree,
        builder: Builder,
        plans: dict[tuple[int, str], StagedCopy],
        shapes: dict[str, AxisShape],
    ) -> None:
        super().__init__(tree, builder, plans, shapes)
        for made in tree.kept:
            kept = kept_of(tree, made)
            self.allocs.append(Alloc(kept.buffer, kept.dtype, kept.size, "thread"))
        self.staged_epilogue = staged_epilogue(tree, tree.epilogue) if tree.epilogue else None
        if self.staged_epilogue is not None:
            self.allocs.append(slice_alloc(self.staged_epilogue))

    def emit(self) -> None:
        """The region, without its conditions where they all hold, and split into full and remainder
        tiles.
        """
        inside, conditions = interior(self.tree, self.plans, self.shapes, self.over)
        if inside.always or inside.never:
            self._split(self._splits(), {})
            return

        def knowing(assumed: frozenset[str], refuted: frozenset[str]) -> None:
            self.assumed, self.refuted = assumed, refuted
            self._split(self._splits(), {})
            self.assumed = self.refuted = NOTHING

        only = conditions.intersection(r.key for r in inside if len(inside.ranges) == 1)
        self.branch(inside, lambda: knowing(conditions, NOTHING), lambda: knowing(NOTHING, only))

    def _splits(self) -> list[AxisShape]:
        """The split axes whose finest serial loop is outside the region, so a branch here tells
        full from rest.
        """
        inner = {
            x.axes[0]
            for i in range(len(self.tree.kernel.stages))
            for x in self.tree.own(i)
            if not x.kind.is_register and x.extent > 1 and self.step(x) == self.tile(x.axes[0])
        }
        return [
            s for a, s in self.shapes.items() if s.mode == "split" and s.rest and a not in inner
        ]

    def _split(self, splits: list[AxisShape], limits: Limits) -> None:
        if not splits:
            self._stages(limits)
            return
        s, rest = splits[0], splits[1:]
        zero = {x.name: as_index(0) for x in s.registers}
        base = self.tree.axis_index(s.axis).substitute(zero)
        full = Valid((Range(base, 0, s.extent - s.tile + 1),)) if s.extent >= s.tile else NEVER
        self.branch(
            full,
            lambda: self._split(rest, limits),
            lambda: self._split(rest, {**limits, s.axis: s.rest}),
        )

    def _stages(self, limits: Limits) -> None:
        self.results = {}
        for i, s in enumerate(self.tree.kernel.stages):
            if isinstance(s, Reduce):
                self.reduce(i, s, limits)
        if self.tree.partial:
            return
        if self.staged_epilogue is not None:
            store_by_slices(
                self.tree, self.b, self.staged_epilogue, self.results, self.values_knowing
            )
            return
        for i, s in enumerate(self.tree.kernel.stages):
            if isinstance(s, Store):
                self.store_stage(i, s, limits)
        shared = any(a.space == "shared" and a.name.endswith(ROW) for a in self.allocs)
        if shared and any(x.kind is LoopKind.SERIAL and x.extent > 1 for x in self.tree.outer):
            self.b.add(Barrier())  # before the next rows
