"""Register tiles: which (rows, vectors) the registers hold, and what a product takes with each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

__all__ = ["products_ranked", "tiles"]

_IN_FLIGHT = 8.0
"""Multiply-adds that hide each other's latency."""

_STEP = 0.02
"""Cost of a tile's further row or vector besides its arithmetic, in multiply-adds: ties only."""

_ROWS = (*range(1, 17), 20, 24, 28)
_VECTORS = (1, 2, 3, 4, 6, 8)


def tiles(rows: int, vectors: int, registers: int) -> list[tuple[int, int]]:
    """(rows, vectors) whose accumulators, vectors and one number fit the registers.

    ``rows`` is 0 where no axis is for them.
    """
    found = []
    for m in [m for m in _ROWS if m <= rows] or [1]:
        found += [(m, n) for n in _VECTORS if n <= vectors and m * n + n + 1 <= registers]
    return found or [(1, 1)]


@lru_cache(maxsize=512)
def products_ranked(
    rows: int, vectors: int, registers: int, ways: int, near: int, far: float
) -> Sequence[tuple[int, int]]:
    """Register tiles of a product by the time of a full sweep of both axes.

    Those of at most ``ways`` rows come first. A tile of more than ``near`` vectors reads them from
    the second cache, each in the time of ``far`` multiply-adds.
    """

    def rank(tile: tuple[int, int]) -> tuple[bool, float, int]:
        cost = _sweep_cost(tile, max(1, rows), vectors, far if tile[1] > near else 0.0)
        return tile[0] > ways, round(cost, 6), sum(tile)

    return tuple(sorted(tiles(rows, vectors, registers), key=rank))


def _sweep_cost(tile: tuple[int, int], extent: int, vectors: int, far: float) -> float:
    """Time for all tiles in multiply-adds of a vector; a load takes as long as one."""
    total = 0.0
    for rows, uses in _parts(extent, tile[0]):
        for cols, times in _parts(vectors, tile[1]):
            busy = max(rows * cols * 1.0, rows + cols, _IN_FLIGHT, cols * far)
            total += uses * times * (busy + _STEP * (rows + cols))
    return total


def _parts(extent: int, size: int) -> list[tuple[int, int]]:
    """(size, how often) of the tiles along an axis, the last one smaller."""
    found = [(size, extent // size), (extent % size, 1)]
    return [(n, count) for n, count in found if n and count]
