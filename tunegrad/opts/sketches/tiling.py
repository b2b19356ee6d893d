"""Splits axes into levels and remembers what the loops are called."""

from __future__ import annotations

from collections.abc import Sequence

from tunegrad.ir.kernel import Kernel

from ..actions import Action, Tile, Upcast, Vectorize
from ..choosing import Recorder

__all__ = ["Levels", "axis_of", "balance", "blocks", "item_lanes", "vector_lanes"]


class Levels:
    """Builds ``tile`` actions. Each axis is split at most once, by sizes from the outside in."""

    def __init__(self, kernel: Kernel) -> None:
        self.actions: list[Action] = []
        self.loops: dict[str, int] = {a.name: a.extent for a in kernel.all_axes()}

    def split(self, axis: str, sizes: Sequence[int]) -> list[str]:
        """Loop names: what is outside every size, then what runs inside each size.

        "" where there is no such loop. Each size must be a multiple of the next. Sizes of 0 and 1,
        and sizes that hold all that is left, make no loop of their own, but a power of two at the
        end that is larger than the axis does (vector lanes).
        """
        extent = self.loops.pop(axis)
        found = [""] * (len(sizes) + 1)
        slot, covered, current, level = 0, extent, axis, 0
        for i, size in enumerate(sizes):
            last = i == len(sizes) - 1
            if 1 < size < covered or (last and size > extent and covered == extent):
                self.actions.append(Tile(current, size))
                outer = f"{axis}{level}"
                found[slot] = outer
                self.loops[outer] = -(-covered // size)
                level, covered, current = level + 1, size, f"{axis}{level + 1}"
                slot = i + 1
            elif size >= covered > 1:
                slot = i + 1
        found[slot] = current
        self.loops[current] = covered
        return found

    def extent(self, loop: str) -> int:
        """Iterations of a loop; 1 where there is none."""
        return self.loops.get(loop, 1) if loop else 1


def axis_of(loop: str) -> str:
    """The axis of a loop that ``Levels`` made."""
    return loop.rstrip("0123456789")


def vector_lanes(extent: int, widest: int) -> int:
    """Lanes for an axis: the widest vector, or the least power of two that holds a smaller
    extent.
    """
    lanes = 1
    while lanes < min(extent, widest):
        lanes *= 2
    return lanes


def item_lanes(ask: Recorder, levels: Levels, loop: str, most: int) -> list[Action]:
    """Give a work-item its part of ``loop``: a vector, where one of ``most`` lanes holds it all and
    ``ask`` decides so; else registers.
    """
    if levels.extent(loop) < 2:
        return []
    vector = levels.extent(loop) <= most and ask.pick("lane.vector", [False, True], 1)
    return [Vectorize(loop) if vector else Upcast(loop)]


def blocks(extent: int, unit: int, most: int = 5) -> list[int]:
    """Cache-block sizes for an axis tiled by ``unit``: multiples of it.

    0 (none: the loop over tiles stands with the outer loops), then doublings of the unit, largest
    sensible first, then sizes that make 2, 4, 8 or 16 even blocks, then one block (the loop over
    tiles stands with the inner loops).
    """
    found: list[int] = []
    size = unit
    while size < extent and len(found) < 12:
        size *= 2
        if size < extent:
            found.append(size)
    even = {-(-extent // (count * unit)) * unit for count in (2, 4, 8, 16)}
    even = {n for n in even if unit < n < extent} - set(found)
    return [
        0,
        *reversed(found[-most:]),
        *sorted(even, reverse=True),
        *([extent] if extent > unit else []),
    ]


def balance(extent: int, threads: int) -> float:
    """Evenness with which iterations split over threads, 0 to 1."""
    return extent / (-(-extent // threads) * threads) if extent else 0.0
