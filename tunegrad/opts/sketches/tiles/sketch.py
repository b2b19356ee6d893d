"""The decisions of the tiles sketch, in order, and the actions that they give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target

from ...actions import Action, Reorder, Upcast, Vectorize
from ...choosing import Recorder
from ..analysis import once
from ..hints import memory_hints
from ..tiling import Levels
from .copies import Copies
from .idea import Idea
from .loops import order_of, threads_of
from .nest import Nest
from .operands import Operands, axes_of, operands_of
from .packing import stages_of
from .products import Products
from .splits import split
from .sums import Sums
from .windows import unrolled

__all__ = ["idea_of", "sketch_tiles"]


@dataclass(frozen=True, slots=True)
class _Known:
    """Consequences of the axes of the register tile: the best tiles, and the idea for the kernel.

    ``whole`` is the same idea where a tile holds all of the lanes' axis.
    """

    tiles: Sequence[tuple[int, int]]
    idea: Idea
    whole: Idea


def sketch_tiles(kernel: Kernel, target: Target, ask: Recorder) -> tuple[Action, ...]:
    """Asks for every decision of the tiles sketch and returns its actions."""
    if not any(a.extent > 1 for a in kernel.axes):
        return ()
    lane, row = axes_of(kernel, ask)
    where = "tiles", target, lane.name, None if row is None else row.name
    known = once(kernel, where, lambda: _known(operands_of(kernel, target, lane, row)))
    tile = ask.pick("tile", known.tiles)
    operands = known.idea.operands
    whole = target.lanes(4) <= lane.extent <= tile[1] * operands.width
    idea = known.whole if whole else known.idea
    levels = Levels(kernel)
    nest = split(idea, tile, levels, ask)
    order = order_of(idea, nest, ask)
    # Registers run innermost wherever they stand; before the reductions, no step on the way makes
    # partial sums.
    everything = (*order, *nest.tile, *nest.reduces)
    actions = [*levels.actions, *([Reorder(everything)] if len(everything) > 1 else [])]
    threads = threads_of(idea, nest, order, levels, ask)
    stages = stages_of(idea, nest, order, ask)
    copied = {s.param for s in stages}
    padded = any(x.masked and x.param in copied for x in operands.found)
    steps = unrolled(idea, nest, levels, tile[0] * tile[1], padded, ask)
    hints = memory_hints(kernel, target, ask, partial=bool(nest.k))
    return (*actions, *_registers(nest, levels), *steps, *threads, *stages, *hints)


def idea_of(operands: Operands) -> Idea:
    """The idea for the kernel's kind."""
    if not operands.reduces:
        return Copies(operands)
    return Products(operands) if operands.reused else Sums(operands)


def _known(operands: Operands) -> _Known:
    idea = idea_of(operands)
    return _Known(idea.tiles(), idea, replace(idea, run=operands.lane))


def _registers(nest: Nest, levels: Levels) -> list[Action]:
    """The rows and vectors of the register tile, and its lanes."""
    rows, vectors, lanes = nest.registers
    found: list[Action] = [Upcast(x) for x in (rows, vectors) if x and levels.extent(x) > 1]
    return [*found, *([Vectorize(lanes)] if lanes and levels.extent(lanes) > 1 else [])]
