"""Decisions read back from a schedule's text, so that a stored schedule can be changed decision by
decision.
"""

from __future__ import annotations

from collections import Counter

from tunegrad.errors import IllegalAction
from tunegrad.opts import Schedule, TraceChooser

from ..protocols import SearchSpace

__all__ = ["retrace"]


def retrace(space: SearchSpace, schedule: Schedule, samples: int = 400) -> Schedule | None:
    """The schedule with the decisions that print it; None when ``samples`` draws did not find them.

    Goes down the decisions in order, keeping of each the option whose schedule has most actions in
    common with the one that is looked for, until a whole round brings it no nearer. Nothing is
    random.
    """
    target, text = Counter(map(str, schedule.actions)), schedule.text
    found = space.defaults()[0]
    best, done, left = _shared(target, found), 0, samples
    while found.text != text and done < len(found.trace):
        decision = found.trace[done]
        done += 1
        for option in range(decision.options):
            if option == decision.choice:
                continue
            if left == 0:
                return None
            left -= 1
            try:
                near = space.sample(
                    TraceChooser({d.name: d.choice for d in found.trace} | {decision.name: option})
                )
            except IllegalAction:
                continue
            shared = _shared(target, near)
            if near.text == text:
                return near
            if shared > best:
                found, best = near, shared
                # A change can open or spoil others, before and after it.
                done = done if done < len(found.trace) else 0
    return found if found.text == text else None


def _shared(target: Counter[str], schedule: Schedule) -> tuple[int, int]:
    """Actions in common, then how few others there are."""
    mine = Counter(map(str, schedule.actions))
    return (target & mine).total(), -(mine - target).total()
