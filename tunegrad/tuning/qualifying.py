"""Who challenges in the finals: the fastest of a search, timed again in turns.

    times of minutes of search, of other states of the machine     32 within a quarter of the fastest
    5 turns each with the fastest of those times              -->  the 8 that took least of it
    10 more turns each                                        -->  3 challengers

A search compares times that are minutes apart. Where a machine is a fifth slower for a while, its order says little: of
nine heavy kernels of ResNet-18 six had a program between the 11th and the 37th place that is 5 to 24 per cent faster
than the winner (decision 0028). What is sampled here chooses who challenges, and proves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from time import monotonic

from tunegrad.errors import CandidateFailure
from tunegrad.ir.kernel import Kernel
from tunegrad.opts import Schedule
from tunegrad.trial import Cache, Trial

from .measuring import SessionMeasurer

__all__ = ["qualified"]

_HEATS = ((5, 8), (10, 0))
"""Turns of each heat, and how many go on to the next; 0: as many as challenge."""


def qualified(
    kernel: Kernel, field: Sequence[Trial], count: int, measurer: SessionMeasurer, cache: Cache, until_s: float
) -> tuple[Trial, ...]:
    """Up to ``count`` of the field (of different programs, the fastest in the search first), the fastest first.

    After ``until_s`` on the monotonic clock nothing more is timed: then those that were, and took less than the first
    one, come first, and the others follow as they were. Who fails is left out.
    """
    if len(field) <= count:
        return tuple(field)
    first, rest = Schedule.parse(field[0].actions), list(field[1:])
    ratios: dict[str, list[float]] = {}
    for turns, kept in _HEATS:
        if monotonic() > until_s:
            break
        measurer.prime([(kernel, first), *((kernel, Schedule.parse(t.actions)) for t in rest)])
        for trial in tuple(rest):
            if monotonic() > until_s:
                break
            try:
                pair = measurer.compare(kernel, first, Schedule.parse(trial.actions), rounds=turns, cache=cache)
            except CandidateFailure:
                rest.remove(trial)
                continue
            found = [b / a for a, b in zip(*pair, strict=True)]
            ratios[trial.actions] = [*ratios.get(trial.actions, ()), *found]
        rest = _ranked(rest, ratios)[: kept or count]
    return tuple(_ranked([field[0], *rest], ratios)[:count])


def _ranked(trials: Sequence[Trial], ratios: dict[str, list[float]]) -> list[Trial]:
    """By what they took of the first one's time; who was not timed counts as equal to it, in the order of the search."""
    return sorted(trials, key=lambda t: median(ratios.get(t.actions, (1.0,))))
