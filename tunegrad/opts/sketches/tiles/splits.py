"""Splitting the axes: cache blocks, register tiles, blocks and steps of the reductions."""

from __future__ import annotations

from tunegrad.ir.kernel import Axis

from ...choosing import Recorder
from ..tiling import Levels, balance, blocks
from .idea import Idea
from .nest import Nest
from .operands import Operands

__all__ = ["split"]

_REUSED_STEPS, _STEPS = (512, 256, 128, 64), (256, 128, 64, 32, 16, 8)
"""Blocks of a reduction: of operands that are all read again, and of others."""

_UNROLLS = (1, 2, 4, 8)

_OTHER_BLOCK = 64
"""Points of a block of an axis that is in no register tile, at most."""


def split(idea: Idea, tile: tuple[int, int], levels: Levels, ask: Recorder) -> Nest:
    """Asks for every block, splits the axes and says what the loops are for."""
    o = idea.operands
    lanes = _split_lanes(idea, tile[1], levels, ask)
    rows = ["", "", ""]
    if o.row is not None:
        sizes = blocks(o.row.extent, tile[0])
        block = ask.pick("row.block", sizes, idea.row_block(sizes))
        rows = levels.split(o.row.name, (block, tile[0]))
    rest = [a for a in o.kernel.axes if a.extent > 1 and a not in (o.lane, o.row, o.strip)]
    others = tuple(_split_other(o, a, levels, ask) for a in rest)
    k, inner = _split_reduces(idea, levels, ask)
    registers = rows[2], lanes[2], lanes[3]
    return Nest(k, others, (rows[0], rows[1]), (lanes[0], lanes[1]), inner, registers)


def _split_lanes(idea: Idea, vectors: int, levels: Levels, ask: Recorder) -> list[str]:
    """Names of the loops: block, tile, vectors, lanes."""
    o = idea.operands
    if o.strip is not None:
        sizes = blocks(o.strip.extent, vectors)
        block = ask.pick("lane.block", sizes, 0)
        return [*levels.split(o.strip.name, (block, vectors)), o.lane.name]
    unit = vectors * o.width
    sizes = blocks(o.lane.extent, unit)
    block = ask.pick("lane.block", sizes, idea.lane_block(sizes))
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


def _split_reduces(idea: Idea, levels: Levels, ask: Recorder) -> tuple[str, tuple[str, ...]]:
    """(name of the outer block of the longest reduce axis, the loops inside, in order)."""
    o = idea.operands
    if not o.reduces:
        return "", ()
    longest = o.longest
    sizes = _reduce_blocks(o)
    block = ask.pick("k.block", sizes, idea.reduce_block(sizes))
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
