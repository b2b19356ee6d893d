"""Packing: operands copied in the order in which the loops read them.

Constants are packed when a model is loaded, the operand of the lanes where it is strided, images
with their padding as a box.
"""

from __future__ import annotations

from collections import Counter

from ...actions import Stage
from ...choosing import Recorder
from ...staging import MAX_SCRATCH_BYTES
from ..analysis import Access, can_be_packed
from .idea import Idea
from .nest import Nest, axis_of
from .operands import Operands

__all__ = ["stages_of"]


def stages_of(idea: Idea, nest: Nest, order: list[str], ask: Recorder) -> list[Stage]:
    """Asks for a place for each operand that one load reads; the copies."""
    o = idea.operands
    if not o.kernel.reduces:
        return []
    actions: list[Stage] = []
    counts = Counter(x.param for x in o.found)
    for x in o.found:
        if counts[x.param] > 1 or x.indirect or not x.strides:
            continue
        places = _places(o, x, order)
        at = ask.pick(f"stage.{x.param}", places, _default(idea, x, nest, places))
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


def _default(idea: Idea, x: Access, nest: Nest, places: list[str]) -> int:
    """The place that is best for an operand; 0 is none."""
    o = idea.operands
    of_lanes = x.depends(o.lane.name)
    if x.role == "const":
        return int(len(places) > 1 and of_lanes and any(x.depends(a.name) for a in o.reduces))
    if x.masked:
        return places.index(":box") if idea.pads and ":box" in places else 0
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
