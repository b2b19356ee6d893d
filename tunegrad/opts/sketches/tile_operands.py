"""The way in which the operands of a kernel lie to the axes of its register tile."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tunegrad.ir.kernel import Axis, Kernel
from tunegrad.ir.target import Target

from ..choosing import Recorder
from .analysis import Access, accesses, once, output_stride, vector_lanes

__all__ = [
    "Nest",
    "Operands",
    "axes_of",
    "axis_of",
    "in_order",
    "operands_of",
]


@dataclass(frozen=True, slots=True)
class Operands:
    """The loads of the first reduction (of the first store, without one) and the register tile.

    ``lane`` and ``row`` are the axes of the tile, ``width`` its lanes. ``strip`` is the axis that
    goes on where that of the lanes ends, after one vector: blocks of channels. ``streamed`` are
    loads of what a core's own caches do not hold. ``reused``: an operand is read again for every
    row. ``skinny``: few rows meet a large operand of the lanes.
    """

    kernel: Kernel
    target: Target
    found: tuple[Access, ...]
    reduces: tuple[Axis, ...]
    lane: Axis
    width: int
    row: Axis | None
    strip: Axis | None
    streamed: tuple[Access, ...]
    reused: bool
    skinny: bool

    @property
    def vectors(self) -> int:
        """Vectors from one end of the lanes to the other."""
        blocks = 1 if self.strip is None else self.strip.extent
        return -(-self.lane.extent // self.width) * blocks

    @property
    def rows(self) -> int:
        """Rows that the register tile can have, 0 without an axis for them."""
        return 0 if self.row is None else self.row.extent

    @property
    def longest(self) -> Axis:
        """The reduce axis that is split into blocks."""
        return max(self.reduces, key=lambda a: a.extent)

    @property
    def steps(self) -> int:
        """Steps of the reductions for one result."""
        return prod(a.extent for a in self.reduces)


def axes_of(kernel: Kernel, ask: Recorder) -> tuple[Axis, Axis | None]:
    """Asks for the axes of the register tile: of the lanes, and of rows where one is left."""
    lanes = once(kernel, "lanes", lambda: _lane_axes(kernel))
    lane = ask.pick("lane", lanes)
    rows = once(kernel, ("rows", lane.name), lambda: _row_axes(kernel, lane))
    return lane, ask.pick("row", rows) if rows else None


def operands_of(kernel: Kernel, target: Target, lane: Axis, row: Axis | None) -> Operands:
    """Describe how the operands lie to these axes."""
    found = _loads(kernel)
    reduces = tuple(a for s in kernel.reduces for a in s.axes if a.extent > 1)
    item = kernel.param(kernel.stores[0].param).dtype.itemsize
    width = vector_lanes(lane.extent, target.lanes(max(4, item)))
    streamed = tuple(x for x in found if x.role != "const" and x.nbytes > target.l2_bytes)
    reused = row is not None and any(not x.depends(row.name) for x in found)
    skinny = reused and bool(streamed) and all(x.depends(lane.name) for x in streamed)
    strip: Axis | None = None
    if row is not None and kernel.reduces and lane.extent == width >= target.lanes(4):
        strip = _strip([a for a in _shared(kernel) if a not in (lane, row)], lane, found)
    return Operands(
        kernel,
        target,
        found,
        reduces,
        lane,
        width,
        row,
        strip,
        streamed,
        reused,
        skinny,
    )


def in_order(x: Access, run: Axis | None, reduce: Axis) -> bool:
    """True if the reduction reads one number after the other.

    Each step reads all of the lanes, and the next step the numbers after them. ``run`` is the axis
    of the lanes where registers hold all of it.
    """
    return run is not None and x.stride(run.name) == 1 and x.stride(reduce.name) == run.extent


def _shared(kernel: Kernel) -> list[Axis]:
    return [a for a in kernel.axes if a.extent > 1]


def _loads(kernel: Kernel) -> tuple[Access, ...]:
    return accesses(kernel, kernel.reduces[0] if kernel.reduces else kernel.stores[0])


def _strip(others: list[Axis], lane: Axis, found: tuple[Access, ...]) -> Axis | None:
    """An axis that only the weights' load depends on, as on the lanes', of one vector."""
    for a in others:
        either = [x for x in found if x.depends(a.name) or x.depends(lane.name)]
        both = [x for x in either if x.depends(a.name) and x.depends(lane.name)]
        if both and either == both and all(x.role == "const" for x in both):
            return a
    return None


def _lane_axes(kernel: Kernel) -> list[Axis]:
    """Axes for the lanes, first the one along which most of the traffic is contiguous; in sums,
    one that is too short for lanes costs as much as a load that is not.

    Constants can be packed.
    """
    work, found = prod(a.extent for s in kernel.reduces for a in s.axes), _loads(kernel)

    def strided(a: Axis) -> int:
        lookups = [x for x in found if x.role != "const" and x.stride(a.name) not in (0, 1)]
        short = bool(kernel.reduces) and a.extent < 4
        return work * (len(lookups) + short) + (output_stride(kernel, a.name) != 1)

    def rank(a: Axis) -> tuple[int, bool, int]:
        return strided(a), a.extent < 4, output_stride(kernel, a.name) or 1 << 40

    return sorted(_shared(kernel), key=rank)[:3]


def _row_axes(kernel: Kernel, lane: Axis) -> list[Axis]:
    """Axes for the rows, first those that an operand of the lanes does not depend on, long ones
    before those of two or three.
    """
    candidates = [a for a in _shared(kernel) if a is not lane]
    of_lanes = [x for x in _loads(kernel) if x.depends(lane.name)]
    reuse = [a for a in candidates if any(not x.depends(a.name) for x in of_lanes)]
    near = sorted(reuse, key=lambda a: (a.extent < 4, output_stride(kernel, a.name) or 1 << 40))
    ranked = near or candidates[-1:]
    return [*ranked, *(a for a in candidates if a not in ranked)]


@dataclass(frozen=True, slots=True)
class Nest:
    """Loop names by role, outer before inner; "" where there is none.

    ``k`` is the outer block of the longest reduce axis, ``others`` are shared axes that are in no
    register tile, ``registers`` the loops of the tile: rows, vectors, lanes.
    """

    k: str
    others: tuple[tuple[str, str], ...]
    rows: tuple[str, str]
    lanes: tuple[str, str]
    reduces: tuple[str, ...]
    registers: tuple[str, str, str]

    @property
    def tile(self) -> list[str]:
        """The loops of the register tile that there are."""
        return [x for x in self.registers if x]


def axis_of(loop: str) -> str:
    """The axis that a loop is a level of."""
    return loop.rstrip("0123456789")
