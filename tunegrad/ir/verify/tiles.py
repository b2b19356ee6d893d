"""Rules of a thread's tile registers: how they are set up, and what may be where."""

from __future__ import annotations

from abc import abstractmethod

from .. import program as p
from ..program import TileInstr
from ..target import TileUnit
from .rules import Rules, Scope

__all__ = ["TileRules"]


class TileRules(Rules):
    """The rules of the instructions that only tile registers have."""

    @abstractmethod
    def _access(self, i: p.Load | p.Store, s: Scope) -> None:
        """Check what one row reads."""

    def _of_tiles(self, i: TileInstr, s: Scope) -> None:
        match i:
            case p.TileConfig():
                self._config(i, s)
            case p.TileZero(tile):
                self._rows(i, tile, s)
                self.written.add(_name(tile))
            case p.TileLoad(tile):
                self._moves(i, s)
                self.written.add(_name(tile))
            case p.TileStore(tile):
                self._moves(i, s)
                self._held(i, tile)
                spaces = {a.name: a.space for a in self.program.allocs}
                if spaces.get(i.buffer) != "thread":
                    self._broken(i, f"{i.buffer} is not scratch of a thread's own")
            case p.TileMul():
                self._mul(i, s)

    def _config(self, i: p.TileConfig, s: Scope) -> None:
        self._known(i, i.unit)
        if self.grouped:
            self._broken(i, "tile registers are a thread's of a CPU")
        most = i.unit.most_rows
        if len(i.rows) != i.unit.registers or any(not 0 <= r <= most for r in i.rows):
            self._broken(i, f"{i.unit} has {i.unit.registers} registers of up to {most} rows")
        s.tiles = i.rows
        self.written -= {_name(t) for t in range(len(i.rows))}

    def _known(self, i: TileInstr, unit: TileUnit) -> None:
        if self.target is not None and unit not in self.target.units:
            self._broken(i, f"target {self.target.name} has no {unit}")

    def _rows(self, i: TileInstr, tile: int, s: Scope) -> int:
        """Number of rows of a register."""
        if not 0 <= tile < len(s.tiles) or not s.tiles[tile]:
            self._broken(i, f"tile{tile} is not set up before it, in its block or around it")
        return s.tiles[tile]

    def _held(self, i: TileInstr, tile: int) -> None:
        if _name(tile) not in self.written:
            self._broken(i, f"nothing has written tile{tile} before")

    def _moves(self, i: p.TileLoad | p.TileStore, s: Scope) -> None:
        """Rows of neighbours, all of them within their buffer, as many as the register has."""
        if self._rows(i, i.tile, s) != i.rows:
            self._broken(i, f"{i.rows} rows: tile{i.tile} has {s.tiles[i.tile]}")
        if i.offset.coefficient(i.lane) != 1 or i.offset.coefficient(i.row) is None:
            self._broken(i, f"{i.offset} is not rows of neighbours, equally far apart")
        for row in range(i.rows):
            self._access(p.Load(-1, i.buffer, i.offset.at({i.row: row}), i.vtype, i.lane), s)

    def _mul(self, i: p.TileMul, s: Scope) -> None:
        self._known(i, i.unit)
        m, a, b = (self._rows(i, t, s) for t in (i.tile, i.a, i.b))
        k = i.unit.shape[2]
        if a != m or b != k:
            self._broken(i, f"{m} rows += {a} rows * {b} rows: {m}, {m} and {k} fit")
        for t in (i.tile, i.a, i.b):
            self._held(i, t)


def _name(tile: int) -> str:
    return f"tile {tile}"
