"""Reductions: accumulators in registers, their updates, and the fold of lanes, copies and items.

registers = identity
for own serial loops:
    registers op= expr                 for every point of the register loops
fold lanes and copies

A row does that for each of its elements, and keeps them in scratch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tunegrad.ir.dtypes import F32, F64, I32
from tunegrad.ir.expr import Apply, Expr, Op
from tunegrad.ir.index import ALWAYS
from tunegrad.ir.kernel import Reduce, identity
from tunegrad.ir.looptree import Loop, LoopKind, TileLoops
from tunegrad.ir.program import Alloc, Barrier, MatMul, Read, Register, VType, Write

from ..keeping import row_scratch
from .builder import Known
from .chains import cut_of
from .fragments import Fragments
from .partials import Partials
from .shares import Exchange, Shares, exchanges, on_first, on_items
from .stage_loops import Blocks, Env, Limits, Where
from .tiles import Tiles
from .values import Point, Values, fix, fix_valid, known

__all__ = ["Reductions"]


_WORDS = {(Op.DOT2, F32): Op.DOT2_ADD, (Op.DOT4, I32): Op.DOT4_ADD}
"""Products of words, and the type of their sum, in one operation with it."""


class Reductions(Partials):
    """Emits stages that reduce."""

    def reduce(self, i: int, s: Reduce, limits: Limits) -> None:
        if isinstance(self.tree.matrix, TileLoops):
            self._in_tiles(i, s, limits)
            return
        if s.rows:
            self._row(i, s, limits)
            return
        points = self.points(list(self.tree.shared_registers), limits, self.lanes_of[i])
        self._fold(i, s, Where({}, limits), points)
        if self.tree.partial:
            self.partial_sums(i, s, limits, points)

    def _row(self, i: int, s: Reduce, limits: Limits) -> None:
        """A reduction for every element of a row, whose results go to scratch."""
        tree, b, lane = self.tree, self.b, self.lanes_of[i]
        row = row_scratch(tree, s.name)
        self.allocs.append(Alloc(row.buffer, row.dtype, row.size, row.space))
        around = len([x for x in self.serial(i) if not x.reduce])
        registers = [x for x in tree.own(i) if x.kind.is_register and not x.reduce]
        along = lane is not None and not lane.reduce
        axes = dict(tree.index)

        def element(env: Env, inner: Limits) -> None:
            points = self.points([*tree.shared_registers, *registers], inner, lane)
            self._fold(i, s, Where(env, inner, around), points)
            values = self.values(i, env)
            place = row.offset(tree, [axes[a.name] for a in s.row]).substitute(env)
            held = values.masks({a.name for a in s.row}).substitute(env)
            name, lanes = (values.lane, values.lanes) if along else ("", 1)
            for p in points:
                active = self.active(lane, p, inner) if along else None
                offset, valid = self.target_at(values, (place, held), p, active)
                value = known(self.results.pop((s.name, p)))
                b.store(row.buffer, offset, valid, value, s.dtype, name, lanes)

        def whole() -> None:
            self.loops(i, 0, {}, limits, element, upto=around)

        local = self.own_items(i)
        if local is None:
            on_first(tree, b, whole)
        else:
            on_items(tree, b, local, whole, once=True)
        if row.space == "shared":
            b.add(Barrier())

    def _fold(self, i: int, s: Reduce, where: Where, points: list[Point]) -> None:
        """The loops of what is folded; the results at ``points`` are known then."""
        tree, b, lane = self.tree, self.b, self.lanes_of[i]
        copies = [x for x in tree.own(i) if x.kind is LoopKind.UPCAST and x.reduce]
        vtype = VType(s.dtype, lane.extent if lane else 1)
        spread = self.points(copies, {}, lane)
        for p in points:
            for c in spread:
                b.add(Register(_register(s.name, p + c), vtype))
                b.add(
                    Write(
                        _register(s.name, p + c),
                        b.number(identity(s.op, s.dtype), s.dtype, vtype.lanes),
                        vtype,
                    )
                )
        local = None if s.rows else self.own_items(i)

        def body(env: Env, inner: Limits) -> None:
            self._update(i, s, env, inner, vtype)

        if local is not None:
            self._over_items(i, s, local, where, points, spread, body, vtype)
            return
        self._chain(i, s, where, points, spread, body, vtype)
        for p in points:
            self.results[(s.name, p)] = self._combine(s, p, spread, lane, vtype)

    def _in_tiles(self, i: int, s: Reduce, limits: Limits) -> None:
        """A sum in tile registers, whose rows are loaded where they are read."""
        tiles = Tiles(self.tree, self.b, partial(self.new_values, i), i, limits)
        self.allocs.append(tiles.scratch)
        tiles.emit(lambda update: self.loops(i, 0, {}, limits, update))
        points = self.points(list(self.tree.shared_registers), limits, self.lanes_of[i])
        for p in points:
            self.results[(s.name, p)] = partial(tiles.result, p)
        if self.tree.partial:
            self.partial_sums(i, s, limits, points)

    def _chain(
        self, i: int, s: Reduce, where: Where, points: list[Point], spread: list[Point],
        body: Callable[[Env, Limits], None], vtype: VType,
    ) -> None:  # fmt: skip
        """The loops of a reduction; where its chains are cut, f64 registers take over the sum of
        every block.
        """
        b, cut = self.b, cut_of(self.tree, i)
        if cut is None:
            self.loops(i, where.at, where.env, where.limits, body)
            return
        wide = VType(F64, vtype.lanes)
        names = [_register(s.name, p + c) for p in points for c in spread]
        for name in names:
            b.add(Register(f"{name}.wide", wide))
            b.add(Write(f"{name}.wide", b.number(0.0, F64, wide.lanes), wide))

        def total(name: str) -> Known:
            """The sum of the f64 register and the open block."""
            part, old = b.new(), b.new()
            b.add(Read(part, name, vtype))
            b.add(Read(old, f"{name}.wide", wide))
            return b.compute(
                Op.ADD, [(old, wide.lanes), b.convert((part, vtype.lanes), F64)], [F64] * 2, F64
            )

        def flush() -> None:
            for name in names:
                b.add(Write(f"{name}.wide", total(name)[0], wide))
                b.add(Write(name, b.number(0.0, s.dtype, vtype.lanes), vtype))

        self.loops(i, where.at, where.env, where.limits, body, Blocks(cut, flush))
        for name in names:
            b.add(Write(name, b.convert(total(name), s.dtype)[0], vtype))

    def _update(self, i: int, s: Reduce, env: Env, limits: Limits, vtype: VType) -> None:
        if self.tree.matrix is not None:
            self._by_unit(i, s, env, vtype)
            return
        tree, b, lane = self.tree, self.b, self.lanes_of[i]
        values = self.values(i, env)
        own = [x for x in tree.own(i) if x.kind.is_register]
        guard = values.masks({a.name for a in s.folds})
        guard = guard.substitute(dict(tree.index)).substitute(env)
        shared_names = {x.name for x in tree.shared_registers}
        rows = {x.name for x in own if not x.reduce}
        upcasts = {x.name for x in own if x.kind is LoopKind.UPCAST and x.reduce}
        parts = shared_names, rows, upcasts
        for p in self.points([*own, *tree.shared_registers], limits, lane):
            where = tuple(q for names in parts for q in p if q[0] in names)
            name = _register(s.name, where)
            active = self.active(lane, p, limits)
            old = b.new()
            b.add(Read(old, name, vtype))
            new = self._fold_in(values, s, (old, vtype.lanes), p, active)
            if lane is not None and lane.reduce and active is not None:
                new = b.select(
                    b.test(values.first_lanes(active), lane.name, lane.extent),
                    new,
                    (old, vtype.lanes),
                    s.dtype,
                )
            held = fix_valid(guard, p)
            if not held.always:
                mask = b.test(held, values.lane, values.lanes)
                new = b.select(mask, new, (old, vtype.lanes), s.dtype)
            b.add(Write(name, b.splat(new, s.dtype, vtype.lanes), vtype))

    def _by_unit(self, i: int, s: Reduce, env: Env, vtype: VType) -> None:
        """One product of a matrix unit for every point of the other registers."""
        tree, b = self.tree, self.b
        unit = Fragments(tree, b, partial(self.new_values, i), env)
        registers = (x for x in (*tree.own(i), *tree.shared_registers) if x.kind.is_register)
        for p in self.points([x for x in registers if unit.is_free(x)], {}, None):
            a, c = unit.rows(p), unit.columns(p)
            names = [_register(s.name, unit.placed(p, *at)) for at in unit.places()]
            held = []
            for name in names:
                held.append(b.new())
                b.add(Read(held[-1], name, vtype))
            made = tuple(b.new() for _ in names)
            b.add(MatMul(made, unit.unit, a, c, tuple(held), vtype))
            for name, new in zip(names, made, strict=True):
                b.add(Write(name, new, vtype))

    def _fold_in(
        self, values: Values, s: Reduce, old: Known, p: Point, active: int | None
    ) -> Known:
        """op(old, expr), as one FMA for a sum of products, or one DOT2_ADD or DOT4_ADD for one of
        words.
        """
        x: Expr = s.expr
        if values.kept_here is not None:
            value = values.emit(x, p, active)
            buffer, offset, dtype = values.kept_here
            self.b.store(buffer, fix(offset, p), ALWAYS, value, dtype, values.lane, values.lanes)
            return self.b.compute(s.op, [old, value], [s.dtype] * 2, s.dtype)
        if s.op is Op.ADD and s.dtype.is_float and isinstance(x, Apply) and x.op is Op.MUL:
            a, c = (values.emit(y, p, active) for y in x.args)
            return self.b.compute(Op.FMA, [a, c, old], [s.dtype] * 3, s.dtype)
        words = _WORDS.get((x.op, s.dtype)) if s.op is Op.ADD and isinstance(x, Apply) else None
        if words is not None and isinstance(x, Apply):
            both = [values.emit(y, p, active) for y in x.args]
            types = [*(y.dtype for y in x.args), s.dtype]
            return self.b.compute(words, [*both, old], types, s.dtype)
        return self.b.compute(s.op, [old, values.emit(x, p, active)], [s.dtype] * 2, s.dtype)

    def _combine(
        self, s: Reduce, p: Point, spread: list[Point], lane: Loop | None, vtype: VType
    ) -> Known:
        b = self.b
        totals: list[Known] = []
        for c in spread:
            i = b.new()
            b.add(Read(i, _register(s.name, p + c), vtype))
            totals.append((i, vtype.lanes))
        while len(totals) > 1:
            paired = [
                b.compute(s.op, totals[j : j + 2], [s.dtype] * 2, s.dtype)
                for j in range(0, len(totals) - 1, 2)
            ]
            totals = paired + totals[len(totals) // 2 * 2 :]
        if lane is not None and lane.kind is LoopKind.GROUP:
            return b.fold(s.op, totals[0], s.dtype)
        return totals[0]

    def _over_items(
        self, i: int, s: Reduce, local: Loop, where: Where, points: list[Point],
        spread: list[Point],
        body: Callable[[Env, Limits], None], vtype: VType,
    ) -> None:  # fmt: skip
        """Each work-item folds its share; then shares are folded, in their warp or in memory."""
        lane = self.lanes_of[i]
        name = lane.name if lane else ""
        shares: Exchange | Shares
        if exchanges(self.tree):
            registers = [_register(s.name, p + spread[0]) for p in points]
            shares = Exchange(self.tree, self.b, s, local, vtype, name, registers)
        else:
            shares = Shares(self.tree, self.b, s, local, vtype, name, len(points))
        self.allocs += shares.allocs

        def share() -> None:
            self._chain(i, s, where, points, spread, body, vtype)
            shares.keep([self._combine(s, p, spread, lane, vtype) for p in points])

        on_items(self.tree, self.b, local, share)
        for p, total in zip(points, shares.fold(), strict=True):
            self.results[(s.name, p)] = total


def _register(stage: str, point: Point) -> str:
    return ".".join([stage, *(f"{n}{v}" for n, v in point)])
