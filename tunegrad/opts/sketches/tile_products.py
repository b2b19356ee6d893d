"""Tile products: products of words in a thread's tile registers, as products and convolutions are.

    for m0, n0 (on threads), m outermost or n:
      copy A, where it has padding or does not lie in rows
      for m1:
        m2 x n2 tiles of results = 0
        for every other reduction, k0:
          m2 tiles of A, n2 of B, m2 * n2 products
        results = epilogue(tiles)

m is what one factor follows alone, n what the other does, and where results lie side by side. A
tile has as many rows as waste least of the axis, so that an image of 14 columns has tiles of 14. A
constant B is packed when the model is loaded: words for neighbouring results lie side by
side (Intel calls that VNNI layout), tile after tile in the order in which they are read. A
reduction that tiles do not divide is padded with zeros, in copies of both operands.
"""

from __future__ import annotations

from itertools import product as combinations

from tunegrad.ir.kernel import Axis, Kernel
from tunegrad.ir.target import Target, TileUnit
from tunegrad.lazy import dataclass

from ..actions import Action, Pad, Reorder, Stage, Tensorcore, Upcast
from ..decisions import Recorder
from .analysis import (
    Access,
    Levels,
    Sketch,
    ahead_of,
    axis_of,
    memory_hints,
    on_threads,
    output_stride,
)  # fmt: skip
from .contraction import Contraction

_MOST = 4
"""Tiles along one axis."""

_BLOCKS = (1, 2, 4, 8)
"""Into how many blocks an axis is cut at most, around which an operand is copied."""


def sketch_tile_product(
    kernel: Kernel, target: Target, found: Contraction[TileUnit], ask: Recorder
) -> tuple[Action, ...]:
    """Asks for the decisions of the sketch and returns its actions."""
    return _Product(kernel, target, ask, Levels(kernel), found).actions()


@dataclass(frozen=True, slots=True)
class _Side:
    """The loops of m, or of n: groups outside, blocks, tiles in registers, and the tile's own."""

    groups: list[str]
    blocks: list[str]
    tiles: list[str]
    own: str

    @property
    def all(self) -> list[str]:
        return [*self.groups, *self.blocks, *self.tiles, self.own]


@dataclass(frozen=True, slots=True)
class _Product(Sketch):
    """One kernel, and the levels that its axes were split into so far."""

    found: Contraction[TileUnit]

    def actions(self) -> tuple[Action, ...]:
        p, ask = self.found, self.ask
        row = p.row
        column = next(a for a in p.n if output_stride(self.kernel, a.name) == 1)
        lanes_first = ask.pick("order", [False, True], int(p.b.nbytes > p.a.nbytes))
        rows = ask.pick("rows", _heights(row.extent, p.unit.shape[0]))
        second = [self._second(x, y) for x, y in ((p.m, row), (p.n, column))]
        many = [-(-row.extent // rows), -(-column.extent // p.unit.shape[1])]
        tiles = ask.pick("tiles", self._tilings(many, second))
        blocked = self._needs_copy(p.a) and not lanes_first
        m = self._side(p.m, row, rows, tiles[0], second[0], many[0], blocked)
        n = self._side(p.n, column, p.unit.shape[1], tiles[1], second[1], many[1], False)
        depth = p.unit.shape[2]
        if p.padded:
            self.levels.actions.insert(0, Pad(p.k.name, depth))
            self.levels.loops[p.k.name] = -(-p.k.extent // depth) * depth
        k0, k1 = self.levels.split(p.k.name, (depth,))
        others = [a.name for a in self.kernel.reduces[0].axes if a is not p.k]
        reduces = [*others, *([k0] if k0 else []), k1]
        first, then = (n, m) if lanes_first else (m, n)
        outer = [a.name for a in p.both]
        outer += [*first.groups, *then.groups, *first.blocks, *then.blocks]
        registers = [*m.tiles, *n.tiles, m.own, n.own]
        made: list[Action] = [*self.levels.actions, Reorder((*outer, *registers, *reduces))]
        made += self.levels.each(Upcast, *m.tiles, *n.tiles)
        made.append(Tensorcore(p.unit.name, m.own, n.own, k1))
        made += on_threads(outer, self.levels, self.target, ask)
        inner = [*m.tiles, *n.tiles, *reduces[:-1]]
        around = m.groups if first is m else []  # once, where all of n is met in between
        made += self._staged(p.a, outer, inner, [m.own, k1], around)
        made += self._staged(p.b, outer, inner, [k1, n.own], [a.name for a in p.both])
        packed = [x for x in (p.a, p.b) if x.role == "const"]
        for x in packed:
            made += ahead_of(x, self.target, ask)
        asked = [x.param for x in packed]
        return (*made, *memory_hints(self.kernel, self.target, ask, asked=asked))

    # sizes

    def _second(self, axes: tuple[Axis, ...], own: Axis) -> Axis | None:
        """The axis of further tiles where a tile holds all of its own."""
        rest = [a for a in axes if a is not own]
        return max(rest, key=lambda a: a.extent, default=None)

    def _tilings(self, many: list[int], second: list[Axis | None]) -> list[tuple[int, int]]:
        """(m, n) tiles in registers, best first: little padding, then few loads of operands."""
        limits = [n if n > 1 or x is None else x.extent for n, x in zip(many, second, strict=True)]

        def cost(t: tuple[int, int]) -> float:
            padded = [-(-n // x) * x / n for n, x in zip(limits, t, strict=True)]
            loads = (t[0] + t[1]) / (t[0] * t[1])
            return padded[0] * padded[1] * max(1.0, loads / 2) + loads / 16

        up_to = [range(1, min(_MOST, n) + 1) for n in limits]
        found = [
            (high, wide)
            for high, wide in combinations(*up_to)
            if high * wide + min(high, wide) + 1 <= self.found.unit.registers
        ]
        return sorted(found, key=lambda t: (cost(t), t))

    def _side(
        self, axes: tuple[Axis, ...], own: Axis, size: int, tiles: int,
        second: Axis | None, many: int, blocked: bool,
    ) -> _Side:  # fmt: skip
        """Splits the axes of m or n; ``blocked``: a further axis is cut into blocks by default."""
        beyond = many == 1 and second is not None and tiles > 1
        around, inside, rows = self.levels.split(own.name, (size if beyond else tiles * size, size))
        groups, blocks, found = [], [around] if around else [], [inside] if inside else []
        for a in axes:
            if a is own:
                continue
            count = tiles if a is second and beyond else 1
            size = self._block(a, count, blocked)
            outer, block, tile = self.levels.split(a.name, (size, count))
            groups += [outer] if outer else []
            blocks = [*([block] if block else []), *blocks]
            found = [*([tile] if tile and count > 1 else []), *found]
            blocks = [*([tile] if tile and count == 1 else []), *blocks]
        return _Side(groups, blocks, found, rows)

    def _block(self, a: Axis, tiles: int, blocked: bool) -> int:
        """The block of a further axis, around which what is copied of an image is copied once."""
        counts = [n for n in _BLOCKS if n * tiles <= a.extent]
        sizes = list(dict.fromkeys(-(-a.extent // (n * tiles)) * tiles for n in counts))
        wanted = min(range(len(counts)), key=lambda i: abs(counts[i] - 2 * self.target.threads))
        default = min(wanted, len(sizes) - 1) if blocked else 0
        return self.ask.pick(f"block.{a.name}", sizes, default)

    # operands

    def _needs_copy(self, x: Access) -> bool:
        """True if an operand does not lie as tiles read it: B has no rows past n."""
        p = self.found
        n = next(a for a in p.n if output_stride(self.kernel, a.name) == 1)
        tail = x is p.b and n.extent % p.unit.shape[1] > 0
        along = p.k if x is p.a else n
        return p.padded or x.masked or tail or x.stride(along.name) != 1

    def _staged(
        self, x: Access, outer: list[str], inner: list[str], tile: list[str], around: list[str]
    ) -> list[Stage]:
        """A copy in the order of tiles, where an operand does not lie so; of a constant always."""
        ask, name = self.ask, f"stage.{x.param}"
        if x.role == "const":
            layout = self.layout(x, [*outer, *self._reads(inner), *tile])
            return [Stage(x.param, "load", layout)]
        needed = self._needs_copy(x)
        places = ["", *outer] if needed else ["none", "", *outer]
        best = next((a for a in reversed(around) if a in outer and x.depends(axis_of(a))), "")
        at = ask.pick(name, places, places.index(best) if needed else 0)
        if at == "none":
            return []
        box = x.masked and x.boxed and x is self.found.a and x.stride(self.found.k.name) == 1
        inside = outer[outer.index(at) + 1 :] if at else outer
        layout = () if box else self.layout(x, [*inside, *self._reads(inner), *tile])
        return [Stage(x.param, at, layout)]

    def _reads(self, inner: list[str]) -> list[str]:
        """Loops inside the groups in the order in which tiles are read: reductions, then tiles."""
        reduces = {a.name for a in self.kernel.reduces[0].axes}
        return sorted(inner, key=lambda n: axis_of(n) not in reduces)


def _heights(extent: int, most: int) -> list[int]:
    """Rows of a tile, best first: an even share that is nearly as many as a tile has, else those
    that need the fewest tiles. A product takes as long as it has rows.
    """
    even = [n for n in range(min(most, extent), 1, -1) if extent % n == 0]
    fewest = -(-extent // -(-extent // most))
    tall = [n for n in even if 4 * n >= 3 * most]
    return list(dict.fromkeys([*tall, fewest, *even]))[:4]
