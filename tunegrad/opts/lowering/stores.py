"""Stores of results: where they go, and the loops around them."""

from __future__ import annotations

from tunegrad.ir.index import Index, Valid
from tunegrad.ir.kernel import Store
from tunegrad.ir.looptree import Loop, LoopKind

from .shares import on_first, on_items
from .stage_loops import Env, Limits, StageLoops
from .values import Point, Values, fix, fix_valid

__all__ = ["Stores"]


class Stores(StageLoops):
    """Emits stages that store."""

    def own_items(self, i: int) -> Loop | None:
        """The loop of a stage that work-items share out."""
        return next((x for x in self.tree.own(i) if x.kind is LoopKind.LOCAL), None)

    def target(self, values: Values, s: Store) -> tuple[Index, Valid]:
        """The offset that a store writes, and the condition on it, over loops."""
        layout = self.tree.kernel.param(s.param).layout
        axes = {a.name for a in (*self.tree.kernel.axes, *s.axes)}
        valid = (values.masks(axes) & values.needed(s.valid)).substitute(values.env)
        return layout.offset([values.over(x) for x in s.index]), valid

    def target_at(
        self, values: Values, target: tuple[Index, Valid], p: Point, active: int | None
    ) -> tuple[Index, Valid]:
        """A target at one point, and only in the active lanes."""
        offset, valid = fix(target[0], p), fix_valid(target[1], p)
        return offset, valid if active is None else valid & values.first_lanes(active)

    def store_stage(self, i: int, s: Store, limits: Limits) -> None:
        tree, lane = self.tree, self.lanes_of[i]
        own = [x for x in tree.own(i) if x.kind.is_register]

        def body(env: Env, inner: Limits) -> None:
            values = self.values(i, env)
            target = self.target(values, s)
            for p in self.points([*tree.shared_registers, *own], inner, lane):
                active = self.active(lane, p, inner)
                offset, valid = self.target_at(values, target, p, active)
                value = values.emit(s.expr, p, active)
                dtype = tree.kernel.param(s.param).dtype
                stream = s.param in tree.streamed
                self.b.store(
                    s.param, offset, valid, value, dtype, values.lane, values.lanes, stream
                )

        local = self.own_items(i)
        if local is None:
            on_first(tree, self.b, lambda: self.loops(i, 0, {}, limits, body))
        else:
            on_items(tree, self.b, local, lambda: self.loops(i, 0, {}, limits, body), once=True)
