"""A product in tile registers: zeros, tiles of operands, products, and back to vectors by scratch.

    tiles rows 16 16 16 16 16 16 16      as many as a tile at this place has
    tile0 .. tile3 = 0                   2 x 2 tiles of results
    for k0:
        tile4 = A[row, k1]               when first read, in a register that is free
        tile5 = B[k1, lane]
        tile0 += tile4 * tile5 ..
    v0.tiles[..] = tile0 ..              the epilogue loads a row where it reads it

An operand is read as it lies, so it must lie in rows, and be there without a condition; a tile past
the end of m has fewer rows. Elements that the lanes of a tile read past the end of n are zeros of a
copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from math import prod

from tunegrad.errors import IllegalAction, InternalError
from tunegrad.ir.dtypes import DTYPES
from tunegrad.ir.expr import Load
from tunegrad.ir.index import ALWAYS, Index, var
from tunegrad.ir.kernel import Reduce
from tunegrad.ir.looptree import Loop, LoopTree, TileLoops
from tunegrad.ir.program import (
    Alloc,
    TileConfig,
    TileLoad,
    TileMul,
    TileStore,
    TileZero,
    VType,
)

from ..actions.tensorcore import factors
from .builder import Builder, Known
from .reductions import cut_of
from .values import Point, Values, fix, fix_valid

__all__ = ["Tiles"]

Env = dict[str, Index]
Limits = dict[str, int]


@dataclass(slots=True)
class Tiles:
    """The tiles of one region; ``values_of`` gives the stage's values where loops are fixed.

    ``limits`` says how much of an axis is left here. Mutable: it knows which registers are taken.
    """

    tree: LoopTree
    b: Builder
    values_of: Callable[[Env], Values]
    stage: int
    limits: Limits
    loops: TileLoops = field(init=False)
    a: Load = field(init=False)
    c: Load = field(init=False)
    reads: dict[str, frozenset[str]] = field(init=False)
    """The register loops that a tile of A (by the loop of m) and of B (of n) depends on."""
    sums: dict[Point, int] = field(init=False)
    """The register of each tile of results."""
    rows: list[int] = field(init=False)
    """Of every register, 0 for one that is not used yet."""
    turn: int = 0
    held: Counter[int] = field(init=False, default_factory=Counter)
    """By rows, how many tiles of operands are in registers at once, at most."""

    def __post_init__(self) -> None:
        if not isinstance(self.tree.matrix, TileLoops):
            raise InternalError("a tree without tile registers")
        self.loops = self.tree.matrix
        if cut_of(self.tree, self.stage) is not None:
            raise IllegalAction(
                f"{self.loops.unit}: the sum is too long for one accumulator; put a reduce loop "
                "around the tiles"
            )
        self.a, self.c = factors(self.tree, self.loops.m, self.loops.n)
        values = self.values_of({})
        self.reads = {side: values.deps(x) for side, x in self._operands()}
        self.rows = [0] * self.loops.unit.registers
        self.sums = {}
        for p in self._tiles():
            self.sums[p] = self._take(self._height(p), frozenset(self.sums.values()))
        self.held = self._held()

    # what the region calls

    @property
    def scratch(self) -> Alloc:
        """The scratch in which tiles become vectors."""
        free = [x for x in self.tree.shared_registers if self._is_free(x)]
        size = prod(x.extent for x in free) * self._tile_size
        return Alloc(self._buffer, DTYPES[self.loops.unit.dtypes[1]], size, "thread")

    def emit(self, body: Callable[[Callable[[Env, Limits], None]], None]) -> None:
        """The tiles of results; ``body`` runs the stage's loops around a function of its own."""
        self.b.open()
        for tile in self.sums.values():
            self.b.add(TileZero(tile))
        body(self.update)
        unit, buffer = self.loops.unit, self._buffer
        m, n = var(self.loops.m, self._most_rows), var(self.loops.n, unit.shape[1])
        for p, tile in self.sums.items():
            at = m * unit.shape[1] + n + self._place(p)
            vtype = VType(DTYPES[unit.dtypes[1]], unit.shape[1])
            rows = self.rows[tile]
            self.b.add(TileStore(tile, buffer, at, vtype, self.loops.m, self.loops.n, rows))
        made = self.b.close()
        self.b.add(TileConfig(unit, tuple(self.rows)))  # known when all registers are
        for i in made:
            self.b.add(i)

    def update(self, env: Env, limits: Limits) -> None:
        """The products of one step of the loops."""
        values = self.values_of(env)
        own = [x for x in self.tree.own(self.stage) if self._is_free(x) and x.kind.is_register]
        for steps in product(*([(x.name, v) for v in range(x.extent)] for x in own)):
            if all(self._offset(axis, steps) < rest for axis, rest in limits.items()):
                self._products(values, steps)

    def result(self, p: Point) -> Known:
        """One row of a tile, as a vector."""
        row = dict(p)[self.loops.m]
        tile = tuple(x for x in p if x[0] != self.loops.m)
        unit = self.loops.unit
        at = var(self.loops.n, unit.shape[1]) + (self._place(tile) + row * unit.shape[1])
        dtype = DTYPES[unit.dtypes[1]]
        return self.b.load(self._buffer, at, ALWAYS, dtype, self.loops.n, unit.shape[1])

    # tiles and registers

    def _operands(self) -> tuple[tuple[str, Load], tuple[str, Load]]:
        """A and B, with the loop that each follows alone."""
        return (self.loops.m, self.a), (self.loops.n, self.c)

    @property
    def _buffer(self) -> str:
        stage = self.tree.kernel.stages[self.stage]
        assert isinstance(stage, Reduce)
        return f"{stage.name}.tiles"

    @property
    def _most_rows(self) -> int:
        return self.tree.loop(self.loops.m).extent

    @property
    def _tile_size(self) -> int:
        return self._most_rows * self.loops.unit.shape[1]

    def _is_free(self, x: Loop) -> bool:
        return x.name not in (self.loops.m, self.loops.n, self.loops.k)

    def _tiles(self) -> list[Point]:
        """The tiles that have any row here; those of an operand that they share come together."""
        free = [x for x in self.tree.shared_registers if self._is_free(x)]
        ranges = [[(x.name, v) for v in range(x.extent)] for x in free]
        found = [p for p in product(*ranges) if self._height(p) > 0 and self._width(p) > 0]
        many, wide = (len({self._of(y, p) for p in found}) for y in (self.loops.m, self.loops.n))
        first = self.loops.m if many >= wide else self.loops.n
        found.sort(key=lambda p: self._of(first, p))
        return found

    def _held(self) -> Counter[int]:
        """One operand leaves its register before the next is read; all tiles of the other stay."""
        rows = {self._of(self.loops.m, p): self._height(p) for p in self.sums}
        columns = {self._of(self.loops.n, p) for p in self.sums}
        if len(rows) >= len(columns):
            found = Counter(set(rows.values()))
            found[self.loops.unit.shape[2]] += len(columns)
        else:
            found = Counter(rows.values())
            found[self.loops.unit.shape[2]] += 1
        return found

    def _of(self, side: str, p: Point) -> Point:
        """The part of a point that an operand depends on: tiles with the same one share its own."""
        return tuple(x for x in p if x[0] in self.reads[side])

    def _offset(self, axis: str, p: Point) -> int:
        index = self.tree.axis_index(axis)
        return sum((index.coefficient(n) or 0) * v for n, v in p)

    def _height(self, p: Point) -> int:
        return self._left(self.loops.m, p)

    def _width(self, p: Point) -> int:
        return self._left(self.loops.n, p)

    def _left(self, name: str, p: Point) -> int:
        """Iterations of a tile's loop that are within its axes' limits at a point."""
        loop = self.tree.loop(name)
        left = loop.extent
        for axis in loop.axes:
            if axis in self.limits:
                step = self.tree.axis_index(axis).coefficient(name) or 1
                left = min(left, -(-(self.limits[axis] - self._offset(axis, p)) // step))
        return left

    def _place(self, p: Point) -> int:
        """Offset of a tile in scratch."""
        at, known = 0, dict(p)
        for x in self.tree.shared_registers:
            if self._is_free(x):
                at = at * x.extent + known[x.name]
        return at * self._tile_size

    def _take(self, rows: int, taken: frozenset[int]) -> int:
        """A register of so many rows that is not taken: the one that was used longest ago, but none
        that tiles of other heights wait for.
        """
        count = len(self.rows)
        turns = [(self.turn + i) % count for i in range(count)]
        free = [t for t in turns if t not in taken]
        mine = Counter(self.rows[t] for t in range(count) if t not in self.sums.values())
        waiting = sum(max(0, n - mine[high]) for high, n in self.held.items() if high != rows)
        fresh = [t for t in free if self.rows[t] == 0]
        used = [t for t in free if self.rows[t] == rows]
        order = (*fresh, *used) if len(fresh) > waiting else (*used, *fresh)
        found = next(iter(order), None)
        if found is None:
            raise IllegalAction(f"{self.loops.unit}: {count} registers do not hold the tiles")
        self.rows[found] = rows
        self.turn = (found + 1) % count
        return found

    # products

    def _products(self, values: Values, steps: Point) -> None:
        """All tiles once: operands are loaded when first read, and leave their registers after the
        last one.
        """
        k = self.loops.unit.shape[2]
        sides = dict(self._operands())
        todo = [(p, tuple((side, self._of(side, p)) for side in sides)) for p in self.sums]
        held: dict[tuple[str, Point], int] = {}
        for at, (p, reads) in enumerate(todo):
            for key in reads:
                if key not in held:
                    taken = frozenset((*self.sums.values(), *held.values()))
                    rows = self._height(p) if key[0] == self.loops.m else k
                    held[key] = self._take(rows, taken)
                    self._load(values, sides[key[0]], key[0], held[key], rows, (*p, *steps))
            a, c = (held[x] for x in reads)
            self.b.add(TileMul(self.sums[p], a, c, self.loops.unit))
            later = {x for _, keys in todo[at + 1 :] for x in keys}
            held = {x: tile for x, tile in held.items() if x in later}

    def _load(self, values: Values, x: Load, side: str, tile: int, rows: int, p: Point) -> None:
        """A tile of A, in rows along k, or of B, in rows along n."""
        buffer, offset, valid = values.site(x)
        at, where = fix(offset, p), fix_valid(valid, p)
        is_a = side == self.loops.m
        row, lane = (side, self.loops.k) if is_a else (self.loops.k, side)
        copied = (self.stage, x.param) in values.plans
        whole = copied or is_a or self._width(p) == self.tree.loop(side).extent
        if not where.always or not whole:
            raise IllegalAction(
                f"{self.loops.unit}: {x.param} is not there for all of a tile; stage it"
            )
        if at.coefficient(lane) != 1 or at.coefficient(row) is None:
            raise IllegalAction(
                f"{self.loops.unit}: {x.param} does not lie in rows along {lane}; stage it"
            )
        vtype = VType(x.dtype, self.tree.loop(lane).extent)
        self.b.add(TileLoad(tile, buffer, at, vtype, row, lane, rows))
