"""The loops outside the reduction: their order, and the one that threads share."""

from __future__ import annotations

from ...actions import Thread
from ...choosing import Recorder
from ..tiling import Levels, balance
from .idea import Idea
from .nest import Nest

__all__ = ["order_of", "threads_of"]

_EVEN = 0.93
"""Least evenness with which a loop's iterations split over the threads, for it to be taken."""


def order_of(idea: Idea, nest: Nest, ask: Recorder) -> list[str]:
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
    best = idea.order(names)
    if best == "lanes" and not (l0 or l1):
        best = "rows"
    return [x for x in forms[ask.pick("order", names, names.index(best))] if x]


def threads_of(
    idea: Idea,
    nest: Nest,
    order: list[str],
    levels: Levels,
    ask: Recorder,
) -> list[Thread]:
    """Asks for the loop on threads: the outermost one that splits evenly, else the most even."""
    n = idea.operands.target.threads
    loops = [x for x in order if x != nest.k and levels.extent(x) > 1]
    if n < 2 or not loops:
        return []
    scores = [balance(levels.extent(x), n) for x in loops]
    even = [i for i, s in enumerate(scores) if s > _EVEN]
    default = even[0] if even else scores.index(max(scores))
    chosen = ask.pick("thread", [*loops[:4], "none"], default)
    return [] if chosen == "none" else [Thread(chosen, min(n, levels.extent(chosen)))]
