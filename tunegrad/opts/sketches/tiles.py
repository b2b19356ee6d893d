"""Tiles: lanes along a contiguous shared axis, a register tile of it and one more axis, cache blocks, packing, threads.

for k0:                                    block of the longest reduce axis, partial sums in the output
  for other0, row0, lane0:                 cache blocks, in one of three orders; one of them on threads
    for other1, lane1, row1:               register tiles
      for reduce axes:                     operand with the unit stride innermost, perhaps unrolled
        row2 x lane2 accumulators of lane3 lanes
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from tunegrad.ir.kernel import Axis, Kernel
from tunegrad.ir.target import Target

from ..actions import Action, Reorder, Stage, Thread, Unroll, Upcast, Vectorize
from ..choosing import Recorder
from ..staging import MAX_SCRATCH_BYTES
from .analysis import Access, accesses, once, output_stride
from .hints import memory_hints
from .tiling import Levels, balance, blocks, vector_lanes

__all__ = ["sketch_tiles"]

_ACCESSES = 64
"""Loads and stores of one iteration, at most, of a kernel of several stores."""

_WINDOW = 64
"""Steps of a register tile, at most, whose whole window is unrolled."""

_TAPS = 4
"""Steps of a window that are written out, at most: each holds the loops inside once more."""

_WAYS = 8
"""Rows of something large that are read side by side, at most: equal places of them may share a set of the cache."""

_K_BLOCK = 256
"""Steps of a product whose operands are met at once."""

_L2_BYTES_PER_CYCLE = 20
"""What a core reads of its second cache besides computing: 26 alone, measured on a core with two FMAs a cycle."""

_LARGE_L2 = 2 << 20
"""A core's second cache that holds panels of twice as many steps: partial sums go through memory half as often."""

_ROWS_AT_ONCE = 8
"""Rows that a sum of columns adds before it moves on: as many streams as a core's prefetcher follows."""

_NEAR = range(-1, 5)
"""Elements from one lane to the next that whole vectors and shuffles read in order; further apart is a transpose."""

_CROSSED_BLOCK = 256
"""Rows that a transpose finishes before it moves on: their lines stay in the first cache meanwhile."""


@dataclass(frozen=True, slots=True)
class _Nest:
    """Loop names by role; "" where there is none."""

    k: str
    others: tuple[tuple[str, str], ...]
    rows: tuple[str, str]
    lanes: tuple[str, str]
    reduces: tuple[str, ...]
    registers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the decisions are made by. ``lane`` and ``row`` are the axes of the register tile, ``width`` its lanes.

    ``strip``   the axis that goes on where the one of the lanes ends, after one vector: blocks of channels
    ``run``     the axis of the lanes where it fills vectors, and registers hold all of it
    ``reused``  an operand is read again for every row: a product
    ``crossed`` a transpose, or another copy whose lanes are far apart in what it reads
    ``crowded`` the rows of something large are read side by side
    ``columns`` long columns of something large are summed
    ``skinny``  few rows meet a large operand of the lanes
    ``taps``    short reduce axes that decide, with the row, what of a window is padding
    """

    kernel: Kernel
    target: Target
    found: tuple[Access, ...]
    reduces: tuple[Axis, ...]
    lane: Axis
    width: int
    row: Axis | None
    strip: Axis | None = None
    run: Axis | None = None
    reused: bool = False
    crossed: bool = False
    crowded: bool = False
    columns: bool = False
    skinny: bool = False
    taps: tuple[str, ...] = ()

    @property
    def streamed(self) -> list[Access]:
        """Loads of what a core's own caches do not hold."""
        return [x for x in self.found if x.role != "const" and x.nbytes > self.target.l2_bytes]

    @property
    def vectors(self) -> int:
        """Vectors from one end of the lanes to the other."""
        return -(-self.lane.extent // self.width) * (1 if self.strip is None else self.strip.extent)

    @property
    def longest(self) -> Axis:
        """The reduce axis that is split into blocks."""
        return max(self.reduces, key=lambda a: a.extent)


def sketch_tiles(kernel: Kernel, target: Target, ask: Recorder) -> tuple[Action, ...]:
    """Asks for every decision of the tiles sketch and returns its actions."""
    shared = [a for a in kernel.axes if a.extent > 1]
    if not shared:
        return ()
    facts = _facts(kernel, target, shared, ask)
    lane, row, width = facts.lane, facts.row, facts.width
    mu, nv = _register_tile(facts, ask)
    levels = Levels(kernel)
    unit = nv * width
    facts = _with_run(facts, lane if target.lanes(4) <= lane.extent <= unit else None)
    if facts.strip is None:
        sizes = blocks(lane.extent, unit)
        lane_block = ask.pick("lane.block", sizes, _columns_apart(facts, sizes) if facts.columns else 0)
        lanes = levels.split(lane.name, (lane_block, unit, width))
    else:
        sizes = blocks(facts.strip.extent, nv)
        lanes = [*levels.split(facts.strip.name, (ask.pick("lane.block", sizes, 0), nv)), lane.name]
    rows = ["", "", ""]
    if row is not None:
        sizes = blocks(row.extent, mu)
        rows = levels.split(row.name, (ask.pick("row.block", sizes, _row_block(facts, sizes)), mu))
    others = tuple(_split_other(facts, a, levels, ask) for a in shared if a not in (lane, row, facts.strip))
    k, inner = _split_reduces(facts, levels, ask)
    nest = _Nest(
        k, others, (rows[0], rows[1]), (lanes[0], lanes[1]), inner, tuple(x for x in (rows[2], lanes[2], lanes[3]) if x)
    )
    order = _order(facts, nest, ask)
    actions: list[Action] = list(levels.actions)
    # Registers run innermost wherever they stand; before the reductions, no step on the way makes partial sums.
    everything = [*order, *nest.registers, *nest.reduces]
    if len(everything) > 1:
        actions.append(Reorder(tuple(everything)))
    threads = _threads(target, nest, order, levels, ask)
    stages = _stages(facts, nest, order, ask)
    if any(x.masked and x.param in {s.param for s in stages} for x in facts.found):
        facts = replace(facts, taps=())  # a copy holds its padding
    unrolled = _unrolled(facts, nest, levels, mu * nv, ask)
    actions += [Upcast(x) for x in (rows[2], lanes[2]) if x and levels.extent(x) > 1]
    if lanes[3] and levels.extent(lanes[3]) > 1:
        actions.append(Vectorize(lanes[3]))
    actions += unrolled
    return tuple(actions + threads + stages + memory_hints(kernel, target, ask, partial=bool(nest.k)))


def _facts(kernel: Kernel, target: Target, shared: list[Axis], ask: Recorder) -> _Facts:
    """Picks the axes of the register tile and looks at how the operands lie to them."""
    found = accesses(kernel, kernel.reduces[0] if kernel.reduces else kernel.stores[0])
    lane = ask.pick("lane", once(kernel, "lanes", lambda: _lane_axes(kernel, shared, found)))
    row: Axis | None = None
    if len(shared) > 1:
        row = ask.pick("row", once(kernel, ("rows", lane.name), lambda: _row_axes(kernel, shared, lane, found)))
    key = "facts", target, lane.name, None if row is None else row.name
    return once(kernel, key, lambda: _facts_of(kernel, target, shared, found, lane, row))


def _facts_of(
    kernel: Kernel, target: Target, shared: list[Axis], found: tuple[Access, ...], lane: Axis, row: Axis | None
) -> _Facts:
    reduces = tuple(a for s in kernel.reduces for a in s.axes if a.extent > 1)
    item = kernel.param(kernel.stores[0].param).dtype.itemsize
    width = vector_lanes(lane.extent, target.lanes(max(4, item)))
    facts = _Facts(kernel, target, found, reduces, lane, width, row)
    if row is None:
        return facts
    return replace(
        facts,
        strip=_strip(kernel, shared, facts),
        reused=any(not x.depends(row.name) for x in found),
        crossed=not reduces and any(x.stride(lane.name) not in _NEAR for x in found),
        crowded=any(x.depends(row.name) and not x.depends(lane.name) for x in facts.streamed),
        taps=_taps(row, reduces, found),
    )


def _strip(kernel: Kernel, shared: list[Axis], facts: _Facts) -> Axis | None:
    """An axis that only the weights' load depends on, as on the lanes', of which there is just one vector."""
    if facts.lane.extent != facts.width or facts.width < facts.target.lanes(4):
        return None

    def goes_on(a: Axis) -> bool:
        both = [x for x in facts.found if x.depends(a.name) or x.depends(facts.lane.name)]
        return bool(both) and all(x.role == "const" and x.depends(a.name) and x.depends(facts.lane.name) for x in both)

    found = [a for a in shared if a not in (facts.lane, facts.row) and goes_on(a)]
    return found[0] if found and kernel.reduces else None


def _with_run(facts: _Facts, run: Axis | None) -> _Facts:
    """The facts that depend on how much of the lanes' axis a register tile holds."""
    key = "run", facts.target, facts.lane.name, None if facts.row is None else facts.row.name, run is None
    return once(facts.kernel, key, lambda: _facts_of_run(facts, run))


def _facts_of_run(facts: _Facts, run: Axis | None) -> _Facts:
    facts = replace(facts, run=run)
    streamed = facts.streamed
    return replace(
        facts,
        columns=not facts.reused and _sums_columns(facts),
        skinny=facts.reused and bool(streamed) and all(x.depends(facts.lane.name) for x in streamed),
    )


def _lane_axes(kernel: Kernel, shared: list[Axis], found: tuple[Access, ...]) -> list[Axis]:
    """Axes for the lanes, first the one along which most of the traffic is contiguous (constants can be packed)."""
    work = prod(a.extent for s in kernel.reduces for a in s.axes)

    def strided(a: Axis) -> int:
        lookups = [x for x in found if x.role != "const" and x.stride(a.name) not in (0, 1)]
        return work * len(lookups) + (output_stride(kernel, a.name) != 1)

    return sorted(shared, key=lambda a: (strided(a), a.extent < 4, output_stride(kernel, a.name) or 1 << 40))[:3]


def _row_axes(kernel: Kernel, shared: list[Axis], lane: Axis, found: tuple[Access, ...]) -> list[Axis]:
    """Axes for the register tile beside the lanes, first those that an operand of the lanes does not depend on."""
    candidates = [a for a in shared if a is not lane]
    reuse = [a for a in candidates if any(x.depends(lane.name) and not x.depends(a.name) for x in found)]
    ranked = sorted(reuse, key=lambda a: output_stride(kernel, a.name) or 1 << 40) or candidates[-1:]
    rest = [a for a in candidates if a not in ranked]
    return [*ranked, *rest]


def _register_tile(facts: _Facts, ask: Recorder) -> tuple[int, int]:
    """(rows, vectors) of the register tile."""
    key = "tiles", facts.target, facts.lane.name, None if facts.row is None else facts.row.name
    return ask.pick("tile", once(facts.kernel, key, lambda: _register_tiles(facts)))


def _register_tiles(facts: _Facts) -> Sequence[tuple[int, int]]:
    """(rows, vectors), ranked by the time that a full sweep of both axes takes in units of one vector FMA."""
    target, row = facts.target, facts.row
    vectors = facts.vectors
    rows = 0 if row is None else row.extent
    if not facts.reduces:
        stores = len(facts.kernel.stores)
        accessed = len(facts.found) + stores if stores > 1 else 1
        most = max(1, min(16, _ACCESSES // accessed))  # a point of many loads and stores fills the registers alone
        tiles = _tiles(rows, vectors, target.registers)
        options = [(m, n) for m, n in tiles if m in (1, 2, 4, 8) and m * n <= most] or [(1, 1)]
        want = (8, 1) if facts.crossed else (1, 4)  # a transpose reads runs of 8 and turns them in registers
        return sorted(options, key=lambda t: (abs(t[0] - want[0]) + abs(t[1] - want[1]), t))
    if not facts.reused:  # pooling, column sums: more rows in registers save nothing
        return sorted(_tiles(rows, vectors, target.registers), key=lambda t: (t[0] != 1, abs(t[1] - 4), t[0]))
    ways = _WAYS if facts.crowded else rows
    far = target.vector_bytes * target.fmas_per_cycle / _L2_BYTES_PER_CYCLE
    return _ranked_tiles(rows, vectors, target.registers, ways, _near_vectors(facts), far)


def _tiles(rows: int, vectors: int, registers: int) -> list[tuple[int, int]]:
    """(rows, vectors) whose accumulators, vectors and one number fit the registers; ``rows`` is 0 without a row."""
    sizes = [m for m in (*range(1, 17), 20, 24, 28) if m <= rows] or [1]
    return [(m, n) for m in sizes for n in (1, 2, 3, 4, 6, 8) if n <= vectors and m * n + n + 1 <= registers] or [
        (1, 1)
    ]


@lru_cache(maxsize=512)
def _ranked_tiles(
    rows: int, vectors: int, registers: int, ways: int, near: int, far: float
) -> tuple[tuple[int, int], ...]:
    """Register tiles of a product by ``_sweep_cost``, those of at most ``ways`` rows first."""

    def rank(tile: tuple[int, int]) -> tuple[bool, float, int]:
        return tile[0] > ways, round(_sweep_cost(tile, max(1, rows), vectors, near, far), 6), sum(tile)

    return tuple(sorted(_tiles(rows, vectors, registers), key=rank))


def _near_vectors(facts: _Facts) -> int:
    """Vectors across a tile whose panel of the lanes' operand the first cache holds.

    As many as there are where the second cache keeps up, with one FMA a cycle; and where taps are masked: a window's
    rows read the same inputs again, and many rows in a tile would put padding into most tiles.
    """
    target = facts.target
    if target.fmas_per_cycle == 1 or any(x.masked for x in facts.found):
        return target.registers
    steps = _k_block(facts) or prod(a.extent for a in facts.reduces)
    return target.l1_bytes // (4 * facts.width * steps)


def _sweep_cost(tile: tuple[int, int], extent: int, vectors: int, near: int, far: float) -> float:
    """Time for all tiles in FMAs: a load takes as long as one, and eight in flight hide the latency.

    A vector of a panel of more than ``near`` ones comes from the second cache and takes as long as ``far`` FMAs.
    """
    m, n = tile

    def cost(rows: int, cols: int) -> float:
        return max(rows * cols * 1.0, rows + cols, 8.0, cols * far if n > near else 0.0)

    rows = [m] * (extent // m) + ([extent % m] if extent % m else [])
    cols = [n] * (vectors // n) + ([vectors % n] if vectors % n else [])
    counts: dict[tuple[int, int], int] = {}
    for r in set(rows):
        for c in set(cols):
            counts[(r, c)] = rows.count(r) * cols.count(c)
    return sum(k * (cost(r, c) + 0.02 * (r + c)) for (r, c), k in counts.items())


def _row_block(facts: _Facts, sizes: list[int]) -> int:
    """The block of rows: of a transpose, whose lines stay in the first cache; of a large product, in the second."""
    if facts.crossed:
        want = _CROSSED_BLOCK
    elif (steps := _k_block(facts)) and _far_panels(facts):
        want = facts.target.l2_bytes // (3 * 4 * steps)
    else:
        return 0
    return min(range(len(sizes)), key=lambda i: abs(sizes[i] - want))


def _k_block(facts: _Facts) -> int:
    """The block of a product's longest reduce axis, 0 for none: large operands are met in panels that caches hold."""
    if not facts.reduces or prod(a.extent for a in facts.reduces) < 2 * _K_BLOCK:
        return 0
    far = [x for x in facts.streamed if not _in_order(x, facts.run, facts.longest)]
    if not facts.skinny and len(far) <= int(facts.reused):
        return 0
    return 2 * _K_BLOCK if _far_panels(facts) and facts.target.l2_bytes >= _LARGE_L2 else _K_BLOCK


def _far_panels(facts: _Facts) -> bool:
    """Whether a panel of the lanes' operand does not stay in a core's own caches while all rows meet it.

    Then a block of rows stays there instead, and the panel is read again for each block.
    """
    panel = 4 * _K_BLOCK * facts.lane.extent
    met = any(x.depends(facts.lane.name) for x in facts.streamed) and any(
        x.depends(facts.row.name) for x in facts.streamed if facts.row is not None
    )
    hungry = facts.target.fmas_per_cycle > 1  # one FMA a cycle asks for no more than the last-level cache gives
    return hungry and facts.reused and met and not facts.skinny and panel >= facts.target.l2_bytes


def _split_other(facts: _Facts, axis: Axis, levels: Levels, ask: Recorder) -> tuple[str, str]:
    """Blocks a shared axis that is in no register tile; windows of a masked operand want a block of rows staged."""
    found, target = facts.found, facts.target
    reused = any(not x.depends(axis.name) for x in found)
    windowed = reused and any(x.masked and x.depends(axis.name) for x in found)
    options = [0, *[d for d in range(2, min(axis.extent, 65)) if axis.extent % d == 0]]
    default = 0
    if windowed and len(options) > 1:
        whole = max((x.nbytes for x in found if x.masked), default=0)
        fits = [i for i, d in enumerate(options) if d and whole * (d + 2) // axis.extent <= target.l2_bytes // 2]
        even = [i for i in fits if balance(axis.extent // options[i], target.threads) > 0.99]
        default = (even or fits or [0])[-1]
    names = levels.split(axis.name, (ask.pick(f"{axis.name}.block", options, default),))
    return names[0], names[1]


def _split_reduces(facts: _Facts, levels: Levels, ask: Recorder) -> tuple[str, tuple[str, ...]]:
    """(name of the outer block of the longest reduce axis, the loops inside, in order)."""
    kernel, reduces, found = facts.kernel, facts.reduces, facts.found
    if not reduces:
        return "", ()
    longest = facts.longest
    reused = all(any(not x.depends(a.name) for a in kernel.axes if a.extent > 1) for x in found)
    choices = (512, 256, 128, 64) if reused else (256, 128, 64, 32, 16, 8)
    sizes = [0, *[b for b in choices if b < longest.extent]]
    dtypes_fit = any(kernel.param(s.param).dtype == kernel.reduces[0].dtype for s in kernel.stores)
    want = _ROWS_AT_ONCE if facts.columns and _ROWS_AT_ONCE in sizes else _k_block(facts)
    default = sizes.index(want) if want in sizes else 0
    block = ask.pick("k.block", sizes if dtypes_fit else [0], default if dtypes_fit else 0)

    def order_key(a: Axis) -> tuple[int, int]:
        steps = [x.stride(a.name) for x in found if x.role != "const" and x.depends(a.name)]
        return (-min((s if s is not None else 1 << 40 for s in steps), default=1 << 40), -a.extent)

    ranked = sorted(reduces, key=order_key)
    rotations = [ranked[i:] + ranked[:i] for i in range(len(ranked))]
    chosen = ask.pick("k.order", [tuple(r) for r in rotations])
    outer, inner = "", []
    for a in chosen:
        unroll = (
            ask.pick(f"{a.name}.unroll", [1, 2, 4, 8] if a.extent >= 8 else [1, a.extent], 0) if a is chosen[-1] else 1
        )
        sizes_here = (block if a is longest else 0, unroll)
        names = levels.split(a.name, sizes_here)
        if a is longest and block:
            outer = names[0]
            inner += [n for n in names[1:] if n]
        else:
            inner += [n for n in names if n]
    return outer, tuple(inner)


def _sums_columns(facts: _Facts) -> bool:
    """Whether long columns of something large are summed: memory wants whole rows, a few at once, all lanes of them."""
    large = [x for x in facts.found if x.nbytes > facts.target.l2_bytes and x.stride(facts.lane.name) == 1]
    return any(not _in_order(x, facts.run, a) for x in large for a in facts.reduces if a.extent > 64)


def _columns_apart(facts: _Facts, sizes: list[int]) -> int:
    """The block of columns that gives each thread the same share, and sums that the first cache holds."""
    threads = facts.target.threads
    fits = [i for i, n in enumerate(sizes) if n > 0 and 4 * n <= facts.target.l1_bytes // 2]
    even = [i for i in fits if balance(-(-facts.lane.extent // sizes[i]), threads) > 0.99]
    return max(even or fits or [0], key=lambda i: sizes[i])


def _in_order(x: Access, run: Axis | None, reduce: Axis) -> bool:
    """Whether the reduction reads one number after the other: each step all of the lanes, and the next ones next."""
    return run is not None and x.stride(run.name) == 1 and x.stride(reduce.name) == run.extent


def _taps(row: Axis, reduces: tuple[Axis, ...], found: tuple[Access, ...]) -> tuple[str, ...]:
    """Reduce axes of a few steps that move the rows' window of a padded operand, and so decide what is padding."""
    padded = [x for x in found if x.masked and x.stride(row.name)]
    return tuple(
        a.name for a in reduces if a.extent <= _TAPS and any(x.stride(a.name) == x.stride(row.name) for x in padded)
    )


def _unrolled(facts: _Facts, nest: _Nest, levels: Levels, tile: int, ask: Recorder) -> list[Action]:
    """The last reduce loop where it is short; all of them where a window is small, so that its edges cost no loop.

    Taps are written out: what is padding for one of them is then decided before the loops inside, not for each load.
    """
    steps = [x for x in nest.reduces if levels.extent(x) > 1]
    short = [x for x in steps if levels.extent(x) <= 8]
    window = len(steps) > 1 and short == steps and tile * prod(levels.extent(x) for x in steps) <= _WINDOW
    if window and ask.pick("window", [False, True], int(not facts.reused)):
        return [Unroll(x) for x in steps]
    taps = [x for x in steps if facts.reused and x in facts.taps and x != steps[-1]]
    if bool(taps) and ask.pick("taps", [True, False], int(facts.target.fmas_per_cycle == 1)):
        return [Unroll(x) for x in taps]
    return [Unroll(steps[-1])] if steps and steps[-1] == nest.reduces[-1] and steps[-1] in short else []


def _order(facts: _Facts, nest: _Nest, ask: Recorder) -> list[str]:
    """The serial loops outside the reduction, outermost first."""
    target, lane = facts.target, facts.lane.name
    o0, o1 = [a for a, _ in nest.others], [b for _, b in nest.others]
    r0, r1 = nest.rows
    l0, l1 = nest.lanes
    forms = {
        "rows": [nest.k, *o0, r0, l0, l1, *o1, r1],
        "lanes": [nest.k, l0, l1, *o0, r0, *o1, r1],
        "inner": [nest.k, *o0, r0, l0, *o1, r1, l1],
    }
    if nest.k and (l0 or any(o0) or r0):
        forms["apart"] = [*o0, r0, l0, nest.k, l1, *o1, r1]
    weights = max((x.nbytes for x in facts.found if x.depends(lane) and x.role == "const"), default=0)
    default = "lanes" if (facts.skinny or weights > target.l2_bytes // 2) and (l1 or l0) else "rows"
    names = list(forms)
    form = ask.pick("order", names, names.index("apart" if facts.columns and "apart" in forms else default))
    return [x for x in forms[form] if x]


def _threads(target: Target, nest: _Nest, order: list[str], levels: Levels, ask: Recorder) -> list[Action]:
    n = target.threads
    if n < 2:
        return []
    loops = [x for x in order if x != nest.k and levels.extent(x) > 1]
    if not loops:
        return []
    scores = [balance(levels.extent(x), n) for x in loops]
    even = [i for i, s in enumerate(scores) if s > 0.93]
    default = even[0] if even else max(range(len(loops)), key=lambda i: scores[i])
    if scores[default] < 0.7 and len(loops) > 1:
        default = max(range(len(loops)), key=lambda i: scores[i])
    chosen = ask.pick("thread", [*loops[:4], "none"], default)
    return [] if chosen == "none" else [Thread(chosen, min(n, levels.extent(chosen)))]


def _stages(facts: _Facts, nest: _Nest, order: list[str], ask: Recorder) -> list[Stage]:
    """Packing of the operands: constants at load, the lane operand where it is strided, padded windows as a box."""
    actions: list[Stage] = []
    seen: set[str] = set()
    found = facts.found
    counts = Counter(x.param for x in found)
    if not facts.kernel.reduces:
        return []
    for x in found:
        if x.param in seen or counts[x.param] > 1 or not x.strides:
            continue
        seen.add(x.param)
        places = _places(x, order, facts.lane)
        default = _default_place(facts, x, nest, places)
        at = ask.pick(f"stage.{x.param}", places, default)
        if at != "none":
            where, form = at.split(":")
            actions.append(Stage(x.param, where, _layout(x, nest, order, where, form)))
    return actions


def _places(x: Access, order: list[str], lane: Axis) -> list[str]:
    if x.role == "const":
        return ["none", "load:loops"]
    form = "box" if x.masked else "loops"
    outside = [""] if 2 * x.nbytes <= MAX_SCRATCH_BYTES else []  # tails pad a copy
    places = ["none", *(f"{at}:{form}" for at in (*outside, *order[:-1]))]
    if not x.masked and not x.depends(lane.name):
        places += [f"{at}:rows" for at in (*outside, *order[:-1])]
    return places


def _default_place(facts: _Facts, x: Access, nest: _Nest, places: list[str]) -> int:
    lane, skinny = facts.lane, facts.skinny
    reused = any(not x.depends(a.name) for a in facts.kernel.axes if a.extent > 1)
    if x.role == "const":
        return 1 if x.depends(lane.name) and any(x.depends(a.name) for a in facts.reduces) else 0
    if x.masked:
        # Branching around the conditions costs less than copying the image with its padding; for a core with two FMAs
        # a cycle, only where the taps that decide are written out.
        copied = facts.target.fmas_per_cycle > 1 and facts.reused and not facts.taps and facts.longest.extent > _WINDOW
        return places.index(":box") if copied and ":box" in places else 0
    if x.depends(lane.name) and reused and (x.stride(lane.name) != 1 or nest.k):
        if skinny and x.stride(lane.name) == 1:
            return 0
        batch = [a for a, _ in nest.others if a and x.depends(a.rstrip("0123456789"))]
        place = f"{nest.k or (batch[-1] if batch else '')}:loops"
        tile = f"{nest.lanes[1] or nest.lanes[0]}:loops"
        return next((places.index(p) for p in ((tile if skinny else place), place, ":loops") if p in places), 0)
    if nest.k and not x.depends(lane.name) and nest.rows[0] and nest.rows[1]:
        place = f"{nest.rows[0]}:rows"
        return places.index(place) if place in places else 0
    return 0


def _layout(x: Access, nest: _Nest, order: list[str], at: str, form: str) -> tuple[str, ...]:
    """Loops that index the copy; () leaves the order to the action's default, or keeps the parameter's own box."""
    if form in ("box", "loops"):
        return () if form == "box" else _inside(x, nest, order, at, nest.reduces)
    return _inside(x, nest, order, at, ())


def _inside(x: Access, nest: _Nest, order: list[str], at: str, first: tuple[str, ...]) -> tuple[str, ...]:
    begin = 0 if at in ("", "load") else order.index(at) + 1
    loops = (
        [*order[begin:], *nest.reduces, *nest.registers] if first else [*order[begin:], *nest.registers, *nest.reduces]
    )
    if at == "load" and nest.k and nest.k not in loops:
        loops = [nest.k, *loops]
    return tuple(n for n in loops if x.depends(_axis(n)))


def _axis(loop: str) -> str:
    return loop.rstrip("0123456789")
