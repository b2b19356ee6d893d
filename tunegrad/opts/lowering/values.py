"""Emits scalar expressions for one point of the register loops, each value once per block.

An axis whose loops cover more than its extent has a tail. Three ways to keep inside:

    stop   serial loops count to ``min(extent, ceil((E - base) / step))``
    split  register loops form the finest tile t of the axis, so the last one always holds E mod t:
           the code is written twice, for a full tile and for that remainder
    mask   everything else (padded axes, work-items, register loops that are not the finest): loads
           give zero, updates are dropped, stores are skipped where the axis is past its extent
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from math import prod

from tunegrad.errors import InternalError
from tunegrad.ir import kernel as ir
from tunegrad.ir.dtypes import BF16, BOOL, F32, I8, U8, DType
from tunegrad.ir.expr import Apply, Cast, Const, Expr, IndexValue, Inside, Load, Op, Value, leaves
from tunegrad.ir.index import ALWAYS, NEVER, Index, Range, Valid, as_index, var
from tunegrad.ir.looptree import Loop, LoopKind, LoopTree
from tunegrad.ir.program import ROUNDING
from tunegrad.lazy import dataclass

from .. import staging
from .builder import Builder, Known


class Over:
    """Indices, conditions and offsets over loops.

    Mutable: it remembers them by the identity of what they are of.
    """

    def __init__(self, tree: LoopTree) -> None:
        self.axes = dict(tree.index)
        self._layouts = {p.name: p.layout for p in tree.kernel.params}
        self._indices: dict[int, tuple[Index, Index]] = {}
        self._conditions: dict[int, tuple[Valid, Valid]] = {}
        self._offsets: dict[int, tuple[Load, Index, frozenset[str]]] = {}

    def index(self, index: Index) -> Index:
        """An index over axes as one over loops."""
        found = self._indices.get(id(index))
        # the entry keeps what it is of, so that nothing else can have its identity
        if found is None:
            found = self._indices[id(index)] = index, index.substitute(self.axes)
        return found[1]

    def condition(self, valid: Valid) -> Valid:
        """A condition over axes as one over loops."""
        if not valid.ranges:
            return valid
        found = self._conditions.get(id(valid))
        if found is None:
            found = self._conditions[id(valid)] = valid, valid.substitute(self.axes)
        return found[1]

    def offset(self, x: Load) -> tuple[Index, frozenset[str]]:
        """The element that a load reads, over loops, and the axes that say so."""
        found = self._offsets.get(id(x))
        if found is None:
            offset = self._layouts[x.param].offset([self.index(i) for i in x.index])
            axes = frozenset[str]().union(*[i.names() for i in x.index])
            found = self._offsets[id(x)] = x, offset, axes
        return found[1], found[2]


@dataclass(frozen=True, slots=True)
class AxisShape:
    """An axis with a tail.

    ``tile`` is the finest register tile, ``rest`` what the last one holds, 0 when it divides.
    """

    axis: str
    extent: int
    mode: str
    registers: tuple[Loop, ...] = ()
    tile: int = 1
    rest: int = 0


def axis_shapes(tree: LoopTree) -> dict[str, AxisShape]:
    """Every axis with a tail."""
    shapes = {}
    for axis, index in tree.index:
        extent = tree.extent(axis)
        if index.hi + 1 == extent:
            continue
        loops = [x for x in tree.loops if axis in x.axes and x.extent > 1]
        registers = tuple(x for x in loops if x.kind.is_register)
        tile = prod(x.extent for x in registers)
        steps = [index.coefficient(x.name) for x in loops if not x.kind.is_register]
        masked = (
            axis in tree.padded
            or any(len(x.axes) > 1 or x.kind is LoopKind.LOCAL for x in loops)
            or (tree.target.has_work_items and any(x.kind is LoopKind.THREAD for x in loops))
            or any(s is None or s < tile for s in steps)
        )
        if masked:
            shapes[axis] = AxisShape(axis, extent, "mask")
        else:
            shapes[axis] = AxisShape(axis, extent, "split", registers, tile, extent % tile)
    return shapes


def loop_stops(
    tree: LoopTree, shapes: dict[str, AxisShape], loop: Loop, *, whole: bool
) -> tuple[Index, ...]:
    """The trip count of a loop, as the least of these.

    ``whole`` leaves a partial register tile to the caller.
    """
    axis = loop.axes[0]
    shape = shapes.get(axis)
    if shape is None or shape.mode == "mask" or len(loop.axes) > 1:
        return (as_index(loop.extent),)
    index = tree.axis_index(axis)
    step = index.coefficient(loop.name) or 1
    finer = [
        x.name for x in tree.loops if x.axes == (axis,) and (index.coefficient(x.name) or 0) <= step
    ]
    left = shape.extent - index.substitute(dict.fromkeys(finer, as_index(0)))
    rounded = left // step if whole and step == shape.tile else (left + (step - 1)) // step
    if rounded.is_const:
        return (as_index(max(0, min(loop.extent, rounded.const))),)
    return (
        (as_index(loop.extent),) if rounded.lo >= loop.extent else (as_index(loop.extent), rounded)
    )


def interior(
    tree: LoopTree,
    plans: Collection[tuple[int, str]],
    shapes: Mapping[str, AxisShape],
    over: Over,
    decided: Collection[str] = (),
) -> tuple[Valid, frozenset[str]]:
    """The condition under which conditions of the region hold whatever its own loops do, and those
    conditions: all but those of which some point of the region is always outside, as of a row in
    lanes that is padded, and those that its own loops have ``decided``.

    Never with work-items: a branch may not stand around barriers.

    Then the region is emitted without them, and once more with them for the iterations at the edge
    (docs/decisions/0004-interior-branches.md).
    """
    if tree.target.has_work_items:
        return ALWAYS, frozenset()
    condition = over.condition
    outer = {x.name for x in tree.outer}
    found: dict[str, Range] = {}
    for i, param, valid in _conditions(tree.kernel):
        if (i, param) not in plans:
            found.update((r.key, r) for r in condition(valid) if r.key not in decided)
    for shape in shapes.values():
        if shape.mode == "mask":
            r = Range(tree.axis_index(shape.axis), 0, shape.extent)
            found[Valid((r,)).key] = r
    ranges, held = [], list[str]()
    for key, r in found.items():
        zero = {n: as_index(0) for n in r.index.names() - outer}
        base = r.index.substitute(zero)
        rest = r.index - base
        if rest.names() & outer:
            return ALWAYS, frozenset()
        whole = Range(base, r.lo - rest.lo, r.hi - rest.hi)
        if not Valid((whole,)).never:
            ranges.append(whole)
            held.append(key)
    return Valid(ranges), frozenset(held)


@ir.memoized(64)
def _conditions(kernel: ir.Kernel) -> tuple[tuple[int, str, Valid], ...]:
    """The conditions of a kernel, with the stage that asks, and the parameter of a load or ""."""
    found: dict[tuple[int, str, Valid], None] = {}
    for i, stage in enumerate(kernel.stages):
        if isinstance(stage, ir.Store):
            found[i, "", stage.valid] = None
        for x in leaves(stage.expr):
            if isinstance(x, Load | Inside):
                found[i, x.param if isinstance(x, Load) else "", x.valid] = None
    return tuple([c for c in found if c[2].ranges])


def left_out(tree: LoopTree, over: Over) -> dict[str, tuple[Range, str]]:
    """The conditions over loops, none of them a register's, without which a term of a sum is none.
    By their text, with the innermost loop of the sum that decides it.
    """
    conditions = ir.on_both(tree.kernel)
    if not conditions or tree.target.has_work_items or tree.matrix is not None:
        return {}
    i = next(i for i, s in enumerate(tree.kernel.stages) if isinstance(s, ir.Reduce))
    serial = [x.name for x in tree.own(i) if x.kind is LoopKind.SERIAL and x.extent > 1]
    fixed = {x.name for x in tree.outer} | {*serial}
    found = {}
    for r in over.condition(Valid(conditions)):
        names = r.index.names()
        own = [x for x in serial if x in names]
        if own and names <= fixed:
            found[r.key] = r, own[-1]
    return found


Point = tuple[tuple[str, int], ...]
"""A value for each scalar register loop, in list order."""

Result = Known | Callable[[], Known]
"""A stage's result at a point, or the function that loads it there."""


def known(result: Result) -> Known:
    """A result that is there, or is made now."""
    return result() if callable(result) else result


class Values:
    """Lowers the expressions of one stage.

    ``env`` fixes loops that a peeled tail replaced; ``lane`` is the lane loop.
    """

    def __init__(
        self,
        tree: LoopTree,
        builder: Builder,
        plans: dict[tuple[int, str], staging.StagedCopy],
        shapes: dict[str, AxisShape],
        stage: int,
        env: dict[str, Index],
        known: tuple[frozenset[str], frozenset[str]],
        over: Over,
    ) -> None:
        self.tree, self.builder, self.plans, self.shapes = tree, builder, plans, shapes
        self.stage, self.env = stage, env
        self.assumed, self.refuted = known
        self._over = over
        # stages without axes of their own run at the same points: they share what they compute
        alone = tree.kernel.stages[stage].axes or any(s == stage for s, _ in plans)
        self.scope = stage if alone else -1
        loop = tree.lane_loop(stage)
        self.lane = loop.name if loop else ""
        self.lanes = loop.extent if loop else 1
        self.masked = {a for a, shape in shapes.items() if shape.mode == "mask"}
        self.ahead = dict(tree.prefetched)
        self.results: dict[tuple[str, Point], Result] = {}
        """Of earlier stages, at points of ``registers``."""
        self.registers = frozenset(x.name for x in tree.shared_registers)
        self._deps: dict[int, frozenset[str]] = {}
        self._sites: dict[int, tuple[str, Index, Valid]] = {}
        self._elements: dict[int, tuple[str, Index, Valid]] = {}
        self._keep: list[Expr] = []
        self._point: Point = ()
        self._here: dict[frozenset[str], Point] = {}
        self.kept: dict[int, tuple[str, Index, DType]] = {}
        self.kept_here: tuple[str, Index, DType] | None = None
        for made in tree.kept:
            kept = staging.kept_of(tree, made)
            where = (
                kept.buffer,
                kept.offset(tree, stage).substitute(env) if self._has(kept, stage) else as_index(0),
            )
            if made == stage:
                self.kept_here = (*where, kept.dtype)
            for node in tree.kernel.made_again(made).get(stage, ()):
                self.kept[id(node)] = (*where, kept.dtype)

    def _has(self, kept: staging.Kept, stage: int) -> bool:
        """True if a stage makes or reads the kept values: it has axes like the producer's."""
        return len(ir.own_axes(self.tree.kernel.stages[stage])) == len(kept.extents)

    def site(self, x: Load) -> tuple[str, Index, Valid]:
        """The buffer, offset and condition of a load, over loops."""
        found = self._sites.get(id(x))
        if found is None:
            plan = self.plans.get((self.stage, x.param))
            if plan is not None:
                found = (plan_buffer(plan), plan.read.substitute(self.env), ALWAYS)
            else:
                offset, axes = self._over.offset(x)
                valid = self.needed(x.valid) & self.masks(axes)
                found = (x.param, offset.substitute(self.env), valid.substitute(self.env))
            self._sites[id(x)] = found
            self._keep.append(x)
        return found

    def masks(self, axes: Iterable[str]) -> Valid:
        """That masked axes are within their extents."""
        masked = self.masked.intersection(axes) if self.masked else self.masked
        return self.unassumed(staging.tails(self.tree, masked)) if masked else ALWAYS

    def needed(self, valid: Valid) -> Valid:
        """A condition over axes as one over loops, less what a branch around already made sure
        of; never, where one around made sure that it does not hold.
        """
        return self.unassumed(self._over.condition(valid))

    def unassumed(self, valid: Valid) -> Valid:
        if any(r.key in self.refuted for r in valid):
            return NEVER
        if not self.assumed or not valid.ranges:
            return valid
        return Valid(r for r in valid if r.key not in self.assumed)

    def over(self, index: Index) -> Index:
        """An index over axes as one over loops."""
        return self._over.index(index).substitute(self.env)

    def deps(self, x: Expr) -> frozenset[str]:
        """Names of the loops that an expression depends on."""
        found = self._deps.get(id(x))
        if found is None and id(x) in self.kept:
            found = self._deps[id(x)] = frozenset(self.kept[id(x)][1].names())
        if found is None:
            found = self._deps[id(x)] = self._depends(x)
            self._keep.append(x)
        return found

    def _depends(self, x: Expr) -> frozenset[str]:
        if isinstance(x, Apply):
            return frozenset().union(*[self.deps(a) for a in x.args])
        if isinstance(x, Cast):
            return self.deps(x.x)
        if isinstance(x, Load):
            _, offset, valid = self.site(x)
            return frozenset(offset.names() | valid.names())
        if isinstance(x, IndexValue):
            return frozenset(self.over(x.index).names())
        if isinstance(x, Inside):
            return frozenset(self.needed(x.valid).substitute(self.env).names())
        if isinstance(x, Value) and x.index:
            _, offset, valid = self.element(x)
            return frozenset(offset.names() | valid.names())
        if isinstance(x, Value):
            return self.registers
        return frozenset()

    def emit(self, x: Expr, point: Point, active: int | None) -> Known:
        """The value of ``x`` at ``point``; lanes from ``active`` on (if given) are not read."""
        b = self.builder
        if isinstance(x, Const):
            return b.number(x.value, x.dtype), 1
        deps = self._deps.get(id(x))
        if deps is None:
            deps = self.deps(x)
        if point is not self._point:
            self._point, self._here = point, {}
        here = self._here.get(deps)
        if here is None:
            here = self._here[deps] = tuple([p for p in point if p[0] in deps])
        key = (self.scope, id(x), here, active if self.lane in deps else None)
        found = b.known.get(key)
        return found if found is not None else b.remember(key, self._emit(x, here, point, active))

    def _emit(
        self,
        x: Apply | Cast | IndexValue | Inside | Load | Value,
        here: Point,
        point: Point,
        active: int | None,
    ) -> Known:
        b = self.builder
        if id(x) in self.kept:
            buffer, offset, dtype = self.kept[id(x)]
            valid = self._active(self.kept_valid(point), offset, active)
            return b.load(buffer, fix(offset, here), valid, dtype, self.lane, self.lanes)
        if isinstance(x, Load):
            buffer, offset, valid = self.site(x)
            valid = fix_valid(valid, here)
            if (self.stage, x.param) not in self.plans:
                valid = self._active(valid, offset, active)
            ahead = self.ahead.get(x.param, 0)
            return b.load(buffer, fix(offset, here), valid, x.dtype, self.lane, self.lanes, ahead)
        if isinstance(x, Apply):
            given = x.args
            if x.op is Op.PAIR and all(isinstance(a, Cast) and a.x.dtype == BF16 for a in given):
                given = tuple(
                    a.x for a in given if isinstance(a, Cast)
                )  # bf16 as it is: no detour through f32
            args = [self.emit(a, point, active) for a in given]
            if x.op is Op.WHERE:
                if isinstance(x.args[0], Inside) and self.always(x.args[0], here):
                    return args[1]
                return b.select(args[0], args[1], args[2], x.dtype)
            return b.compute(x.op, args, [a.dtype for a in given], x.dtype)
        if isinstance(x, Cast):
            steps = self._steps(x, point, active)
            return b.convert(steps or self.emit(x.x, point, active), x.dtype)
        if isinstance(x, IndexValue):
            return b.position(fix(self.over(x.index), here), x.dtype, self.lane, self.lanes)
        if isinstance(x, Inside):
            valid = fix_valid(self.needed(x.valid).substitute(self.env), here)
            if valid.never or valid.always:
                return b.number(valid.always, BOOL), 1
            return b.test(valid, self.lane, self.lanes)
        if x.index:
            buffer, offset, valid = self.element(x)
            valid = self._active(fix_valid(valid, here), offset, active)
            return b.load(buffer, fix(offset, here), valid, x.dtype, self.lane, self.lanes)
        return self.result(x, point)

    def _steps(self, x: Cast, point: Point, active: int | None) -> Known | None:
        """What is cast to a byte where it is a product that is rounded, and moved by a byte: the
        product is rounded once, to an integer, and not to a float before; None for others.

        round(a * b)  -->  round(fma(a, b, C) - C)     C = 1.5 * 2^23, whose neighbours are integers
        """
        whole, zero, b = x.x, None, self.builder
        if x.dtype not in (I8, U8) or x.x.dtype != F32:
            return None
        if isinstance(whole, Apply) and whole.op is Op.ADD:
            whole, zero = whole.args
            if not (isinstance(zero, Cast) and zero.x.dtype in (I8, U8)):
                return None
        if not isinstance(whole, Apply) or whole.op is not Op.ROUND:
            return None
        product = whole.args[0]
        if not isinstance(product, Apply) or product.op is not Op.MUL:
            return None
        far = b.number(ROUNDING, F32), 1
        made = b.compute(
            Op.FMA, [*(self.emit(a, point, active) for a in product.args), far], [F32] * 3, F32
        )
        made = b.compute(Op.ROUND, [b.compute(Op.SUB, [made, far], [F32] * 2, F32)], [F32], F32)
        if zero is None:
            return made
        return b.compute(Op.ADD, [made, self.emit(zero, point, active)], [F32] * 2, F32)

    def _active(self, valid: Valid, offset: Index, active: int | None) -> Valid:
        """The condition, in the first ``active`` lanes where lanes are apart."""
        if active is None or self.lane not in offset.names():
            return valid
        return valid & self.first_lanes(active)

    def element(self, x: Value) -> tuple[str, Index, Valid]:
        """The buffer of a row, the offset of its element, over loops, and where that was
        written: within the extents of axes that are masked.
        """
        found = self._elements.get(id(x))
        if found is None:
            row = staging.row_scratch(self.tree, x.stage)
            offset = row.offset(self.tree, [self.over(i) for i in x.index])
            masks = self.masks({n for i in x.index for n in i.names()})
            found = row.buffer, offset.substitute(self.env), masks.substitute(self.env)
            self._elements[id(x)] = found
            self._keep.append(x)
        return found

    def kept_valid(self, point: Point) -> Valid:
        """The condition under which kept values were written: within the stage's true extents."""
        own = {a.name for a in ir.own_axes(self.tree.kernel.stages[self.stage])}
        return fix_valid(self.masks(own).substitute(self.env), point)

    def always(self, x: Inside, here: Point) -> bool:
        """True if a condition is known to hold at a point."""
        return fix_valid(self.needed(x.valid).substitute(self.env), here).always

    def first_lanes(self, active: int) -> Valid:
        """That the lane is one of the first ``active``."""
        loop = self.tree.lane_loop(self.stage)
        if loop is None:
            raise InternalError("a lane limit without a lane loop")
        return Valid((Range(var(loop.name, loop.extent), 0, active),))

    def result(self, x: Value, point: Point) -> Known:
        """The folded value of an earlier stage, at the shared part of ``point``."""
        shared = tuple(p for p in point if p[0] in self.registers)
        found = self.results.get((x.stage, shared))
        if found is None:
            raise InternalError(f"stage value {x.stage} is not ready at {point}")
        return known(found)


def plan_buffer(plan: staging.StagedCopy) -> str:
    """The buffer that holds a staged copy."""
    return plan.staged.buffer


def offset_at(tree: LoopTree, axis: str, point: Point) -> int:
    """Distance by which the register loops of a point move an axis."""
    index = tree.axis_index(axis)
    return sum((index.coefficient(n) or 0) * v for n, v in point)


def fix(index: Index, point: Point) -> Index:
    """An index with register loops at fixed values."""
    return index.at(dict(point)) if point else index


def fix_valid(valid: Valid, point: Point) -> Valid:
    """A condition with register loops at fixed values."""
    return valid.at(dict(point)) if point and valid.ranges else valid
