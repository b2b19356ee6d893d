"""Defaults of the tiles sketch by kind of kernel: copies, sums and products.

They read how operands lie to the axes of the register tile (``Operands``) and the numbers of the
target, and name no device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from tunegrad.ir.kernel import Axis, Kernel
from tunegrad.ir.target import Target

from ..actions import Action, Unroll
from ..choosing import Recorder
from .analysis import Access, Levels, accesses, balance, once, output_stride, vector_lanes

__all__ = [
    "K_BLOCK",
    "WINDOW",
    "Copies",
    "Defaults",
    "Nest",
    "Operands",
    "Products",
    "Sums",
    "axes_of",
    "axis_of",
    "in_order",
    "nearest",
    "operands_of",
    "products_ranked",
    "taps_of",
    "tiles",
    "unrolled",
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


@dataclass(frozen=True, slots=True)
class Defaults(ABC):
    """Best guesses for kernels of one kind; where nothing is said, for any kernel.

    ``run`` is the axis of the lanes where it fills vectors, and registers hold all of it; it is
    None until the tile is known. Guesses are places in the options that they are given.
    """

    operands: Operands
    run: Axis | None = None

    @abstractmethod
    def tiles(self) -> Sequence[tuple[int, int]]:
        """(rows, vectors) of the register tile, best first."""

    def lane_block(self, sizes: Sequence[int]) -> int:  # noqa: ARG002  # an defaults may look at them
        """The cache block of the lanes."""
        return 0

    def row_block(self, sizes: Sequence[int]) -> int:  # noqa: ARG002
        """The cache block of the rows."""
        return 0

    def reduce_block(self, sizes: Sequence[int]) -> int:  # noqa: ARG002
        """The block of the longest reduce axis; 0 is none."""
        return 0

    def order(self, forms: Sequence[str]) -> str:  # noqa: ARG002
        """The order of the outer loops: lanes outermost where they have much to read."""
        o = self.operands
        weights = (x for x in o.found if x.depends(o.lane.name) and x.role == "const")
        most = max((x.nbytes for x in weights), default=0)
        return "lanes" if o.skinny or most > o.target.l2_bytes // 2 else "rows"

    @property
    def taps(self) -> tuple[str, ...]:
        """Short reduce axes that are written out: with the row, they decide what is padding."""
        return ()

    @property
    def pads(self) -> bool:
        """True if an image is copied with its padding first."""
        return False


def nearest(sizes: Sequence[int], want: int) -> int:
    """The place of the size that is nearest to ``want``."""
    return min(range(len(sizes)), key=lambda i: abs(sizes[i] - want))


_IN_FLIGHT = 8.0
"""Multiply-adds that hide each other's latency."""

_STEP = 0.02
"""Cost of a tile's further row or vector besides its arithmetic, in multiply-adds: ties only."""

_MOST_ROWS = (*range(1, 17), 20, 24, 28)

_MOST_VECTORS = (1, 2, 3, 4, 6, 8)


def tiles(rows: int, vectors: int, registers: int) -> list[tuple[int, int]]:
    """(rows, vectors) whose accumulators, vectors and one number fit the registers.

    ``rows`` is 0 where no axis is for them.
    """
    found = []
    for m in [m for m in _MOST_ROWS if m <= rows] or [1]:
        found += [(m, n) for n in _MOST_VECTORS if n <= vectors and m * n + n + 1 <= registers]
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


WINDOW = 64
"""Steps of a register tile, at most, whose whole window is unrolled."""

_TAPS = 4
"""Steps of a window that are written out, at most: each holds the loops inside once more."""

_SHORT = 8
"""Steps of the last reduce loop, at most, that are written out."""


def taps_of(o: Operands) -> tuple[str, ...]:
    """Reduce axes of a few steps that move the rows' window of a padded operand."""
    if o.row is None:
        return ()
    row = o.row.name
    padded = [x for x in o.found if x.masked and x.stride(row)]

    def moves(a: Axis) -> bool:
        return any(x.stride(a.name) == x.stride(row) for x in padded)

    return tuple(a.name for a in o.reduces if a.extent <= _TAPS and moves(a))


def unrolled(
    defaults: Defaults,
    nest: Nest,
    levels: Levels,
    tile: int,
    padded: bool,
    ask: Recorder,
) -> list[Action]:
    """The last reduce loop where it is short; all of them where a window is small.

    ``tile`` counts the vectors of the register tile. ``padded``: a copy holds the padding, so no
    tap decides anything.

    Taps are the steps that move a window over padding. Written out, what is padding for one of them
    is decided before the loops inside, not for each load.
    """
    o = defaults.operands
    steps = [x for x in nest.reduces if levels.extent(x) > 1]
    short = [x for x in steps if levels.extent(x) <= _SHORT]
    small = tile * prod(levels.extent(x) for x in steps) <= WINDOW
    window = len(steps) > 1 and short == steps and small
    if window and ask.pick("window", [False, True], int(not o.reused)):
        return [Unroll(x) for x in steps]
    taps = [] if padded else [x for x in steps[:-1] if x in defaults.taps]
    if bool(taps) and ask.pick("taps", [True, False], int(o.target.fmas_per_cycle == 1)):
        return [Unroll(x) for x in taps]
    last = steps[-1:] if steps and steps[-1] == nest.reduces[-1] else []
    return [Unroll(x) for x in last if x in short]


K_BLOCK = 256
"""Steps of a product whose operands are met at once."""

_LARGE_L2 = 2 << 20
"""A core's second cache that holds panels of twice as many steps.

Partial sums then go through memory half as often.
"""


@dataclass(frozen=True, slots=True)
class Products(Defaults):
    """The tile that computes longest on what it reads, over panels that stay in caches.

    Large operands are met in panels that caches hold: a block of the reduction, and of the rows
    where even the panel of the lanes leaves a core's own caches.
    """

    def tiles(self) -> Sequence[tuple[int, int]]:
        """(rows, vectors), ranked by the time of a full sweep in multiply-adds of a vector."""
        o, t = self.operands, self.operands.target
        crowded = any(self._of_rows(x) and not x.depends(o.lane.name) for x in o.streamed)
        ways = t.streams if crowded else o.rows
        far = t.vector_bytes * t.fmas_per_cycle / t.l2_bytes_per_cycle
        return products_ranked(o.rows, o.vectors, t.registers, ways, self._near_vectors(), far)

    def row_block(self, sizes: Sequence[int]) -> int:
        """Rows that stay in the second cache, where the panel of the lanes does not."""
        steps, l2_bytes = self._block(), self.operands.target.l2_bytes
        return nearest(sizes, l2_bytes // (3 * 4 * steps)) if steps and self._split() else 0

    def reduce_block(self, sizes: Sequence[int]) -> int:
        """The steps of a panel, where that is a choice."""
        steps = self._block()
        return sizes.index(steps) if steps in sizes else 0

    @property
    def taps(self) -> tuple[str, ...]:
        """Of a padded window."""
        return taps_of(self.operands)

    @property
    def pads(self) -> bool:
        """Branching around the conditions costs less than copying an image with its padding.

        For a core with two multiply-adds a cycle, only where the taps that decide are written out.
        """
        o = self.operands
        return o.target.fmas_per_cycle > 1 and not self.taps and o.longest.extent > WINDOW

    def _near_vectors(self) -> int:
        """Vectors across a tile whose panel of the lanes' operand the first cache holds.

        As many as there are where the second cache keeps up, with one multiply-add a cycle; and
        where taps are masked: a window's rows read the same inputs again, and many rows in a tile
        would put padding into most tiles.
        """
        o = self.operands
        if o.target.fmas_per_cycle == 1 or any(x.masked for x in o.found):
            return o.target.registers
        blocked = o.steps >= 2 * K_BLOCK and len(o.streamed) > 1
        steps = self._panel(self._leaves_l2()) if blocked else o.steps
        return o.target.l1_bytes // (4 * o.width * steps)

    def _block(self) -> int:
        """The block of the longest reduce axis, 0 for none."""
        o = self.operands
        far = [x for x in o.streamed if not in_order(x, self.run, o.longest)]
        if o.steps < 2 * K_BLOCK or (len(far) <= 1 and not o.skinny):
            return 0
        return self._panel(self._split())

    def _panel(self, split: bool) -> int:
        return 2 * K_BLOCK if split and self.operands.target.l2_bytes >= _LARGE_L2 else K_BLOCK

    def _split(self) -> bool:
        """True if a block of rows stays in the second cache, and each reads the panel again."""
        return not self.operands.skinny and self._leaves_l2()

    def _leaves_l2(self) -> bool:
        """True if a panel of the lanes does not stay in the second cache while all rows meet it.

        With one multiply-add a cycle a core asks for no more than the last cache gives.
        """
        o = self.operands
        lanes = any(x.depends(o.lane.name) for x in o.streamed)
        met = lanes and any(self._of_rows(x) for x in o.streamed)
        large = 4 * K_BLOCK * o.lane.extent >= o.target.l2_bytes
        return o.target.fmas_per_cycle > 1 and met and large

    def _of_rows(self, x: Access) -> bool:
        return self.operands.row is not None and x.depends(self.operands.row.name)


_ACCESSES = 64
"""Loads and stores of one iteration, at most, of a kernel of several stores."""

_MOST = 16
"""Vectors of a tile, at most."""

_COPY_ROWS = (1, 2, 4, 8)

_NEAR = range(-1, 5)
"""Elements between lanes that vectors and shuffles read in order; further is a transpose."""

_CROSSED_BLOCK = 256
"""Rows that a transpose finishes before it moves on: the first cache keeps their lines."""


@dataclass(frozen=True, slots=True)
class Copies(Defaults):
    """Some vectors in a row; of a transpose, runs of eight that are turned in registers."""

    def tiles(self) -> Sequence[tuple[int, int]]:
        """(rows, vectors), those first that are near to what the kind of copy wants.

        A point of many loads and stores fills the registers alone.
        """
        o = self.operands
        stores = len(o.kernel.stores)
        most = min(_MOST, _ACCESSES // (len(o.found) + stores)) if stores > 1 else _MOST
        every = tiles(o.rows, o.vectors, o.target.registers)
        found = [(m, n) for m, n in every if m in _COPY_ROWS and m * n <= max(1, most)]
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


_SUM_VECTORS = 4
"""Vectors of the best tile. More rows in registers save nothing, as nothing is read again."""

_LONG = 64
"""Steps of a reduction, at most, that are no column."""


@dataclass(frozen=True, slots=True)
class Sums(Defaults):
    """One row of vectors; of long columns, all the lanes of a few rows before the next ones.

    Memory wants whole rows, and a core's prefetcher follows a few at once.
    """

    def tiles(self) -> Sequence[tuple[int, int]]:
        """(rows, vectors), first one row of some vectors."""
        o = self.operands
        every = tiles(o.rows, o.vectors, o.target.registers)
        return sorted(every, key=lambda t: (t[0] != 1, abs(t[1] - _SUM_VECTORS), t[0]))

    def lane_block(self, sizes: Sequence[int]) -> int:
        """Columns that give each thread the same share, and whose sums the first cache holds."""
        if not self._columns():
            return 0
        o = self.operands
        fits = [i for i, n in enumerate(sizes) if n > 0 and 4 * n <= o.target.l1_bytes // 2]
        shares = {i: -(-o.lane.extent // sizes[i]) for i in fits}
        even = [i for i in fits if balance(shares[i], o.target.threads) > 0.99]
        return max(even or fits or [0], key=lambda i: sizes[i])

    def reduce_block(self, sizes: Sequence[int]) -> int:
        """As many rows as are added at once, where there are columns; else what caches hold."""
        o, streams = self.operands, self.operands.target.streams
        if streams in sizes and self._columns():
            return sizes.index(streams)
        long = o.steps >= 2 * K_BLOCK and K_BLOCK in sizes
        far = [x for x in o.streamed if not in_order(x, self.run, o.longest)]
        return sizes.index(K_BLOCK) if long and far else 0

    def order(self, forms: Sequence[str]) -> str:
        """Blocks of columns outermost, where there are any."""
        return "apart" if "apart" in forms and self._columns() else Defaults.order(self, forms)

    def _columns(self) -> bool:
        """True if long columns of something large are summed."""
        o = self.operands
        large = [x for x in o.found if x.nbytes > o.target.l2_bytes and x.stride(o.lane.name) == 1]
        long = [a for a in o.reduces if a.extent > _LONG]
        return any(not in_order(x, self.run, a) for x in large for a in long)
