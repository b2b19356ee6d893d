"""Emits the region: accumulators in registers, each stage's loops, the epilogue.

if the tile is full:                       (split axes; once more for the remainder)
    registers = identity
    for own serial loops:                  (a last, partial iteration is peeled)
        registers op= expr                 for every point of the register loops (long f32 sums in
                                           blocks: reductions.py)
    fold lanes and copies
    if not the first partial sum: registers op= out
    if the last one: out = epilogue(registers)   else: out = registers

A row does that for each of its elements, and keeps them in scratch. Where copies run ahead, a loop
is a pipeline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from math import prod

from tunegrad.ir import dtypes, expr, looptree
from tunegrad.ir import program as ir
from tunegrad.ir.index import ALWAYS, NEVER, Index, Range, Valid, as_index, var
from tunegrad.ir.kernel import Reduce, Store, identity
from tunegrad.lazy import dataclass

from .. import staging
from . import copies as item_copies
from . import reductions, units
from .builder import Builder, Known
from .values import (
    AxisShape,
    Over,
    Point,
    Result,
    Values,
    fix,
    fix_valid,
    interior,
    known,
    left_out,
    loop_stops,
    offset_at,
)

NOTHING: frozenset[str] = frozenset()

Limits = dict[str, int]

Env = dict[str, Index]


@dataclass(frozen=True, slots=True)
class Where:
    """Inside which of a stage's loops its chain runs: those before place ``at`` of the serial
    ones, of which peeled tails have fixed ``env``.
    """

    env: Env
    limits: Limits
    at: int = 0


@dataclass(frozen=True, slots=True)
class Blocks:
    """The cut of a chain, and code that begins and ends a block of accumulators, all or some."""

    cut: reductions.Cut
    begin: Callable[..., None]
    end: Callable[..., None]

    def emit(self, loop: str, inside: Callable[[], None]) -> None:
        """What is inside, a block where the chain is cut at this loop."""
        here = self.cut.loop == loop
        if here:
            self.begin()
        inside()
        if here:
            self.end()

    def flush(self, *names: str) -> None:
        self.end(*names)
        self.begin(*names)


Body = Callable[[Env, Limits, Blocks | None], None]
"""Emits an iteration of a chain that is perhaps cut."""


@dataclass(frozen=True, slots=True)
class Sums:
    """The accumulators of a reduce stage: ``spread`` of them for each of its points."""

    stage: int
    reduce: Reduce
    vtype: ir.VType
    spread: list[Point]


_WORDS = {
    (expr.Op.DOT2, dtypes.F32): expr.Op.DOT2_ADD, (expr.Op.DOT4, dtypes.I32): expr.Op.DOT4_ADD,
    (expr.Op.DOT2I, dtypes.I32): expr.Op.DOT2I_ADD,
}  # fmt: skip
"""Products of words, and the type of their sum, in one operation with it."""


class Region:
    """Everything inside the last shared serial loop of a tree, emitted into a builder."""

    def __init__(
        self,
        tree: looptree.LoopTree,
        builder: Builder,
        plans: dict[tuple[int, str], staging.StagedCopy],
        shapes: dict[str, AxisShape],
    ) -> None:
        self.tree, self.b, self.plans, self.shapes = tree, builder, plans, shapes
        self.lanes_of = [tree.lane_loop(i) for i in range(len(tree.kernel.stages))]
        self.over = Over(tree)
        self.allocs: list[ir.Alloc] = []
        self.results: dict[tuple[str, Point], Result] = {}
        self.assumed = self.refuted = NOTHING
        """Conditions that are known to hold here, and to hold nowhere here."""
        self.terms = left_out(tree, self.over)
        """Conditions without which a term of the sum is no term, and the serial loops they are of.
        """
        self.together: dict[tuple[frozenset[str], frozenset[str]], Values] = {}
        for made in tree.kept:
            kept = staging.kept_of(tree, made)
            self.allocs.append(ir.Alloc(kept.buffer, kept.dtype, kept.size, "thread"))
        self.staged_epilogue = (
            staging.staged_epilogue(tree, tree.epilogue) if tree.epilogue else None
        )
        if self.staged_epilogue is not None:
            self.allocs.append(item_copies.slice_alloc(self.staged_epilogue))

    def emit(self) -> None:
        """The region, without conditions that always hold, split into full and remainder tiles."""
        inside, conditions = interior(
            self.tree, self.plans, self.shapes, self.over, self.terms.keys()
        )
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
        for first, *others in self._reduces():
            if others:
                self._jammed((first, *others), limits)
            else:
                self.reduce(*first, limits)
        if self.tree.partial:
            return
        if self.staged_epilogue is not None:
            item_copies.store_by_slices(
                self.tree, self.b, self.staged_epilogue, self.results, self.values_knowing
            )
            return
        for i, s in enumerate(self.tree.kernel.stages):
            if isinstance(s, Store):
                self.store_stage(i, s, limits)
        shared = any(a.space == "shared" and a.name.endswith(staging.ROW) for a in self.allocs)
        if shared and any(
            x.kind is looptree.LoopKind.SERIAL and x.extent > 1 for x in self.tree.outer
        ):
            self.b.add(ir.Barrier())  # before the next rows

    # ---- reductions

    def _reduces(self) -> list[list[tuple[int, Reduce]]]:
        """The reductions in order, those together whose loops run as one."""
        found: list[list[tuple[int, Reduce]]] = []
        for i, s in enumerate(self.tree.kernel.stages):
            if isinstance(s, Reduce):
                if found and self._jams(found[-1], i, s):
                    found[-1].append((i, s))
                else:
                    found.append([(i, s)])
        return found

    def _jams(self, run: list[tuple[int, Reduce]], i: int, s: Reduce) -> bool:
        """True if a reduction depends on none of these, and has loops like theirs."""
        tree, (first, r) = self.tree, run[0]
        special = tree.partial or tree.matrix is not None or tree.pipelined is not None or tree.kept
        if special or r.rows or s.rows or any(n in (first, i) for n, _ in self.plans):
            return False
        made = {x.name for _, x in run}
        if any(isinstance(x, expr.Value) and x.stage in made for x in expr.leaves(s.expr)):
            return False
        return self._chain_form(first, r) == self._chain_form(i, s)

    def _chain_form(self, i: int, s: Reduce) -> object:
        """The loops of a reduction, without names; unlike any other where work-items share them."""
        own, places = self.tree.own(i), {a.name: n for n, a in enumerate(s.axes)}
        if self.own_items(i) is not None or any(len(x.axes) > 1 for x in own):
            return i
        cut, at = reductions.cut_of(self.tree, i), {x.name: n for n, x in enumerate(own)}
        loops = [(x.kind, x.extent, places.get(x.axes[0]), self.step(x)) for x in own]
        shapes = [self.shapes.get(a.name) for a in s.axes]
        tails = [x and (x.mode, x.tile, x.rest, x.extent) for x in shapes]
        return (
            [a.extent for a in s.axes],
            loops,
            tails,
            cut and (at.get(cut.loop), replace(cut, loop="")),
        )

    def _jammed(self, run: Sequence[tuple[int, Reduce]], limits: Limits) -> None:
        """Reductions of one length in the loops of the first: common loads are loaded once."""
        first, r = run[0]
        points = self.points(list(self.tree.shared_registers), limits, self.lanes_of[first])
        begun = [self._begun(i, s, points) for i, s in run]

        def body(env: Env, inner: Limits, blocks: Blocks | None) -> None:
            for sums in begun:
                names = {a.name: b.name for a, b in zip(r.axes, sums.reduce.axes, strict=True)}
                its = {names.get(axis, axis): n for axis, n in inner.items()}
                self._update(sums, self._moved(first, sums.stage, env), its, blocks)

        self._chain(first, Where({}, limits), begun, points, body)
        for sums in begun:
            self._ended(sums, points)

    def _moved(self, first: int, i: int, env: Env) -> Env:
        """The loops of stage ``i`` where those of stage ``first`` run."""
        if i == first:
            return env
        pairs = zip(self.serial(first), self.serial(i), strict=True)
        running = {a.name: var(a.name, a.extent) for a in self.serial(first) if a.extent > 1}
        at = {**running, **env}
        return {b.name: at[a.name] for a, b in pairs if a.name in at}

    def reduce(self, i: int, s: Reduce, limits: Limits) -> None:
        if isinstance(self.tree.matrix, looptree.TileLoops):
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
        row = staging.row_scratch(tree, s.name)
        self.allocs.append(ir.Alloc(row.buffer, row.dtype, row.size, row.space))
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
            reductions.on_first(tree, b, whole)
        else:
            reductions.on_items(tree, b, local, whole, once=True)
        if row.space == "shared":
            b.add(ir.Barrier())

    def _fold(self, i: int, s: Reduce, where: Where, points: list[Point]) -> None:
        """The loops of what is folded; the results at ``points`` are known then."""
        sums = self._begun(i, s, points)
        local = None if s.rows else self.own_items(i)

        def body(env: Env, inner: Limits, blocks: Blocks | None) -> None:
            self._update(sums, env, inner, blocks)

        if local is not None:
            self._over_items(sums, local, where, points, body)
            return
        self._chain(i, where, [sums], points, body)
        self._ended(sums, points)

    def _begun(self, i: int, s: Reduce, points: list[Point]) -> Sums:
        """The accumulators of a reduction, which hold nothing yet."""
        tree, b, lane = self.tree, self.b, self.lanes_of[i]
        copies = [x for x in tree.own(i) if x.kind is looptree.LoopKind.UPCAST and x.reduce]
        vtype = ir.VType(s.dtype, lane.extent if lane else 1)
        spread = self.points(copies, {}, lane)
        for p in points:
            for c in spread:
                b.register(_register(s.name, p + c), vtype, identity(s.op, s.dtype))
        return Sums(i, s, vtype, spread)

    def _ended(self, sums: Sums, points: list[Point]) -> None:
        for p in points:
            self.results[(sums.reduce.name, p)] = self._combine(sums, p)

    def _in_tiles(self, i: int, s: Reduce, limits: Limits) -> None:
        """A sum in tile registers, whose rows are loaded where they are read."""
        tiles = units.Tiles(self.tree, self.b, partial(self.new_values, i), i, limits)
        self.allocs.append(tiles.scratch)
        tiles.emit(lambda update: self.loops(i, 0, {}, limits, update))
        points = self.points(list(self.tree.shared_registers), limits, self.lanes_of[i])
        for p in points:
            self.results[(s.name, p)] = partial(tiles.result, p)
        if self.tree.partial:
            self.partial_sums(i, s, limits, points)

    def _chain(
        self, i: int, where: Where, chains: Sequence[Sums], points: list[Point], body: Body
    ) -> None:
        """The loops of reductions like stage ``i``; wide registers take cut chains' block sums."""
        b, cut = self.b, reductions.cut_of(self.tree, i)
        if cut is None:
            self.loops(i, where.at, where.env, where.limits, lambda e, n: body(e, n, None))
            return
        types = {
            _register(x.reduce.name, p + c): x.vtype
            for x in chains
            for p in points
            for c in x.spread
        }
        wides = {name: ir.VType(cut.wide, vtype.lanes) for name, vtype in types.items()}
        ahead = self.tree.pipelined is not None and self.tree.pipelined[0] == cut.loop
        in_turn = (
            cut.wide == dtypes.F32 and not cut.copies and not ahead
        )  # one begins where one ends
        before: dict[str, Known] = {}
        for name, wide in wides.items() if not in_turn else ():
            b.register(f"{name}.wide", wide, 0.0)

        def begin(*names: str) -> None:
            for name in names or types:
                vtype = types[name]
                if in_turn:
                    before[name] = b.read(name, vtype)
                b.add(ir.Write(name, b.number(0.0, vtype.dtype, vtype.lanes), vtype))

        def end(*names: str) -> None:
            for name in names or types:
                part, to = b.read(name, types[name]), name if in_turn else f"{name}.wide"
                old = before[name] if in_turn else b.read(to, wides[name])
                both = [old, self._as(part, dtypes.F32, cut.wide)]
                total, _ = b.compute(expr.Op.ADD, both, [cut.wide] * 2, cut.wide)
                b.add(ir.Write(to, total, wides[name]))

        blocks = Blocks(cut, begin, end)
        run = where.at, where.env, where.limits, lambda e, n: body(e, n, blocks)
        blocks.emit("", lambda: self.loops(i, *run, blocks))
        for name, wide in wides.items() if not in_turn else ():
            total = self._as(b.read(f"{name}.wide", wide), cut.wide, dtypes.F32)
            b.add(ir.Write(name, total[0], types[name]))

    def _update(self, sums: Sums, env: Env, limits: Limits, blocks: Blocks | None) -> None:
        i, s, vtype = sums.stage, sums.reduce, sums.vtype
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
        upcasts = {x.name for x in own if x.kind is looptree.LoopKind.UPCAST and x.reduce}
        parts = shared_names, rows, upcasts
        added = Counter[str]()
        for p in self.points([*own, *tree.shared_registers], limits, lane):
            where = tuple(q for names in parts for q in p if q[0] in names)
            name = _register(s.name, where)
            if blocks is not None and blocks.cut.copies and added[name] == blocks.cut.copies:
                blocks.flush(name)
                del added[name]
            added[name] += 1
            active = self.active(lane, p, limits)
            old = b.read(name, vtype)
            new = self._fold_in(values, s, old, p, active)
            if lane is not None and lane.reduce and active is not None:
                mask = b.test(values.first_lanes(active), lane.name, lane.extent)
                new = b.select(mask, new, old, s.dtype)
            held = fix_valid(guard, p)
            if not held.always:
                new = b.select(b.test(held, values.lane, values.lanes), new, old, s.dtype)
            b.add(ir.Write(name, b.splat(new, s.dtype, vtype.lanes), vtype))

    def _by_unit(self, i: int, s: Reduce, env: Env, vtype: ir.VType) -> None:
        """One product of a matrix unit for every point of the other registers."""
        tree, b = self.tree, self.b
        unit = units.Fragments(tree, b, partial(self.new_values, i), env)
        registers = (x for x in (*tree.own(i), *tree.shared_registers) if x.kind.is_register)
        for p in self.points([x for x in registers if unit.is_free(x)], {}, None):
            a, c = unit.rows(p), unit.columns(p)
            names = [_register(s.name, unit.placed(p, *at)) for at in unit.places()]
            held = tuple([b.read(name, vtype)[0] for name in names])
            made = tuple(b.new() for _ in names)
            b.add(ir.MatMul(made, unit.unit, a, c, held, vtype))
            for name, new in zip(names, made, strict=True):
                b.add(ir.Write(name, new, vtype))

    def _fold_in(
        self, values: Values, s: Reduce, old: Known, p: Point, active: int | None
    ) -> Known:
        """op(old, expr), as one FMA for a sum of products, one of ``_WORDS`` for one of words."""
        x: expr.Expr = s.expr
        if values.kept_here is not None:
            value = values.emit(x, p, active)
            buffer, offset, dtype = values.kept_here
            self.b.store(buffer, fix(offset, p), ALWAYS, value, dtype, values.lane, values.lanes)
            return self.b.compute(s.op, [old, value], [s.dtype] * 2, s.dtype)
        if (
            s.op is expr.Op.ADD
            and s.dtype.is_float
            and isinstance(x, expr.Apply)
            and x.op is expr.Op.MUL
        ):
            a, c = (values.emit(y, p, active) for y in x.args)
            return self.b.compute(expr.Op.FMA, [a, c, old], [s.dtype] * 3, s.dtype)
        words = (
            _WORDS.get((x.op, s.dtype))
            if s.op is expr.Op.ADD and isinstance(x, expr.Apply)
            else None
        )
        if words is not None and isinstance(x, expr.Apply):
            both = [values.emit(y, p, active) for y in x.args]
            types = [*(y.dtype for y in x.args), s.dtype]
            return self.b.compute(words, [*both, old], types, s.dtype)
        return self.b.compute(s.op, [old, values.emit(x, p, active)], [s.dtype] * 2, s.dtype)

    def _combine(self, sums: Sums, p: Point) -> Known:
        b, s, lane = self.b, sums.reduce, self.lanes_of[sums.stage]
        totals = [b.read(_register(s.name, p + c), sums.vtype) for c in sums.spread]
        while len(totals) > 1:
            paired = [
                b.compute(s.op, totals[j : j + 2], [s.dtype] * 2, s.dtype)
                for j in range(0, len(totals) - 1, 2)
            ]
            totals = paired + totals[len(totals) // 2 * 2 :]
        if lane is not None and lane.kind is looptree.LoopKind.GROUP:
            return b.fold(s.op, totals[0], s.dtype)
        return totals[0]

    def _over_items(
        self, sums: Sums, local: looptree.Loop, where: Where, points: list[Point],
        body: Body,
    ) -> None:  # fmt: skip
        """Each work-item folds its share; then shares are folded, in their warp or in memory."""
        i, s, vtype, spread = sums.stage, sums.reduce, sums.vtype, sums.spread
        lane = self.lanes_of[i]
        name = lane.name if lane else ""
        shares: reductions.Exchange | reductions.Shares
        if reductions.exchanges(self.tree):
            registers = [_register(s.name, p + spread[0]) for p in points]
            shares = reductions.Exchange(self.tree, self.b, s, local, vtype, name, registers)
        else:
            shares = reductions.Shares(self.tree, self.b, s, local, vtype, name, len(points))
        self.allocs += shares.allocs

        def share() -> None:
            self._chain(i, where, [sums], points, body)
            shares.keep([self._combine(sums, p) for p in points])

        reductions.on_items(self.tree, self.b, local, share)
        for p, total in zip(points, shares.fold(), strict=True):
            self.results[(s.name, p)] = total

    # ---- partial sums: where a serial loop around the region goes over a reduced axis

    def _ends(self) -> tuple[Valid, Valid]:
        """Conditions under which this is the first partial sum, and the last."""
        tree = self.tree
        inside = {x.name for x in tree.loops} - {x.name for x in tree.outer}
        first: list[Range] = []
        last: list[Range] = []
        for axis in dict.fromkeys(a for x in tree.partial for a in x.axes):
            base = tree.axis_index(axis).substitute({n: as_index(0) for n in inside})
            first.append(Range(base, 0, 1))
            if self._stops(axis):
                span = prod(x.extent for x in tree.loops if axis in x.axes and x.name in inside)
                last.append(Range(base, tree.extent(axis) - span, tree.nominal(axis)))
        static = [x for x in tree.partial if not any(self._stops(a) for a in x.axes)]
        last += [Range(var(x.name, x.extent), x.extent - 1, x.extent) for x in static]
        return Valid(first), Valid(last)

    def _stops(self, axis: str) -> bool:
        """True if loops of the axis stop before its nominal extent."""
        return axis in self.shapes and self.shapes[axis].mode != "mask"

    def partial_sums(self, i: int, s: Reduce, limits: Limits, points: list[Point]) -> None:
        """Sums go on in the output, or in f64 scratch of its form where many are added."""
        tree, b = self.tree, self.b
        first, last = self._ends()
        whole = (x for x in tree.kernel.stores if x.valid.always)
        store = next(x for x in whole if tree.kernel.param(x.param).dtype == s.dtype)
        at = tree.kernel.stages.index(store)
        dtype, buffer = s.dtype, store.param
        if reductions.has_wide_partials(tree, i):
            dtype, buffer = dtypes.F64, f"{s.name}.partial"
            self.allocs.append(
                ir.Alloc(buffer, dtypes.F64, tree.kernel.param(store.param).size, "team")
            )
        kept: dict[Point, str] = {}
        lanes = tree.lane_loop(at)
        vtype = ir.VType(dtype, lanes.extent if lanes else 1)
        for p in points:
            kept[p] = f"{s.name}.sum{len(kept)}"
            b.add(ir.Register(kept[p], vtype))
            found = self.results[(s.name, p)]
            part = self._as(known(found), s.dtype, dtype)
            b.add(ir.Write(kept[p], b.splat(part, dtype, vtype.lanes), vtype))

        def add_earlier() -> None:
            values = self.values(at, {})
            target = self.target(values, store)
            for p in points:
                old = b.read(kept[p], vtype)
                offset, valid = self.target_at(values, target, p, self.active(lanes, p, limits))
                earlier = b.load(buffer, offset, valid, dtype, values.lane, values.lanes)
                total, _ = b.compute(s.op, [earlier, old], [dtype] * 2, dtype)
                b.add(ir.Write(kept[p], total, vtype))

        def keep() -> None:
            values = self.values(at, {})
            target = self.target(values, store)
            for p in points:
                old = b.read(kept[p], vtype)
                offset, valid = self.target_at(values, target, p, self.active(lanes, p, limits))
                b.store(buffer, offset, valid, old, dtype, values.lane, values.lanes)

        def finish() -> None:
            for p in points:
                self.results[(s.name, p)] = self._as(b.read(kept[p], vtype), dtype, s.dtype)
            for j, x in enumerate(tree.kernel.stages):
                if isinstance(x, Store):
                    self.store_stage(j, x, limits)

        self.branch(first, lambda: None, add_earlier)
        self.branch(last, finish, keep)

    def _as(self, value: Known, have: dtypes.DType, dtype: dtypes.DType) -> Known:
        return value if have == dtype else self.b.convert(value, dtype)

    # ---- stores

    def own_items(self, i: int) -> looptree.Loop | None:
        """The loop of a stage that work-items share out."""
        return next((x for x in self.tree.own(i) if x.kind is looptree.LoopKind.LOCAL), None)

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
            reductions.on_first(tree, self.b, lambda: self.loops(i, 0, {}, limits, body))
        else:
            reductions.on_items(
                tree, self.b, local, lambda: self.loops(i, 0, {}, limits, body), once=True
            )

    # ---- loops of a stage, and the points of its registers

    def step(self, loop: looptree.Loop) -> int:
        return self.tree.axis_index(loop.axes[0]).coefficient(loop.name) or 0

    def tile(self, axis: str) -> int:
        return self.shapes[axis].tile if axis in self.shapes else 0

    def branch(self, valid: Valid, yes: Callable[[], None], no: Callable[[], None] | None) -> None:
        if valid.always:
            yes()
        elif valid.never:
            if no is not None:
                no()
        else:
            body = self.block(yes)
            orelse = self.block(no) if no is not None else ()
            self.b.add(ir.If(valid, body, orelse))

    def block(self, emit: Callable[[], None]) -> tuple:  # type: ignore[type-arg]
        self.b.open()
        emit()
        return self.b.close()

    def points(
        self, loops: list[looptree.Loop], limits: Limits, lane: looptree.Loop | None
    ) -> list[Point]:
        scalars = [x for x in loops if x is not lane]
        points = product(*([(x.name, v) for v in range(x.extent)] for x in scalars))
        if not limits:
            return list(points)
        return [
            p
            for p in points
            if all(offset_at(self.tree, axis, p) < rest for axis, rest in limits.items())
        ]

    def active(self, lane: looptree.Loop | None, point: Point, limits: Limits) -> int | None:
        """Number of lanes inside a limited axis; None for all."""
        if lane is None or lane.axes[0] not in limits:
            return None
        axis = lane.axes[0]
        step = self.tree.axis_index(axis).coefficient(lane.name) or 1
        n = -(-(limits[axis] - offset_at(self.tree, axis, point)) // step)
        return None if n >= lane.extent else n

    def values(self, i: int, env: Env) -> Values:
        """The values of a stage; stages that run at the same points share one."""
        alone = (
            bool(env) or bool(self.tree.kernel.stages[i].axes) or any(s == i for s, _ in self.plans)
        )
        if alone:
            return self.new_values(i, env)
        known = self.assumed, self.refuted
        found = self.together.get(known)
        if found is None:
            found = self.together[known] = self.new_values(i, env)
        found.results = self.results
        return found

    def new_values(self, i: int, env: Env) -> Values:
        values = self.values_knowing(i, env, self.assumed)
        values.results = self.results
        return values

    def values_knowing(self, i: int, env: Env, assumed: frozenset[str]) -> Values:
        """The values of a stage where conditions are known to hold, without results."""
        known = assumed, self.refuted
        return Values(self.tree, self.b, self.plans, self.shapes, i, env, known, self.over)

    def serial(self, i: int) -> list[looptree.Loop]:
        return [x for x in self.tree.own(i) if x.kind is looptree.LoopKind.SERIAL]

    def loops(
        self, i: int, at: int, env: Env, limits: Limits, body: Callable[[Env, Limits], None],
        blocks: Blocks | None = None, upto: int = -1,
    ) -> None:  # fmt: skip
        """A stage's serial loops, peeled where they must be; work-items are around them.

        From place ``at`` to place ``upto``, which is the end unless it is given.
        """
        serial = self.serial(i)
        if at == (len(serial) if upto < 0 else upto):
            body(env, limits)
            return
        loop = serial[at]

        decided = {key: r for key, (r, last) in self.terms.items() if last == loop.name}

        def inside(env: Env, limits: Limits) -> None:
            if not decided:
                whole(env, limits)
                return
            known, self.assumed = self.assumed, self.assumed | decided.keys()
            held = Valid(decided.values()).substitute(env)
            self.branch(held, lambda: whole(env, limits), None)
            self.assumed = known

        def whole(env: Env, limits: Limits) -> None:
            here = [p for p in self.plans.values() if p.staged.at == loop.name]
            item_copies.emit_copies(self.tree, self.b, here, env, True)
            self.loops(i, at + 1, env, limits, body, blocks, upto)

        def last(env: Env, limits: Limits) -> None:
            if blocks is None:
                inside(env, limits)
            else:
                blocks.emit(loop.name, lambda: inside(env, limits))

        shape = self.shapes.get(loop.axes[0]) if len(loop.axes) == 1 else None
        if loop.extent == 1:
            inside(env, limits)
            return
        if self.tree.pipelined is not None and self.tree.pipelined[0] == loop.name:
            self._pipelined(
                loop, env, blocks, lambda: self.loops(i, at + 1, env, limits, body, blocks, upto)
            )
            return
        stops = tuple(
            s.substitute(env) for s in loop_stops(self.tree, self.shapes, loop, whole=True)
        )
        if any(s.hi > 0 for s in stops) and all(s.hi > 0 for s in stops):
            if blocks is not None and blocks.cut.loop == loop.name:
                self._in_blocks(loop, stops, env, blocks, lambda env: inside(env, limits))
            else:
                self.b.add(
                    ir.For(loop.name, loop.extent, stops, self.block(lambda: inside(env, limits)))
                )
        if (
            shape is not None
            and shape.mode == "split"
            and shape.rest
            and self.step(loop) == shape.tile
        ):
            self._peel(loop, shape, env, limits, last)

    def _pipelined(
        self, loop: looptree.Loop, env: Env, blocks: Blocks | None, inside: Callable[[], None]
    ) -> None:
        """A loop whose copies run ahead; a chain that is cut at it is flushed inside."""
        slots = self.tree.pipelined[1] if self.tree.pipelined else 1
        plans = [p for p in self.plans.values() if p.staged.at == loop.name]

        def body() -> None:
            inside()
            if blocks is not None and blocks.cut.loop == loop.name:
                step = blocks.cut.step
                last = Range(var(loop.name, loop.extent) % step, step - 1, step)
                self.branch(Valid((last,)), blocks.flush, None)

        copies = item_copies.copies_ahead(self.tree, self.b, plans, env)
        pipeline = ir.Pipeline(loop.name, loop.extent, slots, copies, self.block(body))
        if blocks is None:
            self.b.add(pipeline)
        else:
            blocks.emit(loop.name, lambda: self.b.add(pipeline))

    def _in_blocks(
        self,
        loop: looptree.Loop,
        stops: tuple[Index, ...],
        env: Env,
        blocks: Blocks,
        inside: Callable[[Env], None],
    ) -> None:
        """A loop as a loop over blocks of iterations."""
        step = blocks.cut.step
        block, count = (
            var(f"{loop.name}.block", -(-loop.extent // step)),
            var(f"{loop.name}.step", step),
        )
        whole = all(x.is_const and x.const % step == 0 for x in stops)
        left = () if whole else tuple(x - block * step for x in stops)

        def one() -> None:
            body = self.block(lambda: inside({**env, loop.name: block * step + count}))
            loop_of_steps = ir.For(f"{loop.name}.step", step, (as_index(step), *left), body)
            blocks.emit(loop.name, lambda: self.b.add(loop_of_steps))

        rounded = tuple((x + (step - 1)) // step for x in stops)
        self.b.add(ir.For(f"{loop.name}.block", block.hi + 1, rounded, self.block(one)))

    def _peel(
        self,
        loop: looptree.Loop,
        shape: AxisShape,
        env: Env,
        limits: Limits,
        inside: Callable[[Env, Limits], None],
    ) -> None:
        finer = [
            x.name
            for x in self.tree.loops
            if x.axes == loop.axes and self.step(x) <= self.step(loop)
        ]
        left = shape.extent - self.tree.axis_index(shape.axis).substitute(
            dict.fromkeys(finer, as_index(0))
        )
        last = (left // shape.tile).substitute(env)
        tail_env, tail_limits = {**env, loop.name: last}, {**limits, shape.axis: shape.rest}
        self.branch(
            Valid((Range(last, 0, loop.extent),)), lambda: inside(tail_env, tail_limits), None
        )


def _register(stage: str, point: Point) -> str:
    return ".".join([stage, *(f"{n}{v}" for n, v in point)])
