"""Copies: kernels that fold nothing, elementwise ones and transposes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .idea import Idea, nearest
from .registers import tiles

__all__ = ["Copies"]

_ACCESSES = 64
"""Loads and stores of one iteration, at most, of a kernel of several stores."""

_MOST = 16
"""Vectors of a tile, at most."""

_ROWS = (1, 2, 4, 8)

_NEAR = range(-1, 5)
"""Elements between lanes that vectors and shuffles read in order; further is a transpose."""

_CROSSED_BLOCK = 256
"""Rows that a transpose finishes before it moves on: the first cache keeps their lines."""


@dataclass(frozen=True, slots=True)
class Copies(Idea):
    """Some vectors in a row; of a transpose, runs of eight that are turned in registers."""

    def tiles(self) -> Sequence[tuple[int, int]]:
        """(rows, vectors), those first that are near to what the kind of copy wants.

        A point of many loads and stores fills the registers alone.
        """
        o = self.operands
        stores = len(o.kernel.stores)
        most = min(_MOST, _ACCESSES // (len(o.found) + stores)) if stores > 1 else _MOST
        every = tiles(o.rows, o.vectors, o.target.registers)
        found = [(m, n) for m, n in every if m in _ROWS and m * n <= max(1, most)]
        rows, vectors = (8, 1) if self._crossed() else (1, 4)

        def rank(tile: tuple[int, int]) -> tuple[int, tuple[int, int]]:
            return abs(tile[0] - rows) + abs(tile[1] - vectors), tile

        return sorted(found or [(1, 1)], key=rank)

    def row_block(self, sizes: Sequence[int]) -> int:
        """Of a transpose, as many rows as the first cache has lines to spare."""
        return nearest(sizes, _CROSSED_BLOCK) if self._crossed() else 0

    def _crossed(self) -> bool:
        """True if lanes are far apart in what is read."""
        o = self.operands
        return o.row is not None and any(x.stride(o.lane.name) not in _NEAR for x in o.found)
