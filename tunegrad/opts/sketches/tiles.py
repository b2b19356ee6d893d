"""Tiles: vectors along a contiguous shared axis, a register tile of it and one more axis, blocks.

for k0:                            block of the longest reduce axis, partial sums in the output
  for other0, row0, lane0:         cache blocks, in one of several orders; one of them on threads
    for other1, lane1, row1:       register tiles
      for reduce axes:             operand with the unit stride innermost, perhaps unrolled
        row2 x lane2 accumulators of lane3 lanes

The defaults of its decisions follow from the kind of kernel (``tile_defaults``):

    Copies     no reduction: elementwise kernels, transposes
    Sums       operands are read once: pooling, sums of columns
    Products   an operand is read again for every row: GEMM, convolution
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tunegrad.ir.kernel import Axis, Kernel
from tunegrad.ir.target import Target

from ..actions import Action, Reorder, Stage, Thread, Upcast, Vectorize
from ..choosing import Recorder
from ..staging import MAX_SCRATCH_BYTES
from .analysis import Access, Levels, balance, blocks, can_be_packed, memory_hints, once
from .tile_defaults import (
    Copies,
    Defaults,
    Nest,
    Operands,
    Products,
    Sums,
    axes_of,
    axis_of,
    operands_of,
    unrolled,
)

__all__ = [
    "defaults_of",
    "order_of",
    "sketch_tiles",
    "split",
    "stages_of",
    "threads_of",
]

_REUSED_STEPS, _STEPS = (512, 256, 128, 64), (256, 128, 64, 32, 16, 8)
"""Blocks of a reduction: of operands that are all read again, and of others."""

_UNROLLS = (1, 2, 4, 8)

_OTHER_BLOCK = 64
"""Points of a block of an axis that is in no register tile, at most."""


def split(defaults: Defaults, tile: tuple[int, int], levels: Levels, ask: Recorder) -> Nest:
    """Asks for every block, splits the axes and says what the loops are for."""
    o = defaults.operands
    lanes = _split_lanes(defaults, tile[1], levels, ask)
    rows = ["", "", ""]
    if o.row is not None:
        sizes = blocks(o.row.extent, tile[0])
        block = ask.pick("row.block", sizes, defaults.row_block(sizes))
        rows = levels.split(o.row.name, (block, tile[0]))
    rest = [a for a in o.kernel.axes if a.extent > 1 and a not in (o.lane, o.row, o.strip)]
    others = tuple(_split_other(o, a, levels, ask) for a in rest)
    k, inner = _split_reduces(defaults, levels, ask)
    registers = rows[2], lanes[2], lanes[3]
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


def _split_other(o: Operands, axis: Axis, levels: Levels, ask: Recorder) -> tuple[str, str]:
    """Blocks a shared axis that is in no register tile."""
    options = [0, *[d for d in range(2, min(axis.extent, _OTHER_BLOCK + 1)) if not axis.extent % d]]
    block = ask.pick(f"{axis.name}.block", options, _window_block(o, axis, options))
    names = levels.split(axis.name, (block,))
    return names[0], names[1]


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
    defaults: Defaults, levels: Levels, ask: Recorder
) -> tuple[str, tuple[str, ...]]:
    """(name of the outer block of the longest reduce axis, the loops inside, in order)."""
    o = defaults.operands
    if not o.reduces:
        return "", ()
    longest = o.longest
    sizes = _reduce_blocks(o)
    block = ask.pick("k.block", sizes, defaults.reduce_block(sizes))
    ranked = sorted(o.reduces, key=lambda a: (-_least_step(o, a), -a.extent))
    rotations = [tuple(ranked[i:] + ranked[:i]) for i in range(len(ranked))]
    chosen = ask.pick("k.order", rotations)
    outer, inner = "", list[str]()
    for a in chosen:
        unroll = 1
        if a is chosen[-1]:
            steps = _UNROLLS if a.extent >= _UNROLLS[-1] else (1, a.extent)
            unroll = ask.pick(f"{a.name}.unroll", steps, 0)
        names = levels.split(a.name, (block if a is longest else 0, unroll))
        if a is longest and block:
            outer, names = names[0], names[1:]
        inner += [n for n in names if n]
    return outer, tuple(inner)


def _reduce_blocks(o: Operands) -> list[int]:
    """Blocks of the longest reduce axis, none first: partial sums must fit the output's dtype."""
    kernel, shared = o.kernel, [a.name for a in o.kernel.axes if a.extent > 1]
    dtype = kernel.reduces[0].dtype
    if all(kernel.param(s.param).dtype != dtype for s in kernel.stores):
        return [0]
    reused = all(any(not x.depends(n) for n in shared) for x in o.found)
    choices = _REUSED_STEPS if reused else _STEPS
    return [0, *(b for b in choices if b < o.longest.extent)]


def _least_step(o: Operands, a: Axis) -> int:
    """Elements from one step of the axis to the next, of what is no constant, at the least."""
    found = [x.stride(a.name) for x in o.found if x.role != "const" and x.depends(a.name)]
    return min((1 << 40 if s is None else s for s in found), default=1 << 40)


_EVEN = 0.93
"""Least evenness with which a loop's iterations split over the threads, for it to be taken."""


def order_of(defaults: Defaults, nest: Nest, ask: Recorder) -> list[str]:
    """Asks for the order; the serial loops outside the reduction, outermost first."""
    o0, o1 = [a for a, _ in nest.others], [b for _, b in nest.others]
    (r0, r1), (l0, l1), k = nest.rows, nest.lanes, nest.k
    forms = {
        "rows": [k, *o0, r0, l0, l1, *o1, r1],
        "lanes": [k, l0, l1, *o0, r0, *o1, r1],
        "inner": [k, *o0, r0, l0, *o1, r1, l1],
    }
    if k and (l0 or any(o0) or r0):
        forms["apart"] = [*o0, r0, l0, k, l1, *o1, r1]
    names = list(forms)
    best = defaults.order(names)
    if best == "lanes" and not (l0 or l1):
        best = "rows"
    return [x for x in forms[ask.pick("order", names, names.index(best))] if x]


def threads_of(
    defaults: Defaults,
    nest: Nest,
    order: list[str],
    levels: Levels,
    ask: Recorder,
) -> list[Thread]:
    """Asks for the loop on threads: the outermost one that splits evenly, else the most even."""
    n = defaults.operands.target.threads
    loops = [x for x in order if x != nest.k and levels.extent(x) > 1]
    if n < 2 or not loops:
        return []
    scores = [balance(levels.extent(x), n) for x in loops]
    even = [i for i, s in enumerate(scores) if s > _EVEN]
    default = even[0] if even else scores.index(max(scores))
    chosen = ask.pick("thread", [*loops[:4], "none"], default)
    return [] if chosen == "none" else [Thread(chosen, min(n, levels.extent(chosen)))]


def stages_of(defaults: Defaults, nest: Nest, order: list[str], ask: Recorder) -> list[Stage]:
    """Asks for a place for each operand that one load reads; the copies.

    Constants are packed when a model is loaded, the operand of the lanes where it is strided,
    images with their padding as a box.
    """
    o = defaults.operands
    if not o.kernel.reduces:
        return []
    actions: list[Stage] = []
    counts = Counter(x.param for x in o.found)
    for x in o.found:
        if counts[x.param] > 1 or x.indirect or not x.strides:
            continue
        places = _places(o, x, order)
        at = ask.pick(f"stage.{x.param}", places, _default(defaults, x, nest, places))
        if at != "none":
            where, form = at.split(":")
            actions.append(Stage(x.param, where, _layout(x, nest, order, where, form)))
    return actions


def _places(o: Operands, x: Access, order: list[str]) -> list[str]:
    """Places where a copy may stand, with its form: by all its loops, by rows, or as a box."""
    if x.role == "const":
        return ["none", "load:loops"] if can_be_packed(o.kernel, o.reduces, x) else ["none"]
    form = "box" if x.masked and x.boxed else "loops"
    outside = [""] if 2 * x.nbytes <= MAX_SCRATCH_BYTES else []  # tails pad a copy
    found = ["none", *(f"{at}:{form}" for at in (*outside, *order[:-1]))]
    if not x.masked and not x.depends(o.lane.name):
        found += [f"{at}:rows" for at in (*outside, *order[:-1])]
    return found


def _default(defaults: Defaults, x: Access, nest: Nest, places: list[str]) -> int:
    """The place that is best for an operand; 0 is none."""
    o = defaults.operands
    of_lanes = x.depends(o.lane.name)
    if x.role == "const":
        return int(len(places) > 1 and of_lanes and any(x.depends(a.name) for a in o.reduces))
    if x.masked:
        return places.index(":box") if defaults.pads and ":box" in places else 0
    wanted: list[str] = []
    if of_lanes and _again(o, x) and (x.stride(o.lane.name) != 1 or nest.k):
        wanted = _panel_places(o, x, nest)
    elif nest.k and not of_lanes and all(nest.rows):
        wanted = [f"{nest.rows[0]}:rows"]
    return next((places.index(p) for p in wanted if p in places), 0)


def _panel_places(o: Operands, x: Access, nest: Nest) -> list[str]:
    """Places where the operand of the lanes is packed: once a block of the reduction or a batch.

    A skinny product reads each number only a few times: strided ones are packed a tile at a time.
    """
    if o.skinny and x.stride(o.lane.name) == 1:
        return []
    batch = [a for a, _ in nest.others if a and x.depends(axis_of(a))]
    block = nest.k or (batch[-1] if batch else "")
    tile = [f"{nest.lanes[1] or nest.lanes[0]}:loops"] if o.skinny else []
    return [*tile, f"{block}:loops", ":loops"]


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

    ``whole`` is the same defaults where a tile holds all of the lanes' axis.
    """

    tiles: Sequence[tuple[int, int]]
    defaults: Defaults
    whole: Defaults


def sketch_tiles(kernel: Kernel, target: Target, ask: Recorder) -> tuple[Action, ...]:
    """Asks for every decision of the tiles sketch and returns its actions."""
    if not any(a.extent > 1 for a in kernel.axes):
        return ()
    lane, row = axes_of(kernel, ask)
    where = "tiles", target, lane.name, None if row is None else row.name
    known = once(kernel, where, lambda: _known(operands_of(kernel, target, lane, row)))
    tile = ask.pick("tile", known.tiles)
    operands = known.defaults.operands
    whole = target.lanes(4) <= lane.extent <= tile[1] * operands.width
    defaults = known.whole if whole else known.defaults
    levels = Levels(kernel)
    nest = split(defaults, tile, levels, ask)
    order = order_of(defaults, nest, ask)
    # Registers run innermost wherever they stand; before the reductions, no step on the way makes
    # partial sums.
    everything = (*order, *nest.tile, *nest.reduces)
    actions = [*levels.actions, *([Reorder(everything)] if len(everything) > 1 else [])]
    threads = threads_of(defaults, nest, order, levels, ask)
    stages = stages_of(defaults, nest, order, ask)
    copied = {s.param for s in stages}
    padded = any(x.masked and x.param in copied for x in operands.found)
    steps = unrolled(defaults, nest, levels, tile[0] * tile[1], padded, ask)
    hints = memory_hints(kernel, target, ask, partial=bool(nest.k))
    return (*actions, *_registers(nest, levels), *steps, *threads, *stages, *hints)


def defaults_of(operands: Operands) -> Defaults:
    """The defaults for the kernel's kind."""
    if not operands.reduces:
        return Copies(operands)
    return Products(operands) if operands.reused else Sums(operands)


def _known(operands: Operands) -> _Known:
    defaults = defaults_of(operands)
    return _Known(defaults.tiles(), defaults, replace(defaults, run=operands.lane))


def _registers(nest: Nest, levels: Levels) -> list[Action]:
    """The rows and vectors of the register tile, and its lanes."""
    rows, vectors, lanes = nest.registers
    found: list[Action] = [Upcast(x) for x in (rows, vectors) if x and levels.extent(x) > 1]
    return [*found, *([Vectorize(lanes)] if lanes and levels.extent(lanes) > 1 else [])]
