"""Emits the region: accumulators in registers, each stage's loops, the epilogue.

if the tile is full:                       (split axes; once more for the remainder)
    registers = identity
    for own serial loops:                  (a last, partial iteration is peeled; long f32 sums in
                                           blocks, see chains.py)
        registers op= expr                 for every point of the register loops
    fold lanes and copies
    if not the first partial sum: registers op= out
    if the last one: out = epilogue(registers)   else: out = registers
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod

from tunegrad.ir.dtypes import F32, F64, DType
from tunegrad.ir.expr import Apply, Expr, Inside, Op, leaves
from tunegrad.ir.expr import Load as ExprLoad
from tunegrad.ir.index import ALWAYS, NEVER, Index, Range, Valid, as_index, var
from tunegrad.ir.kernel import Kernel, Reduce, Store, identity
from tunegrad.ir.looptree import Loop, LoopKind, LoopTree, TileLoops
from tunegrad.ir.program import Alloc, For, If, MatMul, Pipeline, Read, Register, VType, Write
from tunegrad.ir.remembered import remembered

from ..epilogues import staged_epilogue
from ..keeping import kept_of
from ..staging import StagedCopy
from .builder import Builder, Known
from .chains import Cut, cut_of, has_wide_partials
from .copies import copies_ahead, emit_copies
from .epilogue import slice_alloc, store_by_slices
from .fragments import Fragments
from .over import Over
from .shape import AxisShape, loop_stops
from .shares import Exchange, Shares, exchanges, on_first, on_items
from .tiles import Tiles
from .values import Point, Result, Values, fix, fix_valid, known

__all__ = ["Region"]

Limits = dict[str, int]
Env = dict[str, Index]


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Where a chain of additions is cut, and what adds the accumulators into wide ones and clears
    them.
    """

    cut: Cut
    flush: Callable[[], None]


class Region:
    """Emits everything inside the last shared serial loop of a tree into a builder."""

    def __init__(
        self,
        tree: LoopTree,
        builder: Builder,
        plans: dict[tuple[int, str], StagedCopy],
        shapes: dict[str, AxisShape],
    ) -> None:
        self.tree, self.b, self.plans, self.shapes = tree, builder, plans, shapes
        self.lanes_of = [tree.lane_loop(i) for i in range(len(tree.kernel.stages))]
        self.over = Over(tree)
        self.allocs: list[Alloc] = []
        self.results: dict[tuple[str, Point], Result] = {}
        self.assumed: frozenset[str] = frozenset()
        self.together: dict[frozenset[str], Values] = {}
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
        inside, conditions = self._interior()
        if inside.always or inside.never:
            self._split(self._splits(), {})
            return

        def interior() -> None:
            self.assumed = conditions
            self._split(self._splits(), {})
            self.assumed = frozenset()

        self._branch(inside, interior, lambda: self._split(self._splits(), {}))

    def _interior(self) -> tuple[Valid, frozenset[str]]:
        """When every condition of the region holds whatever its own loops do, and those conditions.

        Never with work-items: a branch may not stand around barriers.
        """
        tree = self.tree
        if tree.target.has_work_items:
            return ALWAYS, frozenset()
        over = self.over.condition
        outer = {x.name for x in tree.outer}
        found: dict[str, Range] = {}
        for i, param, valid in _conditions(tree.kernel):
            if (i, param) not in self.plans:
                found.update((r.key, r) for r in over(valid))
        for shape in self.shapes.values():
            if shape.mode == "mask":
                r = Range(tree.axis_index(shape.axis), 0, shape.extent)
                found[Valid((r,)).key] = r
        ranges = []
        for r in found.values():
            zero = {n: as_index(0) for n in r.index.names() - outer}
            base = r.index.substitute(zero)
            rest = r.index - base
            if rest.names() & outer:
                return ALWAYS, frozenset()
            ranges.append(Range(base, r.lo - rest.lo, r.hi - rest.hi))
        return Valid(ranges), frozenset(found)

    def _splits(self) -> list[AxisShape]:
        """The split axes whose finest serial loop is outside the region, so a branch here tells
        full from rest.
        """
        inner = {
            x.axes[0]
            for i in range(len(self.tree.kernel.stages))
            for x in self.tree.own(i)
            if not x.kind.is_register and x.extent > 1 and self._step(x) == self._tile(x.axes[0])
        }
        return [
            s for a, s in self.shapes.items() if s.mode == "split" and s.rest and a not in inner
        ]

    def _step(self, loop: Loop) -> int:
        return self.tree.axis_index(loop.axes[0]).coefficient(loop.name) or 0

    def _tile(self, axis: str) -> int:
        return self.shapes[axis].tile if axis in self.shapes else 0

    def _split(self, splits: list[AxisShape], limits: Limits) -> None:
        if not splits:
            self._stages(limits)
            return
        s, rest = splits[0], splits[1:]
        zero = {x.name: as_index(0) for x in s.registers}
        base = self.tree.axis_index(s.axis).substitute(zero)
        full = Valid((Range(base, 0, s.extent - s.tile + 1),)) if s.extent >= s.tile else NEVER
        self._branch(
            full,
            lambda: self._split(rest, limits),
            lambda: self._split(rest, {**limits, s.axis: s.rest}),
        )

    def _branch(self, valid: Valid, yes: Callable[[], None], no: Callable[[], None] | None) -> None:
        if valid.always:
            yes()
        elif valid.never:
            if no is not None:
                no()
        else:
            body = self._block(yes)
            orelse = self._block(no) if no is not None else ()
            self.b.add(If(valid, body, orelse))

    def _block(self, emit: Callable[[], None]) -> tuple:  # type: ignore[type-arg]
        self.b.open()
        emit()
        return self.b.close()

    def _stages(self, limits: Limits) -> None:
        self.results = {}
        for i, s in enumerate(self.tree.kernel.stages):
            if isinstance(s, Reduce):
                self._reduce(i, s, limits)
        if self.tree.partial:
            return
        if self.staged_epilogue is not None:
            store_by_slices(
                self.tree, self.b, self.staged_epilogue, self.results, self._values_knowing
            )
            return
        for i, s in enumerate(self.tree.kernel.stages):
            if isinstance(s, Store):
                self._store_stage(i, s, limits)

    # -- points of the register loops

    def _points(self, loops: list[Loop], limits: Limits, lane: Loop | None) -> list[Point]:
        scalars = [x for x in loops if x is not lane]
        points = product(*([(x.name, v) for v in range(x.extent)] for x in scalars))
        if not limits:
            return list(points)
        return [
            p for p in points if all(self._offset(axis, p) < rest for axis, rest in limits.items())
        ]

    def _offset(self, axis: str, point: Point) -> int:
        index = self.tree.axis_index(axis)
        return sum((index.coefficient(n) or 0) * v for n, v in point)

    def _active(self, lane: Loop | None, point: Point, limits: Limits) -> int | None:
        """How many lanes are inside a limited axis; None for all."""
        if lane is None or lane.axes[0] not in limits:
            return None
        axis = lane.axes[0]
        step = self.tree.axis_index(axis).coefficient(lane.name) or 1
        n = -(-(limits[axis] - self._offset(axis, point)) // step)
        return None if n >= lane.extent else n

    def _values(self, i: int, env: Env) -> Values:
        """The values of a stage; stages that run at the same points share one, and what it has
        worked out.
        """
        alone = (
            bool(env) or bool(self.tree.kernel.stages[i].axes) or any(s == i for s, _ in self.plans)
        )
        if alone:
            return self._new_values(i, env)
        found = self.together.get(self.assumed)
        if found is None:
            found = self.together[self.assumed] = self._new_values(i, env)
        found.results = self.results
        return found

    def _new_values(self, i: int, env: Env) -> Values:
        values = self._values_knowing(i, env, self.assumed)
        values.results = self.results
        return values

    def _values_knowing(self, i: int, env: Env, assumed: frozenset[str]) -> Values:
        """The values of a stage where conditions are known to hold, without results."""
        return Values(self.tree, self.b, self.plans, self.shapes, i, env, assumed, self.over)

    # -- loops of one stage

    def _loops(
        self, i: int, at: int, env: Env, limits: Limits, body: Callable[[Env, Limits], None],
        blocks: _Blocks | None = None,
    ) -> None:  # fmt: skip
        """A stage's serial loops, peeled where they must be; work-items are around them."""
        serial = [x for x in self.tree.own(i) if x.kind is LoopKind.SERIAL]
        if at == len(serial):
            body(env, limits)
            return
        loop = serial[at]

        def inside(env: Env, limits: Limits) -> None:
            emit_copies(
                self.tree,
                self.b,
                [p for p in self.plans.values() if p.staged.at == loop.name],
                env,
                True,
            )
            self._loops(i, at + 1, env, limits, body, blocks)

        def last(env: Env, limits: Limits) -> None:
            inside(env, limits)
            if blocks is not None and blocks.cut.loop == loop.name:
                blocks.flush()

        shape = self.shapes.get(loop.axes[0]) if len(loop.axes) == 1 else None
        if loop.extent == 1:
            inside(env, limits)
            return
        if self.tree.pipelined is not None and self.tree.pipelined[0] == loop.name:
            self._pipelined(
                loop, env, blocks, lambda: self._loops(i, at + 1, env, limits, body, blocks)
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
                    For(loop.name, loop.extent, stops, self._block(lambda: inside(env, limits)))
                )
        if (
            shape is not None
            and shape.mode == "split"
            and shape.rest
            and self._step(loop) == shape.tile
        ):
            self._peel(loop, shape, env, limits, last)

    def _pipelined(
        self, loop: Loop, env: Env, blocks: _Blocks | None, inside: Callable[[], None]
    ) -> None:
        """A loop whose copies run ahead; a chain that is cut at it is flushed inside."""
        slots = self.tree.pipelined[1] if self.tree.pipelined else 1
        plans = [p for p in self.plans.values() if p.staged.at == loop.name]

        def body() -> None:
            inside()
            if blocks is not None and blocks.cut.loop == loop.name:
                step = blocks.cut.step
                last = Range(var(loop.name, loop.extent) % step, step - 1, step)
                self._branch(Valid((last,)), blocks.flush, None)

        copies = copies_ahead(self.tree, self.b, plans, env)
        self.b.add(Pipeline(loop.name, loop.extent, slots, copies, self._block(body)))

    def _in_blocks(
        self,
        loop: Loop,
        stops: tuple[Index, ...],
        env: Env,
        blocks: _Blocks,
        inside: Callable[[Env], None],
    ) -> None:
        """A loop as a loop over blocks of iterations, each followed by a flush."""
        step = blocks.cut.step
        block, count = (
            var(f"{loop.name}.block", -(-loop.extent // step)),
            var(f"{loop.name}.step", step),
        )
        whole = all(x.is_const and x.const % step == 0 for x in stops)
        left = () if whole else tuple(x - block * step for x in stops)

        def one() -> None:
            body = self._block(lambda: inside({**env, loop.name: block * step + count}))
            self.b.add(For(f"{loop.name}.step", step, (as_index(step), *left), body))
            blocks.flush()

        rounded = tuple((x + (step - 1)) // step for x in stops)
        self.b.add(For(f"{loop.name}.block", block.hi + 1, rounded, self._block(one)))

    def _peel(
        self,
        loop: Loop,
        shape: AxisShape,
        env: Env,
        limits: Limits,
        inside: Callable[[Env, Limits], None],
    ) -> None:
        finer = [
            x.name
            for x in self.tree.loops
            if x.axes == loop.axes and self._step(x) <= self._step(loop)
        ]
        left = shape.extent - self.tree.axis_index(shape.axis).substitute(
            dict.fromkeys(finer, as_index(0))
        )
        last = (left // shape.tile).substitute(env)
        tail_env, tail_limits = {**env, loop.name: last}, {**limits, shape.axis: shape.rest}
        self._branch(
            Valid((Range(last, 0, loop.extent),)), lambda: inside(tail_env, tail_limits), None
        )

    # -- reductions

    def _reduce(self, i: int, s: Reduce, limits: Limits) -> None:
        tree, b, lane = self.tree, self.b, self.lanes_of[i]
        if isinstance(tree.matrix, TileLoops):
            self._in_tiles(i, s, limits)
            return
        shared = list(tree.shared_registers)
        copies = [x for x in tree.own(i) if x.kind is LoopKind.UPCAST]
        vtype = VType(s.dtype, lane.extent if lane else 1)
        points = self._points(shared, limits, lane)
        spread = self._points(copies, {}, lane)
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
        local = self._own_items(i)

        def body(env: Env, inner: Limits) -> None:
            self._update(i, s, env, inner, vtype)

        if local is not None:
            self._over_items(i, s, local, limits, points, spread, body, vtype)
            return
        self._chain(i, s, limits, points, spread, body, vtype)
        for p in points:
            total = self._combine(s, p, spread, lane, vtype)
            self.results[(s.name, p)] = total
        if tree.partial:
            self._partial(i, s, limits, points)

    def _in_tiles(self, i: int, s: Reduce, limits: Limits) -> None:
        """A sum in tile registers, whose rows are loaded where they are read."""
        tiles = Tiles(self.tree, self.b, partial(self._new_values, i), i, limits)
        self.allocs.append(tiles.scratch)
        tiles.emit(lambda update: self._loops(i, 0, {}, limits, update))
        points = self._points(list(self.tree.shared_registers), limits, self.lanes_of[i])
        for p in points:
            self.results[(s.name, p)] = partial(tiles.result, p)
        if self.tree.partial:
            self._partial(i, s, limits, points)

    def _own_items(self, i: int) -> Loop | None:
        """The loop of a stage that work-items share out."""
        return next((x for x in self.tree.own(i) if x.kind is LoopKind.LOCAL), None)

    def _chain(
        self, i: int, s: Reduce, limits: Limits, points: list[Point], spread: list[Point],
        body: Callable[[Env, Limits], None], vtype: VType,
    ) -> None:  # fmt: skip
        """The loops of a reduction; where its chains are cut, f64 registers take over the sum of
        every block.
        """
        b, cut = self.b, cut_of(self.tree, i)
        if cut is None:
            self._loops(i, 0, {}, limits, body)
            return
        wide = VType(F64, vtype.lanes)
        names = [_register(s.name, p + c) for p in points for c in spread]
        for name in names:
            b.add(Register(f"{name}.wide", wide))
            b.add(Write(f"{name}.wide", b.number(0.0, F64, wide.lanes), wide))

        def total(name: str) -> Known:
            """What the f64 register and the open block hold together."""
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

        self._loops(i, 0, {}, limits, body, _Blocks(cut, flush))
        for name in names:
            b.add(Write(name, b.convert(total(name), s.dtype)[0], vtype))

    def _update(self, i: int, s: Reduce, env: Env, limits: Limits, vtype: VType) -> None:
        if self.tree.matrix is not None:
            self._by_unit(i, s, env, vtype)
            return
        tree, b, lane = self.tree, self.b, self.lanes_of[i]
        values = self._values(i, env)
        own = [x for x in tree.own(i) if x.kind.is_register]
        guard = values.masks({a.name for a in s.axes})
        guard = guard.substitute(dict(tree.index)).substitute(env)
        shared_names = {x.name for x in tree.shared_registers}
        upcasts = {x.name for x in own if x.kind is LoopKind.UPCAST}
        for p in self._points([*own, *tree.shared_registers], limits, lane):
            where = (*(q for q in p if q[0] in shared_names), *(q for q in p if q[0] in upcasts))
            name = _register(s.name, where)
            active = self._active(lane, p, limits)
            old = b.new()
            b.add(Read(old, name, vtype))
            new = self._fold_in(values, s, (old, vtype.lanes), p, active)
            if lane is not None and lane.stage >= 0 and active is not None:
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
        unit = Fragments(tree, b, partial(self._new_values, i), env)
        registers = (x for x in (*tree.own(i), *tree.shared_registers) if x.kind.is_register)
        for p in self._points([x for x in registers if unit.is_free(x)], {}, None):
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
        """op(old, expr), as one FMA for a sum of products, or one DOT2_ADD for a sum of products of
        pairs
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
        if s.op is Op.ADD and s.dtype == F32 and isinstance(x, Apply) and x.op is Op.DOT2:
            pairs = [values.emit(y, p, active) for y in x.args]
            return self.b.compute(
                Op.DOT2_ADD, [*pairs, old], [*(y.dtype for y in x.args), F32], F32
            )
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
        self, i: int, s: Reduce, local: Loop, limits: Limits, points: list[Point],
        spread: list[Point],
        body: Callable[[Env, Limits], None], vtype: VType,
    ) -> None:  # fmt: skip
        """Each work-item folds its share; then shares are folded, in their warp or in memory."""
        lane = self.lanes_of[i]
        name = lane.name if lane else ""
        shares: Exchange | Shares
        if exchanges(self.tree):
            registers = [_register(s.name, p + spread[0]) for p in points]
            shares = Exchange(self.tree, self.b, s, local, registers, vtype, name)
        else:
            shares = Shares(self.tree, self.b, s, local, len(points), vtype, name)
        self.allocs += shares.allocs

        def share() -> None:
            self._chain(i, s, limits, points, spread, body, vtype)
            shares.keep([self._combine(s, p, spread, lane, vtype) for p in points])

        on_items(self.tree, self.b, local, share)
        for p, total in zip(points, shares.fold(), strict=True):
            self.results[(s.name, p)] = total

    # -- partial sums

    def _ends(self) -> tuple[Valid, Valid]:
        """Whether this is the first partial sum, and whether it is the last."""
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
        """Whether loops of the axis stop before its nominal extent."""
        return axis in self.shapes and self.shapes[axis].mode != "mask"

    def _partial(self, i: int, s: Reduce, limits: Limits, points: list[Point]) -> None:
        """Sums go on in the output, or in f64 scratch of its form where many are added."""
        tree, b = self.tree, self.b
        first, last = self._ends()
        whole = (x for x in tree.kernel.stores if x.valid.always)
        store = next(x for x in whole if tree.kernel.param(x.param).dtype == s.dtype)
        at = tree.kernel.stages.index(store)
        dtype, buffer = s.dtype, store.param
        if has_wide_partials(tree, i):
            dtype, buffer = F64, f"{s.name}.partial"
            self.allocs.append(Alloc(buffer, F64, tree.kernel.param(store.param).size, "team"))
        kept: dict[Point, str] = {}
        lanes = tree.lane_loop(at)
        vtype = VType(dtype, lanes.extent if lanes else 1)
        for p in points:
            kept[p] = f"{s.name}.sum{len(kept)}"
            b.add(Register(kept[p], vtype))
            found = self.results[(s.name, p)]
            part = self._as(known(found), s.dtype, dtype)
            b.add(Write(kept[p], b.splat(part, dtype, vtype.lanes), vtype))

        def add_earlier() -> None:
            values = self._values(at, {})
            target = self._target(values, store)
            for p in points:
                old = b.new()
                b.add(Read(old, kept[p], vtype))
                offset, valid = self._at(values, target, p, self._active(lanes, p, limits))
                earlier = b.load(buffer, offset, valid, dtype, values.lane, values.lanes)
                b.add(
                    Write(
                        kept[p],
                        b.compute(s.op, [earlier, (old, vtype.lanes)], [dtype] * 2, dtype)[0],
                        vtype,
                    )
                )

        def keep() -> None:
            values = self._values(at, {})
            target = self._target(values, store)
            for p in points:
                old = b.new()
                b.add(Read(old, kept[p], vtype))
                offset, valid = self._at(values, target, p, self._active(lanes, p, limits))
                b.store(buffer, offset, valid, (old, vtype.lanes), dtype, values.lane, values.lanes)

        def finish() -> None:
            for p in points:
                total = b.new()
                b.add(Read(total, kept[p], vtype))
                self.results[(s.name, p)] = self._as((total, vtype.lanes), dtype, s.dtype)
            for j, x in enumerate(tree.kernel.stages):
                if isinstance(x, Store):
                    self._store_stage(j, x, limits)

        self._branch(first, lambda: None, add_earlier)
        self._branch(last, finish, keep)

    def _as(self, value: Known, have: DType, dtype: DType) -> Known:
        return value if have == dtype else self.b.convert(value, dtype)

    # -- stores

    def _target(self, values: Values, s: Store) -> tuple[Index, Valid]:
        """The offset that a store writes, and the condition on it, over loops."""
        layout = self.tree.kernel.param(s.param).layout
        axes = {a.name for a in (*self.tree.kernel.axes, *s.axes)}
        valid = (values.masks(axes) & values.needed(s.valid)).substitute(values.env)
        return layout.offset([values.over(x) for x in s.index]), valid

    def _at(
        self, values: Values, target: tuple[Index, Valid], p: Point, active: int | None
    ) -> tuple[Index, Valid]:
        """A target at one point, and only in the active lanes."""
        offset, valid = fix(target[0], p), fix_valid(target[1], p)
        return offset, valid if active is None else valid & values.first_lanes(active)

    def _store_stage(self, i: int, s: Store, limits: Limits) -> None:
        tree, lane = self.tree, self.lanes_of[i]
        own = [x for x in tree.own(i) if x.kind.is_register]

        def body(env: Env, inner: Limits) -> None:
            values = self._values(i, env)
            target = self._target(values, s)
            for p in self._points([*tree.shared_registers, *own], inner, lane):
                active = self._active(lane, p, inner)
                offset, valid = self._at(values, target, p, active)
                value = values.emit(s.expr, p, active)
                dtype = tree.kernel.param(s.param).dtype
                stream = s.param in tree.streamed
                self.b.store(
                    s.param, offset, valid, value, dtype, values.lane, values.lanes, stream
                )

        local = self._own_items(i)
        if local is None:
            on_first(tree, self.b, lambda: self._loops(i, 0, {}, limits, body))
        else:
            on_items(tree, self.b, local, lambda: self._loops(i, 0, {}, limits, body), once=True)


@remembered(64)
def _conditions(kernel: Kernel) -> tuple[tuple[int, str, Valid], ...]:
    """The conditions of a kernel, with the stage that asks, and the parameter of a load ("" where
    it is none).
    """
    found: dict[tuple[int, str, Valid], None] = {}
    for i, stage in enumerate(kernel.stages):
        if isinstance(stage, Store):
            found[i, "", stage.valid] = None
        for x in leaves(stage.expr):
            if isinstance(x, ExprLoad | Inside):
                found[i, x.param if isinstance(x, ExprLoad) else "", x.valid] = None
    return tuple([c for c in found if c[2].ranges])


def _register(stage: str, point: Point) -> str:
    return ".".join([stage, *(f"{n}{v}" for n, v in point)])
