"""Chooses the outer loops that threads share."""

from __future__ import annotations

from collections.abc import Sequence

from tunegrad.ir.target import Target

from ..actions import Thread
from ..choosing import Recorder
from .tiling import Levels, balance

__all__ = ["on_threads"]


def on_threads(outer: Sequence[str], levels: Levels, target: Target, ask: Recorder) -> list[Thread]:
    """Asks for the loop on threads: the outermost of some that splits evenly over them."""
    loops = [x for x in outer if levels.extent(x) > 1]
    if target.threads < 2 or not loops:
        return []
    even = [balance(levels.extent(x), target.threads) > 0.9 for x in loops]
    best = even.index(True) if any(even) else 0
    chosen = ask.pick("thread", [*loops[:3], "none"], min(best, 2))
    if chosen == "none":
        return []
    return [Thread(chosen, min(target.threads, levels.extent(chosen)))]
