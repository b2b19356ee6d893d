"""The operands of a matrix unit that each work-item holds, as loads over the loops of a tree.

    C[m, n] += A[m, k] * B[k, n]      m = 8*high + row, n = 2*column + pair, k of 16

    A, register (s, high) = A[8*high + row, 2*column + <0, 1> + 8*s]
    B, register s         = B[2*column + <0, 1> + 8*s, row]

An item's place along n in the result is its place along k in the operands, and its place along m
that along n in B: loads are those of the kernel with other sums for its loops.

Operands in shared memory in rows of 16 bytes are loaded by the warp together, where the target does
that: each item gives the place of one row, of A, of B as it lies across k, or of either one
transposed; two tiles that lie along a register loop make one load of four matrices.

    A[8*high + row, 8*s .. 8*s+7]      item l gives row l % 8 of matrix l // 8 = (s, high)

Operands of tf32 are f32 in memory, which each item rounds in its registers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tunegrad.errors import InternalError
from tunegrad.ir.dtypes import F32
from tunegrad.ir.expr import Load, Op
from tunegrad.ir.index import Index, as_index, var
from tunegrad.ir.kernel import Reduce
from tunegrad.ir.looptree import Loop, LoopKind, LoopTree, MatrixTile
from tunegrad.ir.pipelines import REGISTER_BYTES, ROW_BYTES, is_aligned
from tunegrad.ir.program import MatLoad, VType
from tunegrad.ir.target import MatrixUnit

from ..actions.tensorcore import factors
from ..staging import StagedCopy
from .builder import Builder
from .values import Point, Values, fix, fix_valid

__all__ = ["Fragments"]

Env = dict[str, Index]

_MOST_MATRICES = 4
"""Of one load."""
_TRANSPOSED_BYTES = 2
"""Of an element that can be loaded transposed."""


@dataclass(slots=True)
class Fragments:
    """The operands of one stage's product; ``values_of`` gives its values where loops are fixed."""

    tree: LoopTree
    b: Builder
    values_of: Callable[[Env], Values]
    env: Env
    matrix: MatrixTile = field(init=False)
    unit: MatrixUnit = field(init=False)
    stage: int = field(init=False)
    a: Load = field(init=False)
    c: Load = field(init=False)
    steps: list[tuple[Values, Values]] = field(init=False)
    """For each register of a row, the values of A and those of B."""

    def __post_init__(self) -> None:
        if not isinstance(self.tree.matrix, MatrixTile):
            raise InternalError("a tree without a matrix unit of work-items")
        m = self.matrix = self.tree.matrix
        u = self.unit = m.unit
        self.stage = next(i for i, s in enumerate(self.tree.kernel.stages) if isinstance(s, Reduce))
        self.a, self.c = factors(self.tree, m.row, m.column)
        row, column = var(m.row, u.rows), var(m.column, u.columns)
        neighbour = var(self.lane, u.packed) if u.packed > 1 else as_index(0)
        across = {m.column: row // u.pair, m.pair: row % u.pair}
        self.steps = []
        for s in range(u.steps):
            k = column * u.packed + neighbour + s * u.columns * u.packed
            along = {**self.env, m.k: k}
            self.steps.append((self.values_of(along), self.values_of({**along, **across})))

    @property
    def lane(self) -> str:
        """The variable of neighbours in one register."""
        return f"{self.matrix.k}.v"

    def is_free(self, loop: Loop) -> bool:
        """True if a register loop is not the unit's own."""
        return loop.name not in (self.matrix.high, self.matrix.pair, self.matrix.k)

    def rows(self, p: Point) -> tuple[int, ...]:
        """The registers of A at a point, step by step."""
        found = self._together(self.a, p, self._row_of_a, self.unit.highs)
        if found is None:
            highs = range(self.unit.highs)
            found = tuple(
                self._load(mine, self.a, (*p, (self.matrix.high, high)))
                for mine, _ in self.steps
                for high in highs
            )
        return self._taken(found)

    def columns(self, p: Point) -> tuple[int, ...]:
        """The registers of B at a point, step by step."""
        found = self._together(self.c, p, self._row_of_b, 1)
        if found is None:
            found = tuple(self._load(theirs, self.c, p) for _, theirs in self.steps)
        return self._taken(found)

    def _taken(self, values: tuple[int, ...]) -> tuple[int, ...]:
        """Values as the unit takes them; each is rounded once in a block."""
        return tuple(map(self._rounded, values)) if self.unit.rounds else values

    def _rounded(self, value: int) -> int:
        key = (Op.TF32, value)
        found = self.b.find(key)
        if found is None:
            made = self.b.compute(Op.TF32, [(value, 1)], [F32], F32)
            found = self.b.remember(key, made)
        return found[0]

    def places(self) -> list[tuple[int, int]]:
        """(high, pair) of the results that one item holds, in the unit's order."""
        return [(high, pair) for high in range(self.unit.highs) for pair in range(self.unit.pair)]

    def placed(self, p: Point, high: int, pair: int) -> Point:
        """Place of a sum: a point of the accumulators' loops, in list order."""
        known = {**dict(p), self.matrix.high: high, self.matrix.pair: pair}
        own = [x for x in self.tree.loops if x.stage >= 0 and x.kind is LoopKind.UPCAST]
        loops = (*self.tree.shared_registers, *own)
        return tuple((x.name, known[x.name]) for x in loops if x.name in known)

    # what a warp loads together

    def _row_of_a(self, high: Index, row: Index) -> Env:
        return {self.matrix.high: high, self.matrix.row: row}

    def _row_of_b(self, _: Index, row: Index) -> Env:
        pair = self.unit.pair
        return {self.matrix.column: row // pair, self.matrix.pair: row % pair}

    def _together(
        self, x: Load, p: Point, along: Callable[[Index, Index], Env], highs: int
    ) -> tuple[int, ...] | None:
        """The registers of an operand, from one load by the warp; None where that can not be.

        ``along`` gives what a row of a tile is over the loops, of a high and a row.
        """
        plan = self.steps[0][0].plans.get((self.stage, x.param))
        if plan is None or plan.space != "shared" or not self.tree.target.loads_matrices:
            return None
        if self.unit.packed * x.dtype.itemsize != REGISTER_BYTES:
            return None
        here, m = self.unit.steps * highs, self.matrix
        tiles = self._neighbours(plan.read, p) if 2 * here <= _MOST_MATRICES else None
        count = here * (2 if tiles else 1)
        row, column = var(m.row, self.unit.rows), var(m.column, self.unit.columns)
        which, mine = (row // 2) % count, row % 2 * self.unit.columns + column
        width, within = ROW_BYTES // x.dtype.itemsize, which % here
        known, place = dict(p), 0
        env = dict(self.env)
        if tiles:
            place = known[tiles] % 2
            env[tiles] = which // here + (known[tiles] - place)
        step, high = within // highs * width, within % highs
        zero = as_index(0)
        for transposed in (False, True):
            lies = {m.k: step + mine, **along(high, zero)}
            stands = {m.k: step, **along(high, mine)}
            offset = plan.read.substitute({**env, **(lies if transposed else stands)})
            offset = fix(offset, p)
            if self._is_row(plan.read, along, transposed) and is_aligned(offset, width):
                made = self._mat_load(plan, offset, count, transposed)
                return made[place * here : (place + 1) * here]
            if x.dtype.itemsize != _TRANSPOSED_BYTES:
                break
        return None

    def _neighbours(self, read: Index, p: Point) -> str | None:
        """The innermost register loop along which two tiles of an operand lie."""
        loops = {x.name: x for x in self.tree.loops}
        for name, _ in reversed(p):
            if name in read.names() and self.is_free(loops[name]) and loops[name].extent % 2 == 0:
                return name
        return None

    def _is_row(self, read: Index, along: Callable[[Index, Index], Env], transposed: bool) -> bool:
        """True if neighbours along k, or of a tile's rows, lie side by side."""
        if not transposed:
            return read.coefficient(self.matrix.k) == 1
        place = var("row", self.unit.rows)
        return read.substitute(along(as_index(0), place)).coefficient("row") == 1

    def _mat_load(
        self, plan: StagedCopy, offset: Index, count: int, transposed: bool
    ) -> tuple[int, ...]:
        """The values of one load, which a block does once."""
        b, vtype = self.b, VType(plan.dtype, self.unit.packed)
        keys = [("matrices", plan.staged.buffer, offset, transposed, i) for i in range(count)]
        if b.find(keys[0]) is None:
            ids = tuple(b.new() for _ in keys)
            b.add(MatLoad(ids, plan.staged.buffer, offset, vtype, transposed))
            for key, i in zip(keys, ids, strict=True):
                b.remember(key, (i, vtype.lanes))
        return tuple(b.known[key][0] for key in keys)

    def _load(self, values: Values, x: Load, point: Point) -> int:
        buffer, offset, valid = values.site(x)
        packed = self.unit.packed
        at, where = fix(offset, point), fix_valid(valid, point)
        found = self.b.load(buffer, at, where, x.dtype, self.lane, packed)
        return self.b.splat(found, x.dtype, packed)
