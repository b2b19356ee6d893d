"""What each work-item holds of the operands of a matrix unit, as loads over the loops of a tree.

    C[m, n] += A[m, k] * B[k, n]      m = 8*high + row, n = 2*column + pair, k of 16

    A, register (s, high) = A[8*high + row, 2*column + <0, 1> + 8*s]
    B, register s         = B[2*column + <0, 1> + 8*s, row]

An item's place along n in the result is its place along k in the operands, and its place along m
that along n in B: loads are those of the kernel with other sums for its loops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tunegrad.errors import InternalError
from tunegrad.ir.expr import Load
from tunegrad.ir.index import Index, as_index, var
from tunegrad.ir.looptree import Loop, LoopKind, LoopTree, MatrixTile
from tunegrad.ir.target import MatrixUnit

from ..actions.tensorcore import factors
from .builder import Builder
from .values import Point, Values, fix, fix_valid

__all__ = ["Fragments"]

Env = dict[str, Index]


@dataclass(slots=True)
class Fragments:
    """The operands of one stage's product; ``values_of`` gives its values where loops are fixed."""

    tree: LoopTree
    b: Builder
    values_of: Callable[[Env], Values]
    env: Env
    matrix: MatrixTile = field(init=False)
    unit: MatrixUnit = field(init=False)
    a: Load = field(init=False)
    c: Load = field(init=False)
    steps: list[tuple[Values, Values]] = field(init=False)
    """For each register of a row, the values of A and those of B."""

    def __post_init__(self) -> None:
        if self.tree.matrix is None:
            raise InternalError("a tree without a matrix unit")
        m = self.matrix = self.tree.matrix
        u = self.unit = m.unit
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
        """Whether a register loop is not the unit's own."""
        return loop.name not in (self.matrix.high, self.matrix.pair, self.matrix.k)

    def rows(self, p: Point) -> tuple[int, ...]:
        """The registers of A at a point, step by step."""
        highs = range(self.unit.highs)
        return tuple(
            self._load(mine, self.a, (*p, (self.matrix.high, high)))
            for mine, _ in self.steps
            for high in highs
        )

    def columns(self, p: Point) -> tuple[int, ...]:
        """The registers of B at a point, step by step."""
        return tuple(self._load(theirs, self.c, p) for _, theirs in self.steps)

    def places(self) -> list[tuple[int, int]]:
        """(high, pair) of the results that one item holds, in the unit's order."""
        return [(high, pair) for high in range(self.unit.highs) for pair in range(self.unit.pair)]

    def placed(self, p: Point, high: int, pair: int) -> Point:
        """Where a sum is: a point of the accumulators' loops, in list order."""
        known = {**dict(p), self.matrix.high: high, self.matrix.pair: pair}
        own = [x for x in self.tree.loops if x.stage >= 0 and x.kind is LoopKind.UPCAST]
        loops = (*self.tree.shared_registers, *own)
        return tuple((x.name, known[x.name]) for x in loops if x.name in known)

    def _load(self, values: Values, x: Load, point: Point) -> int:
        buffer, offset, valid = values.site(x)
        packed = self.unit.packed
        at, where = fix(offset, point), fix_valid(valid, point)
        found = self.b.load(buffer, at, where, x.dtype, self.lane, packed)
        return self.b.splat(found, x.dtype, packed)
