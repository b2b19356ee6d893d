"""Tiles: vectors along a contiguous axis, a register tile of it and one more axis, blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import gcd, prod

from tunegrad.ir.dtypes import F32
from tunegrad.ir.expr import Apply, Op
from tunegrad.ir.index import Range
from tunegrad.ir.kernel import Axis, Kernel, on_both
from tunegrad.ir.target import Target
from tunegrad.lazy import dataclass

from ..actions import Action, Reorder, Stage, Thread, Unroll, Upcast, Vectorize
from ..decisions import Recorder
from ..staging import MAX_SCRATCH_BYTES
from .analysis import (
    PAGE,
    Access,
    Levels,
    accesses,
    accesses_of_terms,
    ahead_of,
    axis_of,
    balance,
    blocks,
    can_be_packed,
    memory_hints,
    next_lines,
    once,
    output_stride,
    stored_accesses,
    stored_itemsize,
    vector_lanes,
)

# ---- defaults
#
# Defaults of the tiles sketch by kind of kernel: copies, sums and products.
#
# They read how operands lie to the axes of the register tile (``Operands``) and the numbers of the
# target, and name no device.


@dataclass(frozen=True, slots=True)
class Operands:
    """The loads of the first reduction (of the stores, without one) and the register tile.

    ``lane`` and ``row`` are the axes of the tile, ``width`` its lanes. Rows of ``above`` may be in
    it, too, as those of an image above columns. ``strip`` is the axis that
    goes on where that of the lanes ends, after one vector: blocks of channels. ``streamed`` are
    loads of what a core's own caches do not hold. ``reused``: an operand is read again for every
    row. ``skinny``: few rows meet a large operand of the lanes. ``decisive`` are axes that decide
    which terms there are, ``dense`` is how many of all steps are some.
    """

    kernel: Kernel
    target: Target
    found: tuple[Access, ...]
    reduces: tuple[Axis, ...]
    lane: Axis
    width: int
    row: Axis | None
    above: Axis | None
    strip: Axis | None
    streamed: tuple[Access, ...]
    reused: bool
    skinny: bool
    decisive: frozenset[str]
    dense: float

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

    def is_batch(self, axis: str) -> bool:
        """True of an axis that all operands follow, and read other elements at each point."""
        return all(x.depends(axis) for x in self.found)

    @property
    def widened(self) -> bool:
        """True if products of bytes are made of halves of words: two registers an operand."""
        return self.target.widens_bytes and self._multiplies(Op.DOT4)

    @property
    def registers(self) -> int:
        """Those of a tile's sums and operands: a product that is then added has one, too."""
        return self.target.registers - (self.target.widens_bytes and self._multiplies(Op.DOT2I))

    def _multiplies(self, op: Op) -> bool:
        return any(isinstance(s.expr, Apply) and s.expr.op is op for s in self.kernel.reduces)

    @property
    def terms(self) -> int:
        """Products that a step adds: one, but of a sum of sums, as a weight that is used several
        times has its gradient.
        """
        return max(1, len(self.found) // 2)

    @property
    def steps(self) -> int:
        """Steps of the reductions for one result; where not all are terms, about as many as are."""
        return max(1, round(prod(a.extent for a in self.reduces) * self.dense))


def axes_of(kernel: Kernel, target: Target, ask: Recorder) -> tuple[Axis, Axis | None]:
    """Asks for the axes of the register tile: of the lanes, and of rows where one is left."""
    least = max(4, target.lanes(4) // 2)
    lanes = once(kernel, ("lanes", least), lambda: _lane_axes(kernel, least))
    lane = ask.pick("lane", lanes)
    rows = once(kernel, ("rows", lane.name), lambda: _row_axes(kernel, lane))
    return lane, ask.pick("row", rows) if rows else None


def operands_of(kernel: Kernel, target: Target, lane: Axis, row: Axis | None) -> Operands:
    """Describe how the operands lie to these axes."""
    found = _loads(kernel)
    given = on_both(kernel)
    decisive = frozenset(n for r in given for n in r.index.names())
    reduces = tuple(a for s in kernel.reduces for a in s.axes if a.extent > 1)
    width = vector_lanes(lane.extent, target.lanes(max(4, stored_itemsize(kernel))))
    streamed = tuple(x for x in found if x.role != "const" and x.nbytes > target.l2_bytes)
    reused = row is not None and any(not x.depends(row.name) for x in found)
    skinny = reused and bool(streamed) and all(x.depends(lane.name) for x in streamed)
    strip: Axis | None = None
    if row is not None and kernel.reduces and lane.extent == width >= target.lanes(4):
        strip = _strip([a for a in _shared(kernel) if a not in (lane, row)], lane, found)
    taken = (lane, row, strip)
    above = next((a for a in _reused_along(kernel, lane) if reused and a not in taken), None)
    return Operands(
        kernel,
        target,
        found,
        reduces,
        lane,
        width,
        row,
        above,
        strip,
        streamed,
        reused,
        skinny,
        decisive,
        prod(map(_share, given)),
    )


def _share(r: Range) -> float:
    """The part of all points that is in a range; each of its variables counts alike."""
    sums = [r.index.const]
    for atom, c in r.index.terms:
        sums = [s + c * v for s in sums for v in range(atom.lo, atom.hi + 1)]
        if len(sums) > _MOST_POINTS:
            return 1.0
    return sum(r.lo <= s < r.hi for s in sums) / len(sums)


_MOST_POINTS = 4096
"""Points of a condition that are counted."""


def in_order(x: Access, run: Axis | None, reduce: Axis) -> bool:
    """True if the reduction reads one number after the other.

    Each step reads all of the lanes, and the next step the numbers after them. ``run`` is the axis
    of the lanes where registers hold all of it.
    """
    return run is not None and x.stride(run.name) == 1 and x.stride(reduce.name) == run.extent


def _shared(kernel: Kernel) -> list[Axis]:
    return [a for a in kernel.axes if a.extent > 1]


def _loads(kernel: Kernel) -> tuple[Access, ...]:
    return accesses_of_terms(kernel) if kernel.reduces else stored_accesses(kernel)


def _strip(others: list[Axis], lane: Axis, found: tuple[Access, ...]) -> Axis | None:
    """An axis that only the weights' load depends on, as on the lanes', of one vector."""
    for a in others:
        either = [x for x in found if x.depends(a.name) or x.depends(lane.name)]
        both = [x for x in either if x.depends(a.name) and x.depends(lane.name)]
        if both and either == both and all(x.role == "const" for x in both):
            return a
    return None


def _lane_axes(kernel: Kernel, least: int) -> list[Axis]:
    """Axes for the lanes, first the one along which most of the traffic is contiguous; in sums,
    one of fewer than ``least`` elements costs as much as a load that is not. Lanes along 7 taps of
    a stem's gradient, of 16, took 25.3 ms, along its 64 channels, which lie apart, 9.3.

    Constants can be packed. Further ones have something whose elements lie together along them:
    vectors that are gathered and scattered lane by lane were a tenth of a search's candidates and
    a quarter of the time to compile them, and took 1.1 to 105 times as long as the best.
    """
    work, found = prod(a.extent for s in kernel.reduces for a in s.axes), _loads(kernel)

    def strided(a: Axis) -> int:
        lookups = [x for x in found if x.role != "const" and x.stride(a.name) not in (0, 1)]
        short = bool(kernel.reduces) and a.extent < least
        return work * (len(lookups) + short) + (output_stride(kernel, a.name) != 1)

    def rank(a: Axis) -> tuple[int, bool, int]:
        return strided(a), a.extent < 4, output_stride(kernel, a.name) or 1 << 40

    def together(a: Axis) -> bool:
        own = (x.depends(a.name) if x.role == "const" else x.stride(a.name) == 1 for x in found)
        return output_stride(kernel, a.name) == 1 or any(own)

    best, *others = sorted(_shared(kernel), key=rank)[:3]
    return [best, *filter(together, others)]


def _row_axes(kernel: Kernel, lane: Axis) -> list[Axis]:
    """Axes for the rows: those that an operand of the lanes ignores, then long ones first."""
    candidates = [a for a in _shared(kernel) if a is not lane]
    ranked = _reused_along(kernel, lane) or candidates[-1:]
    return [*ranked, *(a for a in candidates if a not in ranked)]


def _reused_along(kernel: Kernel, lane: Axis) -> list[Axis]:
    """Axes that an operand of the lanes ignores, long ones first."""
    of_lanes = [x for x in _loads(kernel) if x.depends(lane.name)]
    others = [a for a in _shared(kernel) if a is not lane]
    found = [a for a in others if any(not x.depends(a.name) for x in of_lanes)]
    return sorted(found, key=lambda a: (a.extent < 4, output_stride(kernel, a.name) or 1 << 40))


@dataclass(frozen=True, slots=True)
class Nest:
    """Loop names by role, outer before inner; "" where there is none.

    ``k`` is the outer block of the longest reduce axis, ``others`` are shared axes that are in no
    register tile, ``registers`` the loops of the tile: rows above, rows, vectors, lanes.
    """

    k: str
    others: tuple[tuple[str, str], ...]
    rows: tuple[str, str]
    lanes: tuple[str, str]
    reduces: tuple[str, ...]
    registers: tuple[str, str, str, str]

    @property
    def tile(self) -> list[str]:
        """The loops of the register tile that there are."""
        return [x for x in self.registers if x]


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

    def folded(self) -> tuple[tuple[int, int], int]:
        """The best tile, and how many rows of the axis ``above`` are in it, each as wide."""
        return self.tiles()[0], 1

    def folds(self, tile: tuple[int, int]) -> Sequence[int]:  # noqa: ARG002
        """How many rows of the axis ``above`` a tile can hold."""
        return (1,)

    def lane_block(self, sizes: Sequence[int]) -> int:  # noqa: ARG002  # an defaults may look at them
        """The cache block of the lanes."""
        return 0

    def row_block(self, sizes: Sequence[int]) -> int:  # noqa: ARG002
        """The cache block of the rows."""
        return 0

    def reduce_block(self, sizes: Sequence[int]) -> int:  # noqa: ARG002
        """The block of the longest reduce axis; 0 is none."""
        return 0

    def unroll(self, tile: tuple[int, int], extent: int) -> int:  # noqa: ARG002
        """Steps of the last reduce axis that are written out: they divide ``extent``."""
        return 1

    def order(self, forms: Sequence[str]) -> str:  # noqa: ARG002
        """The order of the outer loops: lanes outermost where they have much to read, at one point
        of a batch.
        """
        o = self.operands
        points = prod(a.extent for a in o.kernel.axes if o.is_batch(a.name))
        weights = (x for x in o.found if x.depends(o.lane.name) and x.role == "const")
        most = max((x.nbytes for x in weights), default=0) // points
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


_IN_FLIGHT, _LATENCY = 8.0, 5.0
"""Multiply-adds that hide each other's latency, at the least, and cycles of one: two units want
ten. With 8.7, which eight of them take in the first cache, tiles of three vectors won at 1024 x
1024 x 1024, and took 1.05 (32 bytes) and 1.08 (64 bytes) of the time of those of two.
"""

_STEADY, _LATE = 6, 0.7
"""Multiply-adds in flight, for each that starts in a cycle, with which a step takes no longer than
they do, and what fewer take longer: of two a cycle, 10 took the time of 10.7 and 12 that of 12.0.
"""

_STEP = 0.02
"""Cost of a tile's further row or vector besides its arithmetic, in multiply-adds: ties only."""

_ISSUED = 0.25
"""What its load adds to that on a core that starts two multiply-adds a cycle: loads take what is
left of the instructions that start then, half as many beside another thread of the core. Beside
one, steps of 14 x 2, 8 x 3 and 6 x 4, with 1.7, 1.5 and 1.45 instructions for a multiply-add, took
1.00, 0.93 and 0.88 of the time; alone 1.00, 0.98 and 0.97.
"""

_FEW_REGISTERS, _FULL = 16, 0.6
"""Of so many, tiles of twelve sums leave none, and what a step takes longer that needs them all, in
multiply-adds: 4 x 3 took 1.02 and 1.04 of the time of 6 x 2 (rows of 7 x 7 pixels, 512 to 2,048
channels and back; two threads of an Emerald Rapids).
"""

_MOST_ROWS = (*range(1, 17), 20, 24, 28)

_MOST_VECTORS = (1, 2, 3, 4, 6, 8)


_MOST_FOLDS = 4

_FOLDED = 0.97
"""Share of the time of a tile of one row that one of several has to take."""


def tiles(rows: int, vectors: int, registers: int, parts: int = 1) -> list[tuple[int, int]]:
    """(rows, vectors) whose accumulators, vectors and one number fit the registers; each of the
    last two takes ``parts`` of them.

    ``rows`` is 0 where no axis is for them.
    """
    found = []
    for m in [m for m in _MOST_ROWS if m <= rows] or [1]:
        fits = (n for n in _MOST_VECTORS if n <= vectors)
        found += [(m, n) for n in fits if m * n + parts * (n + 1) <= registers]
    return found or [(1, 1)]


@dataclass(frozen=True, slots=True)
class Sweep:
    """A full sweep of the axes of a product by a register tile, ``fmas`` multiply-adds a cycle.

    Tiles of at most ``ways`` rows come first, then those of at most ``held`` vectors, whose panel
    takes half of the second cache. A tile of more than ``near`` vectors reads them from there, each
    in the time of ``far`` multiply-adds. The sweep is split over ``threads`` by the tiles of an
    axis, that of the lanes where it is ``shared`` so, or by one of the ``others``' extents. A tile
    may hold several of ``above`` such rows.
    """

    rows: int
    above: int
    vectors: int
    registers: int
    ways: int
    near: int
    far: float
    fmas: int
    parts: int
    held: int
    threads: int
    others: tuple[int, ...]
    shared: bool = False


@lru_cache(maxsize=512)
def products_ranked(s: Sweep) -> Sequence[tuple[int, int]]:
    """Register tiles of a product by the time of a sweep."""

    def rank(tile: tuple[int, int]) -> tuple[bool, bool, float, int, int]:
        cost = round(_sweep_cost(s, tile, 1), 6)
        return tile[0] > s.ways, tile[1] > s.held, cost, sum(tile), -tile[0]

    return tuple(sorted(tiles(s.rows, s.vectors, s.registers, s.parts), key=rank))


def folds(s: Sweep, tile: tuple[int, int]) -> list[int]:
    """Rows above that a tile can hold: its own is one."""
    rows, vectors = tile
    most = min(s.above, (s.registers - s.parts * (vectors + 1)) // (rows * vectors))
    return [1, *(n for n in range(2, min(most, _MOST_FOLDS) + 1) if n * rows <= s.ways)]


@lru_cache(maxsize=512)
def fold_ranked(s: Sweep) -> tuple[tuple[int, int], int]:
    """The best tile with the rows above that it holds: one, unless several are clearly faster."""
    best = products_ranked(s)[0]
    least = _FOLDED * _sweep_cost(s, best, 1)
    every = tiles(s.rows, s.vectors, s.registers, s.parts)
    found = [(t, n) for t in every if t[1] <= s.held for n in folds(s, t)[1:]]
    costs = [(_sweep_cost(s, t, n), n, sum(t), t) for t, n in found]
    cost, fold, _, tile = min(costs, default=(least, 1, 0, best))
    return (tile, fold) if cost < least else (best, 1)


def _sweep_cost(s: Sweep, tile: tuple[int, int], fold: int) -> float:
    """Time for all tiles in multiply-adds of a vector; a load takes as long as one."""
    flight, far = max(_IN_FLIGHT, _LATENCY * s.fmas), s.far if tile[1] > s.near else 0.0
    issued = _ISSUED if s.fmas > 1 and s.registers > _FEW_REGISTERS else 0.0
    total = 0.0
    for (high, again), (wide, uses), (cols, times) in product(
        _parts(s.above, fold), _parts(max(1, s.rows), tile[0]), _parts(s.vectors, tile[1])
    ):
        rows = high * wide
        late = _LATE * (rows * cols < _STEADY * s.fmas)
        own = rows * cols + issued * (rows + cols)
        own += _FULL * (rows * cols + s.parts * (cols + 1) == s.registers <= _FEW_REGISTERS)
        busy = max(own + late, rows + cols, flight, cols * far)
        total += again * uses * times * (busy + _STEP * (rows + cols))
    lanes = -(-s.vectors // tile[1])
    loops = (-(-s.rows // tile[0]), lanes, *s.others, -(-s.above // fold))
    loops = (lanes,) if s.shared else loops
    return total / max((balance(n, s.threads) for n in loops if n > 1), default=1.0)


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


_BODY = 1024
"""Multiply-adds that are written out, at most, where a step adds several products: a program of
such a tile and its tails has fewer instructions than are allowed (``opts.passes``).
"""

_UNROLLED = 128
"""Multiply-adds of the last reduce loop that are written out by default, at most."""

_TURN = 40
"""Multiply-adds of a turn, at most, whose loop is written out with it. Of windows over three
channels, turns of 36 took 0.69 to 0.94 of the time so, and turns of 48 to 84 1.04 to 1.31.
"""


def taps_of(o: Operands) -> tuple[str, ...]:
    """Reduce axes of a few steps that move the rows' window of a padded operand."""
    if o.row is None:
        return ()
    row = o.row.name
    padded = [x for x in o.found if x.masked and x.stride(row)]

    def moves(a: Axis) -> bool:
        return any({a.name, row} <= names for x in padded for names in x.guards)

    return tuple(
        a.name for a in o.reduces if a.extent <= _TAPS and a.name not in o.decisive and moves(a)
    )


def _written(o: Operands, taps: Sequence[str]) -> bool:
    """True if taps are written out: rows are one tap apart, and no halves are made that taps left
    as loops share. A window in steps of two has padding at one end alone: taps left as loops took
    0.96 to 1.01 of the time of those written out with vectors of 32 bytes, and an image copied with
    its padding 0.98 to 1.03.
    """
    if o.target.fmas_per_cycle == 1 or o.widened:
        return False
    row = "" if o.row is None else o.row.name
    return any(x.masked and x.stride(row) == x.stride(t) for x in o.found for t in taps)


def unrolled(
    defaults: Defaults,
    nest: Nest,
    levels: Levels,
    tile: int,
    padded: bool,
    ask: Recorder,
) -> list[Unroll]:
    """The last reduce loop where it is short, and the one around it where that is and a turn would
    compute little; all of them where a window is small.

    ``tile`` counts the vectors of the register tile. ``padded``: a copy holds the padding, so no
    tap decides anything.

    Taps are the steps that move a window over padding. Written out, what is padding for one of them
    is decided before the loops inside, not for each load.
    """
    o = defaults.operands
    steps = [x for x in nest.reduces if levels.extent(x) > 1 and axis_of(x) not in o.decisive]
    short = [x for x in steps if levels.extent(x) <= _SHORT]
    small = tile * prod(levels.extent(x) for x in steps) <= WINDOW
    window = len(steps) > 1 and short == steps and small
    if window and ask.pick("window", [False, True], int(not o.reused)):
        return [Unroll(x) for x in steps]
    taps = [] if padded else [x for x in steps[:-1] if x in defaults.taps]
    if bool(taps) and ask.pick("taps", [True, False], int(not _written(o, taps))):
        return [Unroll(x) for x in taps]
    last = [x for x in steps[-1:] if x == nest.reduces[-1] and x in short]
    last = [x for x in last if tile * o.terms * levels.extent(x) <= _BODY]
    two = steps[-2:]
    few = bool(last) and len(two) > 1 and o.reused and tile * levels.extent(last[0]) <= _TURN
    if few and set(two) <= set(short) and ask.pick("last two", [False, True], 1):
        last = two
    return [Unroll(x) for x in last]


K_BLOCK = 256
"""Steps of a product whose operands are met at once."""

_LINE, _ITEM = 64, 4
"""Bytes of a line, and of an f32."""

_FEWEST = 64
"""Steps of a panel, at least: partial sums go to memory and back after each."""

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
        terms = self.operands.terms
        return sorted(products_ranked(self.sweep()), key=lambda x: x[0] * x[1] * terms > _BODY)

    def folded(self) -> tuple[tuple[int, int], int]:
        """The tile of the fastest sweep, unless that has too long a body."""
        (rows, vectors), fold = found = fold_ranked(self.sweep())
        long = rows * vectors * fold * self.operands.terms > _BODY
        return (self.tiles()[0], 1) if long else found

    def folds(self, tile: tuple[int, int]) -> Sequence[int]:
        """As many as its sums leave registers for."""
        return folds(self.sweep(), tile)

    def sweep(self) -> Sweep:
        """The sweep of the axes."""
        o, t = self.operands, self.operands.target
        far_apart = o.row is not None and any(
            (x.stride(o.row.name) or 0) > 1 and not x.depends(o.lane.name) for x in o.streamed
        )
        ways = t.streams if far_apart and not self._apart else o.rows
        far = t.vector_bytes * t.fmas_per_cycle / t.l2_bytes_per_cycle
        near, parts = self._near_vectors(), 1 + o.widened
        above = 1 if o.above is None else o.above.extent
        taken = (o.lane, o.row, o.strip, o.above)
        others = tuple(a.extent for a in o.kernel.axes if a not in taken)
        held = max(1, t.l2_bytes // (2 * 4 * o.width * (self._block() or o.steps)))
        return Sweep(
            o.rows, above, o.vectors, o.registers, ways, near, far, t.fmas_per_cycle, parts, held,
            t.threads, others, _shares_lanes(o, bool(self._block())),
        )  # fmt: skip

    def row_block(self, sizes: Sequence[int]) -> int:
        """Rows that stay in the second cache, where the panel of the lanes does not; of a weight's
        gradient behind a stride, whose panel is several times as large, those of each thread: they
        all meet one tap's lanes before the next tap. Four took 0.87, 0.92, 0.95 and 1.00 of the
        time so, without a stride 0.99 to 1.06.
        """
        o, steps = self.operands, self._block()
        if steps and self._strides():
            return nearest(sizes, -(-o.rows // o.target.threads))
        return (
            nearest(sizes, o.target.l2_bytes // (3 * 4 * steps)) if steps and self._split() else 0
        )

    def _strides(self) -> bool:
        """True if steps of the lanes' operand are two of its taps apart."""
        o = self.operands
        between = [
            a.name for a in o.kernel.axes if a not in (o.lane, o.row) and _between_lanes(o, a)
        ]
        strides = [
            (x.stride(r.name) or 0, x.stride(t) or 0)
            for x in o.found if x.depends(o.lane.name) for r in o.reduces for t in between
        ]  # fmt: skip
        return any(step == 2 * tap > 0 for step, tap in strides)

    def reduce_block(self, sizes: Sequence[int]) -> int:
        """The steps of a panel, where that is a choice."""
        steps = self._block()
        if not steps or steps in sizes or len(sizes) < 2:
            return sizes.index(steps) if steps in sizes else 0
        beside = self.operands.steps / self.operands.longest.extent
        return 1 + nearest([round(beside * n) for n in sizes[1:]], steps)

    def order(self, forms: Sequence[str]) -> str:
        """Lanes outermost where each thread copies its own panels of them, one at a time."""
        o, blocked = self.operands, bool(self._block())
        return "lanes" if _has_own_panels(o, blocked) else Defaults.order(self, forms)

    def unroll(self, tile: tuple[int, int], extent: int) -> int:
        """Four, of a core with two multiply-adds a cycle, unless taps are written out: a loop has
        four instructions besides those of a step, which are some 25 to 35. Nor where an operand's
        copy turns it in registers, which takes as many steps as a vector has lanes: scores of
        attention, in fours, took 1.23 of the time; nor where halves of words fill the registers.
        """
        o, (rows, vectors) = self.operands, tile
        full = o.widened and o.registers - rows * vectors <= 2 * (vectors + 1)
        turned = any(_turned(o, x) for x in o.found)
        if o.target.fmas_per_cycle == 1 or turned or full or _written(o, self.taps):
            return 1
        most = _UNROLLED // (rows * vectors * o.terms)
        return next((n for n in (4, 2) if n <= most and extent % n == 0), 1)

    @property
    def taps(self) -> tuple[str, ...]:
        """Of a padded window."""
        return taps_of(self.operands)

    @property
    def pads(self) -> bool:
        """Branching around the conditions costs less than copying an image with its padding.

        For a core with two multiply-adds a cycle, only where the taps that decide are written out,
        or where a copy is one thread's work that others wait for.
        """
        o, t = self.operands, self.operands.target
        long = o.longest.extent > WINDOW and not o.decisive
        return t.fmas_per_cycle > 1 and t.threads == 1 and not self.taps and long

    def _near_vectors(self) -> int:
        """Vectors across a tile whose panel of the lanes' operand the first cache holds.

        As many as there are where the second cache keeps up, with one multiply-add a cycle. Where
        taps are masked, as many as it feeds in a tile that fills the registers: a window's rows
        read the same inputs again, and many rows in a tile would put padding into most tiles. Rows
        of a weight's gradient are channels.
        """
        o = self.operands
        if o.target.fmas_per_cycle == 1:
            return o.target.registers
        if any(x.masked for x in o.found) and not self._apart:
            return max(n for n in _MOST_VECTORS if self._feeds(n))
        blocked = o.steps >= 2 * K_BLOCK and (len(o.streamed) > 1 or self._crosses)
        steps = self._panel(self._leaves_l2(_FEWEST)) if blocked else o.steps
        return o.target.l1_bytes // (4 * o.width * steps)

    def _feeds(self, vectors: int) -> bool:
        """True if the second cache has so many for each step of the most rows that sums are for."""
        t = self.operands.target
        rows = (t.registers - 1 - vectors) // vectors
        return vectors == 1 or t.vector_bytes * t.fmas_per_cycle <= rows * t.l2_bytes_per_cycle

    def _block(self) -> int:
        """The block of the longest reduce axis, 0 for none."""
        o = self.operands
        far = [x for x in o.streamed if not in_order(x, self.run, o.longest)]
        few = len(far) <= 1 and not o.skinny and not self._crosses and not self._leaves_l2(o.steps)
        return 0 if o.steps < 2 * K_BLOCK or few else self._panel(self._split())

    @property
    def _crosses(self) -> bool:
        """True if a step of the reduction is a line of the rows' operand of its own, as in a
        weight's gradient, X^T G: the lines of a whole sum leave the first cache before the next
        vectors of lanes read them again.
        """
        o = self.operands
        return (
            o.row is not None and self.run is None and not self._apart
            and o.steps * _LINE > o.target.l1_bytes
            and any(
                x.stride(o.row.name) == 1 and (x.stride(o.longest.name) or 0) * _ITEM >= _LINE
                for x in o.found if not x.depends(o.lane.name)
            )
        )  # fmt: skip

    def _panel(self, split: bool) -> int:
        """Steps of a panel; more where partial sums go to memory and back after each, and, as far
        as the second cache holds them, where those of neighbouring lanes lie apart: each is a load
        and a store of its own.
        """
        o = self.operands
        steps = 2 * K_BLOCK if split and o.target.l2_bytes >= _LARGE_L2 else K_BLOCK
        if split and o.kernel.unique_bytes > o.target.cached_bytes:
            steps = 4 * K_BLOCK
        if not self._apart:
            while not split and self._leaves_l2(steps):
                steps //= 2
            return steps
        held = o.target.l2_bytes // (2 * 4 * o.lane.extent)
        return max(steps, min(K_BLOCK * o.width // 4, held))

    @property
    def _apart(self) -> bool:
        """True if neighbouring lanes of the result lie apart, as in a convolution's weights."""
        return output_stride(self.operands.kernel, self.operands.lane.name) != 1

    def _split(self) -> bool:
        """True if a block of rows stays in the second cache, and each reads the panel again."""
        return any(map(self._of_rows, self.operands.streamed)) and self._leaves_l2(_FEWEST)

    def _leaves_l2(self, steps: int) -> bool:
        """True if a panel of so many steps does not stay in the second cache while all rows meet
        it: a core's lanes take more than half of it.

        With one multiply-add a cycle a core asks for no more than the last cache gives.
        """
        o = self.operands
        cores = o.target.threads if _shares_lanes(o, steps < o.steps) else 1
        most = o.target.l2_bytes * cores // 2
        large = 4 * steps * o.lane.extent > most and any(
            x.role != "const" and x.depends(o.lane.name) and x.nbytes > most for x in o.found
        )
        return o.target.fmas_per_cycle > 1 and large and not o.skinny

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


# ---- sketch
#
# Tiles: vectors along a contiguous shared axis, a register tile of it and one more axis, blocks.
#
# for k0:                            block of the longest reduce axis, partial sums in the output
#   for other0, row0, lane0:         cache blocks, in one of several orders; one of them on threads
#     for other1, lane1, row1:       register tiles
#       for reduce axes:             operand with the unit stride innermost, perhaps unrolled
#         row2 x lane2 accumulators of lane3 lanes
#
# The defaults of its decisions follow from the kind of kernel:
#
#     Copies     no reduction: elementwise kernels, transposes
#     Sums       operands are read once: pooling, sums of columns
#     Products   an operand is read again for every row: GEMM, convolution


_REUSED_STEPS, _STEPS = (1024, 512, 256, 128, 64), (256, 128, 64, 32, 16, 8)
"""Blocks of a reduction: of operands that are all read again, and of others."""

_FEW_STEPS = (16, 8, 4, 2, 1)
"""Blocks of the longest of several short reductions, which are long together."""

_UNROLLS = (1, 2, 4, 8)

_OTHER_BLOCK = 64
"""Points of a block of an axis that is in no register tile, at most."""


def split(
    defaults: Defaults, tile: tuple[int, int], fold: int, levels: Levels, ask: Recorder
) -> Nest:
    """Asks for every block, splits the axes and says what the loops are for."""
    o = defaults.operands
    lanes = _split_lanes(defaults, tile[1], levels, ask)
    rows = ["", "", ""]
    if o.row is not None:
        sizes = blocks(o.row.extent, tile[0])
        block = ask.pick("row.block", sizes, defaults.row_block(sizes))
        rows = levels.split(o.row.name, (block, tile[0]))
    rest = [a for a in o.kernel.axes if a.extent > 1 and a not in (o.lane, o.row, o.strip)]
    splits = [_split_other(o, a, fold if a is o.above else 1, levels, ask) for a in rest]
    others = tuple((names[0], names[1]) for names in splits)
    above = next((names[2] for a, names in zip(rest, splits, strict=True) if a is o.above), "")
    k, inner = _split_reduces(defaults, (tile[0] * fold, tile[1]), levels, ask)
    registers = above, rows[2], lanes[2], lanes[3]
    return Nest(k, others, (rows[0], rows[1]), (lanes[0], lanes[1]), inner, registers)


def _split_lanes(defaults: Defaults, vectors: int, levels: Levels, ask: Recorder) -> list[str]:
    """Names of the loops: block, tile, vectors, lanes."""
    o = defaults.operands
    if o.strip is not None:
        sizes = blocks(o.strip.extent, vectors)
        block = ask.pick("lane.block", sizes, 0)
        return [*levels.split(o.strip.name, (block, vectors)), o.lane.name]
    unit = vectors * o.width
    sizes = blocks(o.lane.extent, unit)
    block = ask.pick("lane.block", sizes, defaults.lane_block(sizes))
    return levels.split(o.lane.name, (block, unit, o.width))


def _split_other(o: Operands, axis: Axis, fold: int, levels: Levels, ask: Recorder) -> list[str]:
    """Blocks a shared axis of which ``fold`` points are in a register tile: loops outside, inside
    and of the tile.
    """
    most = min(axis.extent, _OTHER_BLOCK + 1)
    options = [0, *(d for d in range(2, most) if not axis.extent % d and not d % fold)]
    default = _window_block(o, axis, options)
    if _between_lanes(o, axis):
        options, default = [*options, -(-axis.extent // fold) * fold], len(options)
    block = ask.pick(f"{axis.name}.block", options, default)
    if fold == 1:
        return [*levels.split(axis.name, (block,)), ""]
    return levels.split(axis.name, (block, fold))


def _between_lanes(o: Operands, axis: Axis) -> bool:
    """True if results of the axis lie between those of the lanes, as taps of a weight do between
    channels: a register tile makes all of them before the next one, so that lines are written once.
    """
    lane, own = (output_stride(o.kernel, a.name) for a in (o.lane, axis))
    return bool(o.kernel.reduces) and lane is not None and own is not None and 0 < own < lane


def _window_block(o: Operands, axis: Axis, options: list[int]) -> int:
    """Windows of a masked operand want a block of rows staged: half of the second cache."""
    reused = any(not x.depends(axis.name) for x in o.found)
    windows = [x for x in o.found if x.masked]
    if not reused or len(options) < 2 or not any(x.depends(axis.name) for x in windows):
        return 0
    whole, most = max(x.nbytes for x in windows), o.target.l2_bytes // 2
    fits = [i for i, d in enumerate(options) if d and whole * (d + 2) // axis.extent <= most]
    even = [i for i in fits if balance(axis.extent // options[i], o.target.threads) > 0.99]
    return (even or fits or [0])[-1]


def _split_reduces(
    defaults: Defaults, tile: tuple[int, int], levels: Levels, ask: Recorder
) -> tuple[str, tuple[str, ...]]:
    """(name of the outer block of the longest reduce axis, the loops inside, in order)."""
    o = defaults.operands
    if not o.reduces:
        return "", ()
    longest = o.longest
    sizes = _reduce_blocks(o)
    block = ask.pick("k.block", sizes, defaults.reduce_block(sizes))
    ranked = sorted(
        o.reduces, key=lambda a: (a.name not in o.decisive, -_least_step(o, a), -a.extent)
    )
    rotations = [tuple(ranked[i:] + ranked[:i]) for i in range(len(ranked))]
    chosen = ask.pick("k.order", rotations)
    outer, inner = "", list[str]()
    for a in chosen:
        unroll = 1
        if a is chosen[-1]:
            steps = _UNROLLS if a.extent >= _UNROLLS[-1] else (1, a.extent)
            of = gcd(a.extent, block) if a is longest else a.extent
            best = defaults.unroll(tile, of) if a.name not in o.decisive else 1
            unroll = ask.pick(f"{a.name}.unroll", steps, steps.index(best) if best in steps else 0)
        names = levels.split(a.name, (block if a is longest else 0, unroll))
        if a is longest and block:
            outer, names = names[0], names[1:]
        inner += [n for n in names if n]
    return outer, tuple(inner)


def _reduce_blocks(o: Operands) -> list[int]:
    """Blocks of the longest reduce axis, none first: partial sums must fit the output's dtype, and
    must not replace an input that is read at the end.
    """
    kernel, shared = o.kernel, [a.name for a in o.kernel.axes if a.extent > 1]
    dtype = kernel.reduces[0].dtype
    if kernel.overwritten or all(kernel.param(s.param).dtype != dtype for s in kernel.stores):
        return [0]
    reused = all(any(not x.depends(n) for n in shared) for x in o.found)
    choices = _REUSED_STEPS if reused else _STEPS
    found = [b for b in choices if b < o.longest.extent]
    inputs = [x for x in o.found if x.role != "const"]
    panels = o.steps >= K_BLOCK * o.longest.extent  # each step of the longest is one by itself
    few = not found or panels
    if few and reused and len(inputs) > 1 and o.steps >= 2 * K_BLOCK:
        found += [b for b in _FEW_STEPS if b < o.longest.extent]
    return [0, *found]


def _least_step(o: Operands, a: Axis) -> int:
    """Elements from one step of the axis to the next, of what is no constant, at the least."""
    found = [x.stride(a.name) for x in o.found if x.role != "const" and x.depends(a.name)]
    return min((1 << 40 if s is None else abs(s) for s in found), default=1 << 40)


_EVEN = 0.93
"""Least evenness with which a loop's iterations split over the threads, for it to be taken."""


_THREADED = 4
"""Loops, outermost first, of which one may be on threads."""

_SHARE = 8192
"""Bytes of results that a thread makes at each point of a batch, at the least, for the rows to be
shared out in its place: with 2 KiB that took 1.3 to 1.9 of the time, with 4 1.08 to 1.25, with 8
and more 0.99 to 1.06 (near cores of a Zen 5).
"""


def order_of(defaults: Defaults, nest: Nest, ask: Recorder) -> list[str]:
    """Asks for the order; the serial loops outside the reduction, outermost first.

    The lanes are outside of loops that read the same again, not of those of a batch.
    """
    o0, o1 = [a for a, _ in nest.others], [b for _, b in nest.others]
    (r0, r1), (l0, l1), k = nest.rows, nest.lanes, nest.k
    batch = [a for a in o0 if a and defaults.operands.is_batch(axis_of(a))]
    again = [a for a in o0 if a not in batch]
    forms = {
        "rows": [k, *o0, r0, l0, l1, *o1, r1],
        "lanes": [k, *batch, l0, l1, *again, r0, *o1, r1],
        "inner": [k, *o0, r0, l0, *o1, r1, l1],
    }
    if k and (l0 or any(o0) or r0):
        forms["apart"] = [*o0, r0, l0, k, l1, *o1, r1]
    names = list(forms)
    best = defaults.order(names)
    if best == "lanes" and not (l0 or l1):
        best = "rows"
    return [x for x in forms[ask.pick("order", names, names.index(best))] if x]


def _most_apart(
    defaults: Defaults, nest: Nest, order: list[str], tile: tuple[int, int], even: list[str]
) -> str:
    """Of loops that split evenly over the threads, the one whose threads keep most to the memory
    that their cores wrote in the kernel before; where nothing says which, the outermost.

        copies      the loop along which results lie farthest apart: one part of memory a thread
        a batch     of products of a small operand, as of Winograd's weights, and a large one that
                    the kernel before made row by row: its rows, and all threads read the small one

    Not where an operand is copied at each point of a batch: there threads would wait for all others
    before and behind each copy, and points of 256 to 16,384 results took 4.0 to 1.03 of the time.

    Where each core has a last cache of its own, ResNet-18 was 1.07 times as fast so, in bytes 1.3;
    where they have one, 1.00 and 1.04 (two threads of a Zen 5).
    """
    o = defaults.operands
    if not o.reduces:
        return max(even, key=lambda x: abs(output_stride(o.kernel, axis_of(x)) or 0))
    if _shares_lanes(o, bool(nest.k)) and nest.lanes[0] in even:
        return nest.lanes[0]
    rows, batch = nest.rows[0], o.is_batch(axis_of(even[0]))
    share = o.rows * o.lane.extent * stored_itemsize(o.kernel) // o.target.threads
    if not (batch and rows in even and o.reused and share >= _SHARE):
        return even[0]
    between = order[order.index(even[0]) : order.index(rows)]
    copies = (places[best] for _, places, best in _copies(defaults, nest, order, tile))
    if any(place.split(":")[0] in between for place in copies):
        return even[0]
    large = max((x.nbytes for x in o.found if x.depends(axis_of(rows))), default=0)
    small = max((x.nbytes for x in o.found if not x.depends(axis_of(rows))), default=0)
    return rows if small < large else even[0]


def _shares_lanes(o: Operands, blocked: bool) -> bool:
    """True if each thread should keep half of a product's operand of the lanes in its own second
    cache, which does not hold much more, and packs that half alone; all threads read the rows.

    ``blocked``: the smaller operand is the one that all threads read, since the cache holds the
    block of a reduction, or a panel, of either half. X^T G of 1024 x 1024 and 1024 x 256 numbers
    took 1.17 of the time of the other way.
    """
    of_lanes, of_rows = (
        max((x.nbytes for x in o.found if x.role == "in" and x.depends(a.name)), default=0)
        if a is not None else 0
        for a in (o.lane, o.row)
    )  # fmt: skip
    return (
        o.reused and o.target.fmas_per_cycle > 1 and len(o.reduces) == 1
        and o.target.l2_bytes <= 2 * of_lanes and of_rows <= (1 if blocked else 4) * of_lanes
        and not any(o.is_batch(a.name) for a in o.kernel.axes)
    )  # fmt: skip


def threads_of(
    defaults: Defaults,
    nest: Nest,
    order: list[str],
    tile: tuple[int, int],
    levels: Levels,
    ask: Recorder,
) -> list[Thread]:
    """Asks for the loop on threads: one that splits evenly, else the most even, of those whose
    steps all move the output by as much.

    Of other loops nothing proves that no two threads write one element: groups of 68 channels,
    stored in blocks of 16, share a block.
    """
    o = defaults.operands
    loops = [x for x in order if x != nest.k and levels.extent(x) > 1][:_THREADED]
    if o.target.threads < 2 or not loops:
        return []
    n = o.target.threads
    scores = {x: balance(levels.extent(x), n) for x in loops}
    plain = [x for x in loops if output_stride(o.kernel, axis_of(x)) is not None] or loops
    even = [x for x in plain if scores[x] > _EVEN]
    best = (
        _most_apart(defaults, nest, order, tile, even)
        if even
        else max(plain, key=scores.__getitem__)
    )
    chosen = ask.pick("thread", [*loops, "none"], loops.index(best))
    return [] if chosen == "none" else [Thread(chosen, min(n, levels.extent(chosen)))]


def stages_of(
    defaults: Defaults, nest: Nest, order: list[str], tile: tuple[int, int], ask: Recorder
) -> list[Stage]:
    """Asks for a place for each operand that one load reads; the copies.

    Constants are packed when a model is loaded, the operand of the lanes where it is strided,
    images with their padding as a box.
    """
    actions: list[Stage] = []
    for x, places, default in _copies(defaults, nest, order, tile):
        at = ask.pick(f"stage.{x.param}", places, default)
        if at != "none":
            where, form = at.split(":")
            actions.append(Stage(x.param, where, _layout(x, nest, order, where, form)))
    return actions


def _copies(
    defaults: Defaults, nest: Nest, order: list[str], tile: tuple[int, int]
) -> Iterator[tuple[Access, list[str], int]]:
    """Operands that one load reads: each with the places where a copy may stand, and the best."""
    o = defaults.operands
    if not o.kernel.reduces:
        return
    counts = Counter(x.param for x in o.found)
    whole = accesses(o.kernel, o.kernel.reduces[0])
    for x, copied in zip(o.found, whole, strict=True):
        if counts[x.param] > 1 or x.indirect or not x.strides or x.strides != copied.strides:
            continue
        places = _places(o, x, order)
        yield x, places, _default(defaults, x, nest, places, tile)


def _places(o: Operands, x: Access, order: list[str]) -> list[str]:
    """Places where a copy may stand, with its form: by all its loops, by rows, or as a box.

    A constant that lanes would gather is packed: without, products took 1.7 to 80 times as long as
    the best, and took twice as long to compile.
    """
    if x.role == "const":
        packs = ["load:loops"] if can_be_packed(o.kernel, o.reduces, x) else []
        gathered = x.stride(o.lane.name) not in (0, 1) and _of_steps(o, x)
        return packs if packs and gathered else ["none", *packs]
    form = "box" if x.masked and x.boxed else "loops"
    outside = [""] if 2 * x.nbytes <= MAX_SCRATCH_BYTES else []  # tails pad a copy
    found = ["none", *(f"{at}:{form}" for at in (*outside, *order[:-1]))]
    if not x.masked and not x.depends(o.lane.name):
        found += [f"{at}:rows" for at in (*outside, *order[:-1])]
    return found


def _of_steps(o: Operands, x: Access) -> bool:
    """True of an operand that is another one at other steps of the reductions."""
    return any(x.depends(a.name) for a in o.reduces)


def _default(
    defaults: Defaults, x: Access, nest: Nest, places: list[str], tile: tuple[int, int]
) -> int:
    """The place that is best for an operand; 0 is none."""
    o = defaults.operands
    of_lanes = x.depends(o.lane.name)
    if x.role == "const":
        return int(len(places) > 1 and of_lanes and _of_steps(o, x))
    if x.masked:
        return places.index(":box") if defaults.pads and ":box" in places else 0
    wanted: list[str] = []
    sparse = any(x.depends(n) for n in o.decisive)  # a copy has zeros
    copied = x.stride(o.lane.name) != 1 or (
        not nest.k and (_misses(o, x, tile) or _pays(o, x, tile))
    )
    if nest.k and not copied:
        last = next((a for a in o.reduces if a.name == axis_of(nest.reduces[-1])), o.longest)
        copied = not (in_order(x, defaults.run, last) or _is_dense(o, x, last))
    if of_lanes and not sparse and _again(o, x) and copied:
        wanted = _panel_places(o, x, nest, tile)
    elif nest.k and not of_lanes and all(nest.rows):
        wanted = [f"{nest.rows[0]}:rows"]
    return next((places.index(p) for p in wanted if p in places), 0)


_MISS = 8
"""Cycles that a step waits for a line that the first cache had no room for: tiles of 4 x 2, 4 x 3
and 6 x 2 took 7.9, 8.7 and 8.2 a step; what computes for longer was no faster with a copy.
"""

_TURNS = 8
"""Tiles of rows for which a copy pays: with 4 of them it was even, with 8 a fifth faster."""


def _is_dense(o: Operands, x: Access, reduce: Axis) -> bool:
    """True if the steps of a reduction lie one behind the other, several in a page: prefetchers
    follow, and a panel is read as fast as its copy is. With over without a copy, steps of 2 KiB:
    16 tiles of rows 1.33, 64 tiles 1.11, 128 tiles 1.09; of 256 B 1.84; of 3 KiB 0.99, of 4 KiB
    0.87; vectors of 32 bytes 0.98 to 1.02 and 0.96.
    """
    step = x.stride(reduce.name) or 0
    near = 4 * step * o.kernel.param(x.param).dtype.itemsize < 3 * PAGE
    return 0 < step < 2 * o.lane.extent and near


def _step_bytes(o: Operands, x: Access) -> int:
    """Bytes between two steps of the longest reduction; 0 without one."""
    stride = x.stride(o.longest.name) if o.reduces else None
    return (stride or 0) * o.kernel.param(x.param).dtype.itemsize


def _misses(o: Operands, x: Access, tile: tuple[int, int]) -> bool:
    """True if every step of a tile waits for a line of the lanes' operand: one set of the first
    cache should hold them all, and they are pages apart, or the second cache does not hold them.
    """
    step = _step_bytes(o, x)
    places = PAGE // gcd(PAGE, step)
    far = places == 1 or x.nbytes >= o.target.l2_bytes
    short = tile[0] * tile[1] < _MISS * o.target.fmas_per_cycle
    return (
        step > 0
        and far
        and short
        and o.steps > places * o.target.streams
        and (o.rows >= _TURNS * tile[0])
    )


_MANY = 64
"""Tiles of rows from which on a copy takes 2 % of a product's time at most."""


def _pays(o: Operands, x: Access, tile: tuple[int, int]) -> bool:
    """True if many tiles of rows read a large operand of the lanes whose steps are lines apart:
    with two multiply-adds a cycle the first cache's prefetcher keeps up with a copy alone. Time
    without a copy over time with one: 1.14 to 1.22 for 1 MiB in steps of 1 and 4 KiB (Emerald
    Rapids).
    """
    large = 2 * x.nbytes >= o.target.l2_bytes and o.reused and len(o.reduces) == 1
    far = _step_bytes(o, x) > _LINE
    tiles = _TURNS if _overflows(o, x) else _MANY
    return o.target.fmas_per_cycle > 1 and large and far and o.rows >= tiles * tile[0]


def _overflows(o: Operands, x: Access) -> bool:
    """True of an operand of the lanes, lines of one step apart from the next one's, that takes half
    of the second cache: where its pages fall decides whether that holds what each tile
    of rows reads again. Time without a copy over time with each thread's own, 128 rows, two
    threads: 784 steps of 2 KiB 1.4 and 1.7, 1024 of 2 KiB 1.97, 512 of 4 KiB 1.71, 640 of 2.5 KiB
    0.84 and 1.69, 700 of 2.4 KiB 0.95; with one copy for all threads 1.29, 1.75 and 1.61 of the
    first three; 512 steps of 2 KiB, half of it, 0.93 to 1.06 alone and 1.14 in a step of training
    (Emerald Rapids).
    """
    far = x.stride(o.lane.name) == 1 and _step_bytes(o, x) > _LINE
    nbytes = o.steps * o.lane.extent * o.kernel.param(x.param).dtype.itemsize
    return x.role != "const" and far and 2 * nbytes >= o.target.l2_bytes


def _panel_places(o: Operands, x: Access, nest: Nest, tile: tuple[int, int]) -> list[str]:
    """Places where the operand of the lanes is packed: once a block of the reduction or a batch.

    A skinny product reads each number only a few times: strided ones are packed a tile at a time,
    contiguous ones where many tiles of rows read a block.
    """
    if o.skinny and x.stride(o.lane.name) == 1:
        return [f"{nest.k}:loops"] if nest.k and o.rows >= _TURNS * tile[0] else []
    batch = [a for a, _ in nest.others if a and x.depends(axis_of(a))]
    block = nest.k or (batch[-1] if batch else "")
    alone = o.skinny or (not nest.k and _has_own_panels(o, blocked=False))
    single = [f"{nest.lanes[1] or nest.lanes[0]}:loops"] if alone else []
    return [*single, f"{block}:loops", ":loops"]


def _has_own_panels(o: Operands, blocked: bool) -> bool:
    """True if each thread copies panels of the lanes' operand for itself, one at a time. Turned
    once for all threads, 512 x 784 numbers for 128 rows took 1.12 of the time, 256 x 1024 for 1024
    rows 1.06. What need not be turned is copied once for all threads, as before, where the rows'
    operand is the larger one: there a copy for each was not proved faster (1024 x 512 for 1024 rows
    0.81, where equal programs were 1.09 apart; steps of an encoder and a GPT 0.95 to 1.02).
    """
    turned = any(_turned(o, x) for x in o.found)
    over = not blocked and any(x.depends(o.lane.name) and _overflows(o, x) for x in o.found)
    return (turned and _shares_lanes(o, blocked)) or (over and _shares_lanes(o, blocked=True))


def _turned(o: Operands, x: Access) -> bool:
    """True of an operand whose copy turns it in registers: steps lie one after the other in it, as
    in a layer's weights, X W^T, and lanes apart.
    """
    far = x.stride(o.lane.name) not in (0, 1)
    return x.role != "const" and x.stride(o.longest.name) == 1 and far


def _again(o: Operands, x: Access) -> bool:
    """True if some loop reads the same numbers again."""
    return any(not x.depends(a.name) for a in o.kernel.axes if a.extent > 1)


def _layout(x: Access, nest: Nest, order: list[str], at: str, form: str) -> tuple[str, ...]:
    """Loops that index the copy; () keeps the parameter's own box."""
    if form == "box":
        return ()
    inside = order[0 if at in ("", "load") else order.index(at) + 1 :]
    steps = nest.reduces if form == "loops" else ()
    rest = () if form == "loops" else nest.reduces
    loops = [*inside, *steps, *nest.tile, *rest]
    if at == "load" and nest.k and nest.k not in loops:
        loops = [nest.k, *loops]
    return tuple(n for n in loops if x.depends(axis_of(n)))


@dataclass(frozen=True, slots=True)
class _Known:
    """Consequences of the register tile's axes: the best tiles, the defaults for the kernel.

    ``best`` is the default tile, and how many rows above are in it; ``sweep`` what they are for.

    ``whole`` is the same defaults where a tile holds all of the lanes' axis.
    """

    tiles: Sequence[tuple[int, int]]
    best: tuple[tuple[int, int], int]
    defaults: Defaults
    whole: Defaults


def sketch_tiles(kernel: Kernel, target: Target, ask: Recorder) -> tuple[Action, ...]:
    """Asks for every decision of the tiles sketch and returns its actions."""
    if not any(a.extent > 1 for a in kernel.axes):
        return ()
    lane, row = axes_of(kernel, target, ask)
    where = "tiles", target, lane.name, None if row is None else row.name
    known = once(kernel, where, lambda: _known(operands_of(kernel, target, lane, row)))
    best, above = known.best
    tile = ask.pick("tile", known.tiles, known.tiles.index(best))
    options = known.defaults.folds(tile)
    fold = ask.pick("fold", options, options.index(above) if tile == best else 0)
    operands = known.defaults.operands
    whole = target.lanes(4) <= lane.extent <= tile[1] * operands.width
    defaults = known.whole if whole else known.defaults
    levels = Levels(kernel)
    nest = split(defaults, tile, fold, levels, ask)
    order = order_of(defaults, nest, ask)
    # Registers run innermost wherever they stand; before the reductions, no step on the way makes
    # partial sums.
    everything = (*order, *nest.tile, *nest.reduces)
    actions = [*levels.actions, *([Reorder(everything)] if len(everything) > 1 else [])]
    tile = tile[0] * fold, tile[1]
    threads = threads_of(defaults, nest, order, tile, levels, ask)
    stages = stages_of(defaults, nest, order, tile, ask)
    copied = {s.param for s in stages}
    padded = any(x.masked and x.param in copied for x in operands.found)
    steps = unrolled(defaults, nest, levels, tile[0] * tile[1], padded, ask)
    packed = {s.param for s in stages if s.at == "load"}
    ahead = [a for x in operands.found if x.param in packed for a in ahead_of(x, target, ask)]
    written = prod(levels.extent(s.axis) for s in steps)
    met = [x for x in operands.found if x.param not in copied and _is_met(operands, x)]
    roomy = {x.param: x for x in met if _has_room(operands, x, tile, written)}
    ahead += [a for x in roomy.values() for a in next_lines(x, target, ask)]
    asked = packed | {*roomy}
    hints = memory_hints(kernel, target, ask, partial=bool(nest.k), asked=asked)
    return (*actions, *_registers(nest, levels), *steps, *threads, *stages, *ahead, *hints)


def _is_met(o: Operands, x: Access) -> bool:
    """True of a rows' operand in f32 whose numbers each meet all vectors of a tile, one by one:
    bytes and halves of words take a quarter of the lines, or half of them.
    """
    named = o.row is not None and x.depends(o.row.name) and not x.depends(o.lane.name)
    single = o.kernel.param(x.param).dtype == F32
    return named and single and o.reused and bool(o.reduces) and not x.indirect


def _has_room(o: Operands, x: Access, tile: tuple[int, int], written: int) -> bool:
    """True if a core loads what a step of the tile takes, and asks for the lines behind, in three
    quarters of the time of its multiply-adds: as many loads as those start in a cycle.

    Vectors of 32 bytes leave it in 4 x 3 written out, and nowhere else. Rows that lie side by side
    are in one line; each of the others has one for the steps that are written out.
    """
    rows, vectors = tile
    line = _LINE // _ITEM
    near = o.row is not None and abs(x.stride(o.row.name) or line) * rows <= line
    steps = written if abs(x.stride(o.longest.name) or line) * written <= line else 1
    asked = 1 if near else rows / steps
    return 4 * (rows + vectors + asked) < 3 * rows * vectors


def defaults_of(operands: Operands) -> Defaults:
    """The defaults for the kernel's kind."""
    if not operands.reduces:
        return Copies(operands)
    return Products(operands) if operands.reused else Sums(operands)


def _known(operands: Operands) -> _Known:
    defaults = defaults_of(operands)
    whole = replace(defaults, run=operands.lane)
    return _Known(defaults.tiles(), defaults.folded(), defaults, whole)


def _registers(nest: Nest, levels: Levels) -> list[Action]:
    """The rows and vectors of the register tile, and its lanes."""
    *several, lanes = nest.registers
    return [*levels.each(Upcast, *several), *levels.each(Vectorize, lanes)]
