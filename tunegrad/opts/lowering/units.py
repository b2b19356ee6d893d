"""Products of matrix units: operands of work-items (``Fragments``), threads' tiles (``Tiles``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import field
from itertools import product
from math import prod

from tunegrad.errors import IllegalAction, InternalError
from tunegrad.ir import program as ir
from tunegrad.ir.dtypes import DTYPES, F32
from tunegrad.ir.expr import Load, Op
from tunegrad.ir.index import ALWAYS, Index, as_index, var
from tunegrad.ir.kernel import Reduce
from tunegrad.ir.looptree import Loop, LoopKind, LoopTree, MatrixTile, TileLoops
from tunegrad.ir.pipelines import REGISTER_BYTES, ROW_BYTES, is_aligned
from tunegrad.ir.target import MatrixUnit
from tunegrad.lazy import dataclass

from ..actions.tensorcore import factors
from ..staging import StagedCopy
from .builder import Builder, Known
from .reductions import cut_of
from .values import Point, Values, fix, fix_valid, offset_at

# ---- fragments
#
# The operands of a matrix unit that each work-item holds, as loads over the loops of a tree.
#
#     C[m, n] += A[m, k] * B[k, n]      m = 8*high + row, n = 2*column + pair, k of 16
#
#     A, register (s, high) = A[8*high + row, 2*column + <0, 1> + 8*s]
#     B, register s         = B[2*column + <0, 1> + 8*s, row]
#
# An item's place along n in the result is its place along k in the operands, and its place along m
# that along n in B: loads are those of the kernel with other sums for its loops.
#
# Operands in shared memory in rows of 16 bytes are loaded by the warp together, where the target
# does that: each item gives the place of one row, of A, of B as it lies across k, or of either one
# transposed; two tiles that lie along a register loop make one load of four matrices.
#
#     A[8*high + row, 8*s .. 8*s+7]      item l gives row l % 8 of matrix l // 8 = (s, high)
#
# Operands of tf32 are f32 in memory, which each item rounds in its registers.


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
        b, vtype = self.b, ir.VType(plan.dtype, self.unit.packed)
        keys = [("matrices", plan.staged.buffer, offset, transposed, i) for i in range(count)]
        if b.find(keys[0]) is None:
            ids = tuple(b.new() for _ in keys)
            b.add(ir.MatLoad(ids, plan.staged.buffer, offset, vtype, transposed))
            for key, i in zip(keys, ids, strict=True):
                b.remember(key, (i, vtype.lanes))
        return tuple(b.known[key][0] for key in keys)

    def _load(self, values: Values, x: Load, point: Point) -> int:
        buffer, offset, valid = values.site(x)
        packed = self.unit.packed
        at, where = fix(offset, point), fix_valid(valid, point)
        found = self.b.load(buffer, at, where, x.dtype, self.lane, packed)
        return self.b.splat(found, x.dtype, packed)


# ---- tiles
#
# A product in tile registers: zeros, tiles of operands, products, and back to vectors by scratch.
#
#     tiles rows 16 16 16 16 16 16 16      as many as a tile at this place has
#     tile0 .. tile3 = 0                   2 x 2 tiles of results
#     for k0:
#         tile4 = A[row, k1]               when first read, in a register that is free
#         tile5 = B[k1, lane]
#         tile0 += tile4 * tile5 ..
#     v0.tiles[..] = tile0 ..              the epilogue loads a row where it reads it
#
# An operand is read as it lies, so it must lie in rows, and be there without a condition; a tile
# past the end of m has fewer rows. Elements that the lanes of a tile read past the end of n are
# zeros of a copy.


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
    def scratch(self) -> ir.Alloc:
        """The scratch in which tiles become vectors."""
        free = [x for x in self.tree.shared_registers if self._is_free(x)]
        size = prod(x.extent for x in free) * self._tile_size
        return ir.Alloc(self._buffer, DTYPES[self.loops.unit.dtypes[1]], size, "thread")

    def emit(self, body: Callable[[Callable[[Env, Limits], None]], None]) -> None:
        """The tiles of results; ``body`` runs the stage's loops around a function of its own."""
        self.b.open()
        for tile in self.sums.values():
            self.b.add(ir.TileZero(tile))
        body(self.update)
        unit, buffer = self.loops.unit, self._buffer
        m, n = var(self.loops.m, self._most_rows), var(self.loops.n, unit.shape[1])
        for p, tile in self.sums.items():
            at = m * unit.shape[1] + n + self._place(p)
            vtype = ir.VType(DTYPES[unit.dtypes[1]], unit.shape[1])
            rows = self.rows[tile]
            self.b.add(ir.TileStore(tile, buffer, at, vtype, self.loops.m, self.loops.n, rows))
        made = self.b.close()
        self.b.add(ir.TileConfig(unit, tuple(self.rows)))  # known when all registers are
        self.b.extend(made)

    def update(self, env: Env, limits: Limits) -> None:
        """The products of one step of the loops."""
        values = self.values_of(env)
        own = [x for x in self.tree.own(self.stage) if self._is_free(x) and x.kind.is_register]
        for steps in product(*([(x.name, v) for v in range(x.extent)] for x in own)):
            if all(offset_at(self.tree, axis, steps) < rest for axis, rest in limits.items()):
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
        """All tiles of operands, where registers hold them beside the sums; else one operand leaves
        its register before the next is read, and all tiles of the other stay.
        """
        rows = {self._of(self.loops.m, p): self._height(p) for p in self.sums}
        columns = {self._of(self.loops.n, p) for p in self.sums}
        each, columns_stay = self._all_fit, len(rows) >= len(columns)
        found = Counter(rows.values() if each or not columns_stay else set(rows.values()))
        found[self.loops.unit.shape[2]] += len(columns) if each or columns_stay else 1
        return found

    @property
    def _all_fit(self) -> bool:
        """True if registers hold the tiles of both operands beside the sums."""
        sides = self.loops.m, self.loops.n
        tiles = {(side, self._of(side, p)) for side in sides for p in self.sums}
        return len(self.sums) + len(tiles) <= self.loops.unit.registers

    def _of(self, side: str, p: Point) -> Point:
        """The part of a point that an operand depends on: tiles with the same one share its own."""
        return tuple(x for x in p if x[0] in self.reads[side])

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
                left = min(left, -(-(self.limits[axis] - offset_at(self.tree, axis, p)) // step))
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
        """All tiles once: operands are loaded when first read, and leave after their last read.

        Where registers hold all of them, they are loaded before the first product: a core whose
        other thread is busy has no spare registers to rename tiles to, and its loads wait for the
        products before them. Alone, convolutions took 0.96 of the time so, and products 1.00.
        """
        k = self.loops.unit.shape[2]
        sides = dict(self._operands())
        todo = [(p, tuple((side, self._of(side, p)) for side in sides)) for p in self.sums]
        held: dict[tuple[str, Point], int] = {}

        def load(p: Point, key: tuple[str, Point]) -> None:
            if key not in held:
                taken = frozenset((*self.sums.values(), *held.values()))
                rows = self._height(p) if key[0] == self.loops.m else k
                held[key] = self._take(rows, taken)
                self._load(values, sides[key[0]], key[0], held[key], rows, (*p, *steps))

        if self._all_fit:
            for p, reads in todo:
                for key in reads:
                    load(p, key)
        for at, (p, reads) in enumerate(todo):
            for key in reads:
                load(p, key)
            a, c = (held[x] for x in reads)
            self.b.add(ir.TileMul(self.sums[p], a, c, self.loops.unit))
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
        vtype = ir.VType(x.dtype, self.tree.loop(lane).extent)
        ahead = values.ahead.get(x.param, 0)
        self.b.add(ir.TileLoad(tile, buffer, at, vtype, row, lane, rows, ahead))
