"""Tiles: lanes along a contiguous shared axis, a register tile of it and one more axis, cache blocks, packing, threads.

for k0:                                    block of the longest reduce axis, partial sums in the output
  for other0, row0, lane0:                 cache blocks, in one of three orders; one of them on threads
    for other1, lane1, row1:               register tiles
      for reduce axes:                     operand with the unit stride innermost, perhaps unrolled
        row2 x lane2 accumulators of lane3 lanes
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tunegrad.ir.kernel import Axis, Kernel
from tunegrad.ir.target import Target

from ..actions import Action, Reorder, Stage, Thread, Unroll, Upcast, Vectorize
from ..choosing import Recorder
from ..staging import MAX_SCRATCH_BYTES
from .analysis import Access, accesses, output_stride
from .hints import memory_hints
from .tiling import Levels, balance, blocks, vector_lanes

__all__ = ["sketch_tiles"]

_ACCESSES = 64
"""Loads and stores of one iteration, at most, of a kernel of several stores."""

_WINDOW = 64
"""Steps of a register tile, at most, whose whole window is unrolled."""

_WAYS = 8
"""Rows of something large that are read side by side, at most: equal places of them may share a set of the cache."""

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


def sketch_tiles(kernel: Kernel, target: Target, ask: Recorder) -> tuple[Action, ...]:
    """Asks for every decision of the tiles sketch and returns its actions."""
    shared = [a for a in kernel.axes if a.extent > 1]
    reduces = [a for s in kernel.reduces for a in s.axes if a.extent > 1]
    found = accesses(kernel, kernel.reduces[0] if kernel.reduces else kernel.stores[0])
    if not shared:
        return ()
    lane = _lane_axis(kernel, shared, found, ask)
    item = kernel.param(kernel.stores[0].param).dtype.itemsize
    width = vector_lanes(lane.extent, target.lanes(max(4, item)))
    row = _row_axis(kernel, shared, lane, found, ask)
    reused = row is not None and any(not x.depends(row.name) for x in found)
    crossed = not reduces and row is not None and any(x.stride(lane.name) not in _NEAR for x in found)
    accessed = len(found) + len(kernel.stores) if len(kernel.stores) > 1 else 1
    crowded = row is not None and any(
        x.depends(row.name) and not x.depends(lane.name) for x in _streamed(target, found)
    )
    mu, nv = _register_tile(target, lane, width, row, (bool(reduces), reused, crossed, crowded, accessed), ask)
    levels = Levels(kernel)
    unit = nv * width
    run = lane if target.lanes(4) <= lane.extent <= unit else None
    columns = not reused and _sums_columns(target, lane, reduces, found, run)
    skinny = reused and _is_skinny(target, lane, found)
    sizes = blocks(lane.extent, unit)
    lane_block = ask.pick("lane.block", sizes, _columns_apart(target, lane, sizes) if columns else 0)
    lanes = levels.split(lane.name, (lane_block, unit, width))
    rows = ["", "", ""]
    if row is not None:
        sizes = blocks(row.extent, mu)
        near = min(range(len(sizes)), key=lambda i: abs(sizes[i] - _CROSSED_BLOCK)) if crossed else 0
        block = ask.pick("row.block", sizes, near)
        rows = levels.split(row.name, (block, mu))
    others = tuple(_split_other(target, a, found, levels, ask) for a in shared if a not in (lane, row))
    k, inner = _split_reduces(kernel, target, reduces, (found, run, columns, skinny), levels, ask)
    nest = _Nest(
        k, others, (rows[0], rows[1]), (lanes[0], lanes[1]), inner, tuple(x for x in (rows[2], lanes[2], lanes[3]) if x)
    )
    order = _order(target, nest, found, (lane, columns, skinny), ask)
    actions: list[Action] = list(levels.actions)
    # Registers run innermost wherever they stand; before the reductions, no step on the way makes partial sums.
    everything = [*order, *nest.registers, *nest.reduces]
    if len(everything) > 1:
        actions.append(Reorder(tuple(everything)))
    threads = _threads(target, nest, order, levels, ask)
    unrolled = _unrolled(nest, levels, mu * nv, reused, ask)
    actions += [Upcast(x) for x in (rows[2], lanes[2]) if x and levels.extent(x) > 1]
    if lanes[3] and levels.extent(lanes[3]) > 1:
        actions.append(Vectorize(lanes[3]))
    actions += unrolled
    stages = _stages(kernel, nest, order, found, (lane, skinny), ask)
    return tuple(actions + threads + stages + memory_hints(kernel, target, ask, partial=bool(nest.k)))


def _lane_axis(kernel: Kernel, shared: list[Axis], found: tuple[Access, ...], ask: Recorder) -> Axis:
    """The axis of the lanes: the one along which most of the traffic is contiguous (constants can be packed)."""
    work = prod(a.extent for s in kernel.reduces for a in s.axes)

    def strided(a: Axis) -> int:
        lookups = [x for x in found if x.role != "const" and x.stride(a.name) not in (0, 1)]
        return work * len(lookups) + (output_stride(kernel, a.name) != 1)

    ranked = sorted(shared, key=lambda a: (strided(a), a.extent < 4, output_stride(kernel, a.name) or 1 << 40))
    return ask.pick("lane", ranked[:3])


def _row_axis(kernel: Kernel, shared: list[Axis], lane: Axis, found: tuple[Access, ...], ask: Recorder) -> Axis | None:
    """The axis of the register tile beside the lanes: one that an operand of the lanes does not depend on."""
    candidates = [a for a in shared if a is not lane]
    if not candidates:
        return None
    reuse = [a for a in candidates if any(x.depends(lane.name) and not x.depends(a.name) for x in found)]
    ranked = sorted(reuse, key=lambda a: output_stride(kernel, a.name) or 1 << 40) or candidates[-1:]
    rest = [a for a in candidates if a not in ranked]
    return ask.pick("row", [*ranked, *rest])


def _register_tile(
    target: Target, lane: Axis, width: int, row: Axis | None, kind: tuple[bool, bool, bool, bool, int], ask: Recorder
) -> tuple[int, int]:
    """(rows, vectors), ranked by the time that a full sweep of both axes takes in units of one vector FMA."""
    vectors = -(-lane.extent // width)
    sizes = [m for m in (*range(1, 17), 20, 24, 28) if row is not None and m <= row.extent] or [1]
    options = [
        (m, n) for m in sizes for n in (1, 2, 3, 4, 6, 8) if n <= vectors and m * n + n + 1 <= target.registers
    ] or [(1, 1)]
    reduces, reused, crossed, crowded, accessed = kind
    if not reduces:
        most = max(1, min(16, _ACCESSES // accessed))  # a point of many loads and stores fills the registers alone
        options = [(m, n) for m, n in options if m in (1, 2, 4, 8) and m * n <= most] or [(1, 1)]
        want = (8, 1) if crossed else (1, 4)  # a transpose reads runs of 8 and turns them in registers
        options.sort(key=lambda t: (abs(t[0] - want[0]) + abs(t[1] - want[1]), t))
        return ask.pick("tile", options)
    if not reused:  # pooling, column sums: more rows in registers save nothing
        options.sort(key=lambda t: (t[0] != 1, abs(t[1] - 4), t[0]))
        return ask.pick("tile", options)
    extent = row.extent if row is not None else 1
    ways = _WAYS if crowded else extent
    options.sort(key=lambda t: (t[0] > ways, round(_sweep_cost(vectors, t[1], t[0], extent), 6), t[0] + t[1]))
    return ask.pick("tile", options)


def _sweep_cost(vectors: int, n: int, m: int, extent: int) -> float:
    """Cycles for all tiles: one FMA a cycle, one load a cycle, and eight FMAs in flight hide the latency."""

    def tile(rows: int, cols: int) -> float:
        return max(rows * cols * 1.0, rows + cols, 8.0)

    rows = [m] * (extent // m) + ([extent % m] if extent % m else [])
    cols = [n] * (vectors // n) + ([vectors % n] if vectors % n else [])
    counts: dict[tuple[int, int], int] = {}
    for r in set(rows):
        for c in set(cols):
            counts[(r, c)] = rows.count(r) * cols.count(c)
    return sum(k * (tile(r, c) + 0.02 * (r + c)) for (r, c), k in counts.items())


def _split_other(
    target: Target, axis: Axis, found: tuple[Access, ...], levels: Levels, ask: Recorder
) -> tuple[str, str]:
    """Blocks a shared axis that is in no register tile; windows of a masked operand want a block of rows staged."""
    reused = any(not x.depends(axis.name) for x in found)
    windowed = reused and any(x.masked and x.depends(axis.name) for x in found)
    divisors = [d for d in range(1, axis.extent + 1) if axis.extent % d == 0 and d <= 64]
    options = [0, *[d for d in divisors if 1 < d < axis.extent]]
    default = 0
    if windowed and len(options) > 1:
        whole = max((x.nbytes for x in found if x.masked), default=0)
        fits = [i for i, d in enumerate(options) if d and whole * (d + 2) // axis.extent <= target.l2_bytes // 2]
        even = [i for i in fits if balance(axis.extent // options[i], target.threads) > 0.99]
        default = (even or fits or [0])[-1]
    names = levels.split(axis.name, (ask.pick(f"{axis.name}.block", options, default),))
    return names[0], names[1]


def _split_reduces(
    kernel: Kernel,
    target: Target,
    reduces: list[Axis],
    reads: tuple[tuple[Access, ...], Axis | None, bool, bool],
    levels: Levels,
    ask: Recorder,
) -> tuple[str, tuple[str, ...]]:
    """(name of the outer block of the longest reduce axis, the loops inside, in order).

    ``reads``: the loads; the axis of the lanes where it fills vectors, and registers hold all of it; whether columns
    are summed; whether few rows meet a large operand.
    """
    if not reduces:
        return "", ()
    found, run, columns, skinny = reads
    longest = max(reduces, key=lambda a: a.extent)
    reused = all(any(not x.depends(a.name) for a in kernel.axes if a.extent > 1) for x in found)
    choices = (512, 256, 128, 64) if reused else (256, 128, 64, 32, 16, 8)
    sizes = [0, *[b for b in choices if b < longest.extent]]
    dtypes_fit = any(kernel.param(s.param).dtype == kernel.reduces[0].dtype for s in kernel.stores)
    total = prod(a.extent for a in reduces)
    streamed = [x for x in found if x.role != "const" and x.nbytes > target.l2_bytes and not _in_order(x, run, longest)]
    default = sizes.index(256) if 256 in sizes and total >= 512 and (skinny or len(streamed) > int(reused)) else 0
    if columns and _ROWS_AT_ONCE in sizes:
        default = sizes.index(_ROWS_AT_ONCE)
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


def _streamed(target: Target, found: tuple[Access, ...]) -> list[Access]:
    """Loads of what a core's own caches do not hold."""
    return [x for x in found if x.role != "const" and x.nbytes > target.l2_bytes]


def _is_skinny(target: Target, lane: Axis, found: tuple[Access, ...]) -> bool:
    """Whether only the lanes' operand is streamed: all rows should meet each part of it before the next one."""
    streamed = _streamed(target, found)
    return bool(streamed) and all(x.depends(lane.name) for x in streamed)


def _sums_columns(target: Target, lane: Axis, reduces: list[Axis], found: tuple[Access, ...], run: Axis | None) -> bool:
    """Whether long columns of something large are summed: memory wants whole rows, a few at once, all lanes of them."""
    large = [x for x in found if x.nbytes > target.l2_bytes]
    return any(x.stride(lane.name) == 1 and not _in_order(x, run, a) for x in large for a in reduces if a.extent > 64)


def _columns_apart(target: Target, lane: Axis, sizes: list[int]) -> int:
    """The block of columns that gives each thread the same share, and sums that the first cache holds."""
    fits = [i for i, n in enumerate(sizes) if n > 0 and 4 * n <= target.l1_bytes // 2]
    even = [i for i in fits if balance(-(-lane.extent // sizes[i]), target.threads) > 0.99]
    return max(even or fits or [0], key=lambda i: sizes[i])


def _in_order(x: Access, run: Axis | None, reduce: Axis) -> bool:
    """Whether the reduction reads one number after the other: each step all of the lanes, and the next ones next."""
    return run is not None and x.stride(run.name) == 1 and x.stride(reduce.name) == run.extent


def _unrolled(nest: _Nest, levels: Levels, tile: int, reused: bool, ask: Recorder) -> list[Action]:
    """The last reduce loop where it is short; all of them where a window is small, so that its edges cost no loop."""
    steps = [x for x in nest.reduces if levels.extent(x) > 1]
    short = [x for x in steps if levels.extent(x) <= 8]
    window = len(steps) > 1 and short == steps and tile * prod(levels.extent(x) for x in steps) <= _WINDOW
    if window and ask.pick("window", [False, True], int(not reused)):
        return [Unroll(x) for x in steps]
    return [Unroll(steps[-1])] if steps and steps[-1] == nest.reduces[-1] and steps[-1] in short else []


def _order(
    target: Target, nest: _Nest, found: tuple[Access, ...], lanes: tuple[Axis, bool, bool], ask: Recorder
) -> list[str]:
    """The serial loops outside the reduction, outermost first.

    ``lanes``: their axis, whether columns are summed, and whether few rows meet a large operand.
    """
    lane, columns, skinny = lanes
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
    weights = max((x.nbytes for x in found if x.depends(lane.name) and x.role == "const"), default=0)
    default = "lanes" if (skinny or weights > target.l2_bytes // 2) and (l1 or l0) else "rows"
    names = list(forms)
    form = ask.pick("order", names, names.index("apart" if columns and "apart" in forms else default))
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


def _stages(
    kernel: Kernel, nest: _Nest, order: list[str], found: tuple[Access, ...], lanes: tuple[Axis, bool], ask: Recorder
) -> list[Action]:
    """Packing of the operands: constants at load, the lane operand where it is strided, padded windows as a box."""
    actions: list[Action] = []
    seen: set[str] = set()
    counts = {x.param: sum(1 for y in found if y.param == x.param) for x in found}
    if not kernel.reduces:
        return []
    for x in found:
        if x.param in seen or counts[x.param] > 1 or not x.strides:
            continue
        seen.add(x.param)
        places = _places(x, order, lanes[0])
        default = _default_place(kernel, x, nest, lanes, places)
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


def _default_place(kernel: Kernel, x: Access, nest: _Nest, lanes: tuple[Axis, bool], places: list[str]) -> int:
    lane, skinny = lanes
    reused = any(not x.depends(a.name) for a in kernel.axes if a.extent > 1)
    if x.role == "const":
        return 1 if x.depends(lane.name) and any(x.depends(a.name) for s in kernel.reduces for a in s.axes) else 0
    if x.masked:  # branching around the conditions costs less than copying the window with its padding
        return 0
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
