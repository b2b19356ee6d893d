"""Instructions of matrix units: those that the items of a warp run together, and those of a
thread's own tile registers.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..index import Index
from ..target import MatrixUnit, TileUnit
from .instructions import Load, Store, VType

__all__ = [
    "MatLoad", "MatMul", "TileConfig", "TileInstr", "TileLoad", "TileMul", "TileStore", "TileZero",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class MatMul:
    """``ids`` = ``c`` + a * b, small matrices that the items of a warp hold together.

    ``unit`` says which item holds what: registers of ``a`` step by step, those of a step by rows;
    registers of ``b`` step by step; ``c``, and so ``ids``, row by row, neighbours in pairs. Every
    item of the group runs it. ``vtype`` is that of one result.
    """

    ids: tuple[int, ...]
    unit: MatrixUnit
    a: tuple[int, ...]
    b: tuple[int, ...]
    c: tuple[int, ...]
    vtype: VType


@dataclass(frozen=True, slots=True)
class MatLoad:
    """``ids`` = rows of small matrices in shared memory, spread over the items of a warp.

    A matrix has 8 rows of 16 bytes. Item ``8*j + r`` of a warp gives the ``offset`` where row ``r``
    of matrix ``j`` begins. Item ``i`` gets, of matrix ``j``, neighbours ``p`` of row ``i // 4``
    from ``p*(i % 4)`` on, as one value of ``vtype`` in ``ids[j]``, where ``p`` are the lanes of
    ``vtype`` (4 bytes). ``transposed`` (2 bytes an element alone) gives it neighbours of column ``i
    // 4``. There are 1, 2 or 4 ids; offsets of items past them are not looked at. Every item of the
    group runs it.
    """

    ids: tuple[int, ...]
    buffer: str
    offset: Index
    vtype: VType
    transposed: bool = False


@dataclass(frozen=True, slots=True)
class TileConfig:
    """Tile registers of a thread from here on: ``rows`` of each, by number; 0: it is not used.

    Forgets what they held. Tiles are used after it in its block, or inside that.
    """

    unit: TileUnit
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TileZero:
    """Tile register ``tile`` = zeros."""

    tile: int


@dataclass(frozen=True, slots=True)
class TileLoad:
    """Tile register ``tile`` = ``buffer[offset]``, for ``row`` in ``rows`` and ``lane`` in
    ``vtype.lanes``.

    Neighbours along ``lane`` are neighbours in memory, rows some elements apart.
    """

    tile: int
    buffer: str
    offset: Index
    vtype: VType
    row: str
    lane: str
    rows: int

    def line(self, row: int) -> Load:
        """The load of one row."""
        return Load(-1, self.buffer, self.offset.at({self.row: row}), self.vtype, self.lane)


@dataclass(frozen=True, slots=True)
class TileMul:
    """Tile register ``tile`` += ``a`` * ``b``, by ``unit``."""

    tile: int
    a: int
    b: int
    unit: TileUnit


@dataclass(frozen=True, slots=True)
class TileStore:
    """``buffer[offset]`` = tile register ``tile``, as TileLoad reads; to a thread's own scratch."""

    tile: int
    buffer: str
    offset: Index
    vtype: VType
    row: str
    lane: str
    rows: int

    def line(self, row: int, value: int = -1) -> Store:
        """The store of one row, of a ``value``."""
        return Store(self.buffer, self.offset.at({self.row: row}), value, self.vtype, self.lane)


TileInstr = TileConfig | TileZero | TileLoad | TileMul | TileStore
"""Instructions of a thread's tile registers."""
