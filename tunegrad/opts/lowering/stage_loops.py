"""The serial loops of one stage, and the points of its register loops.

A last, partial iteration is peeled; a chain of additions is cut into blocks (chains.py); where
copies run ahead the loop is a pipeline.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

from tunegrad.ir.index import Index, Range, Valid, as_index, var
from tunegrad.ir.looptree import Loop, LoopKind, LoopTree
from tunegrad.ir.program import Alloc, For, If, Pipeline

from ..staging import StagedCopy
from .builder import Builder
from .chains import Cut
from .copies import copies_ahead, emit_copies
from .over import Over
from .shape import AxisShape, loop_stops
from .values import Point, Result, Values

__all__ = ["NOTHING", "Blocks", "Env", "Limits", "StageLoops", "Where"]

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
    """The cut of a chain of additions, and the code that adds the accumulators into wide ones and
    clears them.
    """

    cut: Cut
    flush: Callable[[], None]


class StageLoops:
    """The known facts of a tree's region, and the loops of its stages."""

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
        self.assumed = self.refuted = NOTHING
        """Conditions that are known to hold here, and to hold nowhere here."""
        self.together: dict[tuple[frozenset[str], frozenset[str]], Values] = {}

    def step(self, loop: Loop) -> int:
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
            self.b.add(If(valid, body, orelse))

    def block(self, emit: Callable[[], None]) -> tuple:  # type: ignore[type-arg]
        self.b.open()
        emit()
        return self.b.close()

    def points(self, loops: list[Loop], limits: Limits, lane: Loop | None) -> list[Point]:
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

    def active(self, lane: Loop | None, point: Point, limits: Limits) -> int | None:
        """Number of lanes inside a limited axis; None for all."""
        if lane is None or lane.axes[0] not in limits:
            return None
        axis = lane.axes[0]
        step = self.tree.axis_index(axis).coefficient(lane.name) or 1
        n = -(-(limits[axis] - self._offset(axis, point)) // step)
        return None if n >= lane.extent else n

    def values(self, i: int, env: Env) -> Values:
        """The values of a stage; stages that run at the same points share one, and what it has
        worked out.
        """
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

    def serial(self, i: int) -> list[Loop]:
        return [x for x in self.tree.own(i) if x.kind is LoopKind.SERIAL]

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

        def inside(env: Env, limits: Limits) -> None:
            emit_copies(
                self.tree,
                self.b,
                [p for p in self.plans.values() if p.staged.at == loop.name],
                env,
                True,
            )
            self.loops(i, at + 1, env, limits, body, blocks, upto)

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
                    For(loop.name, loop.extent, stops, self.block(lambda: inside(env, limits)))
                )
        if (
            shape is not None
            and shape.mode == "split"
            and shape.rest
            and self.step(loop) == shape.tile
        ):
            self._peel(loop, shape, env, limits, last)

    def _pipelined(
        self, loop: Loop, env: Env, blocks: Blocks | None, inside: Callable[[], None]
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

        copies = copies_ahead(self.tree, self.b, plans, env)
        self.b.add(Pipeline(loop.name, loop.extent, slots, copies, self.block(body)))

    def _in_blocks(
        self,
        loop: Loop,
        stops: tuple[Index, ...],
        env: Env,
        blocks: Blocks,
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
            body = self.block(lambda: inside({**env, loop.name: block * step + count}))
            self.b.add(For(f"{loop.name}.step", step, (as_index(step), *left), body))
            blocks.flush()

        rounded = tuple((x + (step - 1)) // step for x in stops)
        self.b.add(For(f"{loop.name}.block", block.hi + 1, rounded, self.block(one)))

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
