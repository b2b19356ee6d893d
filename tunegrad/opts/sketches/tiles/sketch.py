"""The decisions of the tiles sketch, in order, and the actions that they give."""

from __future__ import annotations

from dataclasses import replace

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
from .operands import Operands, operands_of
from .packing import stages_of
from .products import Products
from .splits import split
from .sums import Sums
from .windows import unrolled

__all__ = ["idea_of", "sketch_tiles"]


def sketch_tiles(kernel: Kernel, target: Target, ask: Recorder) -> tuple[Action, ...]:
    """Asks for every decision of the tiles sketch and returns its actions."""
    shared = [a for a in kernel.axes if a.extent > 1]
    if not shared:
        return ()
    operands = operands_of(kernel, target, shared, ask)
    tile = ask.pick("tile", once(kernel, ("tiles", *operands.key), idea_of(operands).tiles))
    idea = _held(operands, tile[1] * operands.width)
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
    """What the kernel is; its register tile is not known yet."""
    if not operands.reduces:
        return Copies(operands)
    return Products(operands) if operands.reused else Sums(operands)


def _held(operands: Operands, unit: int) -> Idea:
    """What the kernel is, where a register tile holds ``unit`` numbers along the lanes."""
    lane = operands.lane
    whole = operands.target.lanes(4) <= lane.extent <= unit

    def found() -> Idea:
        idea = idea_of(operands)
        return replace(idea, run=lane) if whole else idea

    return once(operands.kernel, ("idea", whole, *operands.key), found)


def _registers(nest: Nest, levels: Levels) -> list[Action]:
    """The rows and vectors of the register tile, and its lanes."""
    rows, vectors, lanes = nest.registers
    found: list[Action] = [Upcast(x) for x in (rows, vectors) if x and levels.extent(x) > 1]
    return [*found, *([Vectorize(lanes)] if lanes and levels.extent(lanes) > 1 else [])]
