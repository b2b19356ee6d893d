"""tensorcore: a tile of a product by a matrix unit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import ClassVar

from tunegrad.errors import IllegalAction
from tunegrad.ir.expr import PRODUCTS, Apply, Cast, Expr, Load, Op
from tunegrad.ir.kernel import Reduce
from tunegrad.ir.looptree import Loop, LoopKind, LoopTree, MatrixTile, TileLoops
from tunegrad.ir.target import MatrixUnit, TileUnit
from tunegrad.lazy import dataclass

from .base import Action
from .loops import MAX_COPIES, Tile, rechecked, set_items, set_kind


@dataclass(frozen=True, slots=True)
class Tensorcore(Action):
    """Multiplies a tile of ``m`` x ``n`` results over ``k`` terms by a matrix unit of the target.

    The three loops have the unit's extents; k may have no tail but of padding. The unit's
    work-items become the innermost local loops, and what one of them holds becomes registers; other
    local loops are warps. The unit adds in an order of its own: this reassociates the sum.

    Tile registers of a CPU hold whole tiles: m, of up to the unit's rows, becomes rows that are
    upcast, n lanes. Other register loops of m and n are further tiles. The unit's operands lie in
    rows, of A along k and of B along n, without a condition: what does not is staged.

    rewrite:  tensorcore(unit=m16n8k16_f16_f32, m=m1, n=n1, k=k1)
        for m1 in 16:                           for m2 in 8, n1 in 4 on work-items:
            for n1 in 8:                            C[2][2] (m1, n2) += the warp's product of
                for k1 in 16:        -->            A[2][2][2] and B[2][2]
                    C[m1, n1] += A * B

    rewrite:  tensorcore(unit=m16n16k16_bf16x2_f32, m=m1, n=n1, k=k1)
        for m1 in 16:                           C (tile of m1 x n1) = 0
            for n1 in 16:                       A, B = tiles of 16 rows of 16 pairs
                for k1 in 16:        -->        C += A * B
                    C[m1, n1] += dot2(A, B)
    """

    name: ClassVar[str] = "tensorcore"
    unit: str
    m: str
    n: str
    k: str

    def apply(self, tree: LoopTree) -> LoopTree:
        unit = self._unit(tree)
        loops = [tree.loop(name) for name in (self.m, self.n, self.k)]
        self._check_loops(tree, unit, loops)
        self._check_product(tree, unit, loops)
        if isinstance(unit, TileUnit):
            return self._in_tiles(tree, unit, loops)
        tiled, high, row = _tiled(tree, self.m, unit.rows)
        m_names = {high.name, row.name}
        tiled, column, pair = _tiled(tiled, self.n, unit.pair)
        if not m_names <= {x.name for x in tiled.loops}:
            raise self.fail(tree, f"loops {self.m} and {self.n} are of one axis")
        made = replace(tiled, loops=_inside(tiled.loops, (row, column), (high, pair)))
        for loop in (high, pair):
            if loop.extent > 1:
                made = set_kind(self, made, loop.name, LoopKind.UPCAST)
        for loop in (row, column):
            made = set_items(self, made, loop.name)
        k = made.loop(self.k)
        made = made.with_loop(k, k.run_as(LoopKind.MATRIX))
        tile = MatrixTile(unit, high.name, row.name, column.name, pair.name, k.name)
        return rechecked(replace(made, matrix=tile).checked())

    def _in_tiles(self, tree: LoopTree, unit: TileUnit, loops: list[Loop]) -> LoopTree:
        """Rows, lanes and terms of a thread's tile registers."""
        if not set(loops[0].axes).isdisjoint(loops[1].axes):
            raise self.fail(tree, f"loops {self.m} and {self.n} are of one axis")
        if any(x.kind in (LoopKind.VECTOR, LoopKind.GROUP) for x in tree.loops):
            raise self.fail(tree, f"there are vector lanes beside {self.n}")
        kinds = (LoopKind.UPCAST, LoopKind.VECTOR, LoopKind.MATRIX)
        for loop, kind in zip(loops, kinds, strict=True):
            tree = tree.with_loop(loop, loop.run_as(kind))
        copies = prod(x.extent for x in tree.shared_registers if x.name != self.n)
        if copies > MAX_COPIES:
            raise self.fail(tree, f"{copies} rows in registers, more than {MAX_COPIES}")
        return replace(tree, matrix=TileLoops(unit, self.m, self.n, self.k)).checked()

    def _unit(self, tree: LoopTree) -> MatrixUnit | TileUnit:
        if tree.matrix is not None:
            raise self.fail(tree, f"{tree.matrix.unit} is used already")
        found = tree.target.matrix_units.get(self.unit)
        if found is None:
            valid = ", ".join(tree.target.matrix_units) or "none"
            raise self.fail(tree, f"no unit {self.unit!r} on target {tree.target.name}: {valid}")
        return found

    def _check_loops(self, tree: LoopTree, unit: MatrixUnit | TileUnit, loops: list[Loop]) -> None:
        if tree.staged or tree.kept:
            raise self.fail(tree, "a matrix unit comes before what is staged or kept")
        stage = _product_stage(tree)
        for what, loop, extent in zip("mnk", loops, unit.shape, strict=True):
            if loop.kind is not LoopKind.SERIAL:
                raise self.fail(tree, f"loop {loop.name} is already {loop.kind}")
            if not _fits(unit, what, loop.extent, extent):
                most = "up to " if _is_open(unit, what) else ""
                raise self.fail(
                    tree, f"{what} is loop {loop.name} of extent {loop.extent}, not {most}{extent}"
                )
            if loop.reduce != (what == "k") or loop.stage not in (-1, stage):
                raise self.fail(tree, f"loop {loop.name} can not be {what}")
            for axis in loop.axes if what == "k" else ():
                if tree.nominal(axis) != tree.extent(axis) and axis not in tree.padded:
                    raise self.fail(tree, f"axis {axis} of {tree.extent(axis)} has a tail")

    def _check_product(
        self, tree: LoopTree, unit: MatrixUnit | TileUnit, loops: list[Loop]
    ) -> None:
        stage = tree.kernel.stages[_product_stage(tree)]
        loads = factors(tree, *(x.name for x in loops[:2]))
        taken, gives = unit.dtypes
        want = (*(unit.factors if isinstance(unit, TileUnit) else (taken, taken)), gives)
        assert isinstance(stage, Reduce)
        assert isinstance(stage.expr, Apply)
        args = sorted(stage.expr.args, key=lambda x: _load(x) is not loads[0])
        have = (*map(taken_as, args), stage.dtype.name)
        if have != want:
            of = " x ".join(dict.fromkeys(want[:2]))
            raise self.fail(
                tree, f"a sum of {have[0]} x {have[1]} in {have[2]}, the unit's is of {of} in "
                f"{gives}"
            )  # fmt: skip

    @classmethod
    def options(cls, tree: LoopTree) -> Iterator[Action]:
        for unit in tree.target.units if tree.matrix is None else ():
            m, n, k = (
                [
                    x.name
                    for x in tree.loops
                    if _fits(unit, what, x.extent, e) and x.kind is LoopKind.SERIAL
                ]
                for what, e in zip("mnk", unit.shape, strict=True)
            )
            tried = (cls(unit.name, i, j, t) for i in m for j in n for t in k if i != j)
            yield from cls.legal(tree, tried)


def _is_open(unit: MatrixUnit | TileUnit, what: str) -> bool:
    """True if a unit takes fewer rows than it has."""
    return isinstance(unit, TileUnit) and what == "m"


def _fits(unit: MatrixUnit | TileUnit, what: str, have: int, extent: int) -> bool:
    """True if a loop is as long as the unit takes it."""
    return 1 < have <= extent if _is_open(unit, what) else have == extent


def factors(tree: LoopTree, m: str, n: str) -> tuple[Load, Load]:
    """The loads of A, which follows loop ``m``, and of B, which follows ``n``.

    Raises IllegalAction where the kernel is no sum of products of such loads.
    """
    stage = tree.kernel.stages[_product_stage(tree)]
    x = stage.expr
    multiplied = isinstance(x, Apply) and x.op in PRODUCTS
    loads = [_load(y) for y in x.args] if isinstance(x, Apply) and multiplied else []
    found = [y for y in loads if y is not None]
    if len(found) != 2:
        raise IllegalAction(
            f"tensorcore: kernel {tree.kernel.name} is not a sum of products of loads"
        )
    index = dict(tree.index)
    used = [
        {v for i in y.index for v in i.substitute(index).names()}
        | y.valid.substitute(index).names()
        for y in found
    ]
    for (a, mine), (b, theirs) in (
        ((found[0], used[0]), (found[1], used[1])),
        ((found[1], used[1]), (found[0], used[0])),
    ):
        if m in mine and n not in mine and n in theirs and m not in theirs:
            return a, b
    raise IllegalAction(
        f"tensorcore: loops {m} and {n} do not each belong to one factor of {tree.kernel.name}"
    )


def taken_as(x: Expr) -> str:
    """The type in which a unit takes a factor: tf32 for a rounded f32, else the factor's dtype."""
    if isinstance(x, Apply) and x.op is Op.TF32:
        return str(x.op)
    return x.x.dtype.name if isinstance(x, Cast) else x.dtype.name


def _load(x: Expr) -> Load | None:
    """A load, or one widened or rounded to tf32; none whose place depends on data."""
    if isinstance(x, Cast):
        x = x.x
    elif isinstance(x, Apply) and x.op is Op.TF32:
        x = x.args[0]
    direct = isinstance(x, Load) and not any(True for i in x.index for _ in i.elements())
    return x if isinstance(x, Load) and direct else None


def _product_stage(tree: LoopTree) -> int:
    """The one reduction of a kernel, which must be a sum."""
    reduces = [i for i, s in enumerate(tree.kernel.stages) if isinstance(s, Reduce)]
    found = tree.kernel.stages[reduces[0]] if len(reduces) == 1 else None
    if not isinstance(found, Reduce) or found.op is not Op.ADD:
        raise IllegalAction(f"tensorcore: kernel {tree.kernel.name} is not one sum")
    return reduces[0]


def _tiled(tree: LoopTree, name: str, size: int) -> tuple[LoopTree, Loop, Loop]:
    """The tree with a loop in two, and the two."""
    at = tree.position(name)
    made = Tile(name, size).apply(tree)
    return made, made.loops[at], made.loops[at + 1]


def _inside(
    loops: tuple[Loop, ...], items: tuple[Loop, Loop], registers: tuple[Loop, Loop]
) -> tuple[Loop, ...]:
    """The loops with ``items`` after all others that stand around the region.

    What becomes ``registers`` runs innermost, wherever it stands.
    """
    rest = [x for x in loops if x not in items]
    around = [
        i
        for i, x in enumerate(rest)
        if x.stage < 0 and not x.kind.is_register and x not in registers
    ]
    at = max(around, default=-1) + 1
    return (*rest[:at], *items, *rest[at:])
