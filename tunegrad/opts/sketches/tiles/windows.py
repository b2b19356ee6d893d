"""Windows: short reductions that are written out, so that edges and padding cost no loop.

Taps are the steps that move a window over padding. Written out, what is padding for one of them is
decided before the loops inside, not for each load.
"""

from __future__ import annotations

from math import prod

from tunegrad.ir.kernel import Axis

from ...actions import Action, Unroll
from ...choosing import Recorder
from ..tiling import Levels
from .idea import Idea
from .nest import Nest
from .operands import Operands

__all__ = ["WINDOW", "taps_of", "unrolled"]

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
    idea: Idea,
    nest: Nest,
    levels: Levels,
    tile: int,
    padded: bool,
    ask: Recorder,
) -> list[Action]:
    """The last reduce loop where it is short; all of them where a window is small.

    ``tile`` counts the vectors of the register tile. ``padded``: a copy holds the padding, so no
    tap decides anything.
    """
    o = idea.operands
    steps = [x for x in nest.reduces if levels.extent(x) > 1]
    short = [x for x in steps if levels.extent(x) <= _SHORT]
    small = tile * prod(levels.extent(x) for x in steps) <= WINDOW
    window = len(steps) > 1 and short == steps and small
    if window and ask.pick("window", [False, True], int(not o.reused)):
        return [Unroll(x) for x in steps]
    taps = [] if padded else [x for x in steps[:-1] if x in idea.taps]
    if bool(taps) and ask.pick("taps", [True, False], int(o.target.fmas_per_cycle == 1)):
        return [Unroll(x) for x in taps]
    last = steps[-1:] if steps and steps[-1] == nest.reduces[-1] else []
    return [Unroll(x) for x in last if x in short]
