"""A latency that the user wants: predicted from kernel times after every batch, measured where that
says it is reached.

predicted: sum of the best kernel times x what the last measurement took over its prediction (1 at
first)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tunegrad.config import TuneSettings
from tunegrad.search import LEAST_EFFECT, KernelSearch

__all__ = ["Goal", "goal_of"]


@dataclass(slots=True)
class Goal:
    """The goal of a session: the whole model takes at most ``target_s``.

    Mutable: it learns how far predictions are off.

    ``searches`` gives those of the kernels that the model runs, ``measure`` times the whole model
    with the fastest schedules so far, in seconds. A model that was measured and is too slow is
    measured again only when its kernels have become faster by as much as was missing; one that
    could not be measured (infinity), when they have become a little faster.
    """

    target_s: float
    searches: Callable[[], Sequence[KernelSearch]]
    measure: Callable[[], float]
    factor: float = 1.0
    measured: int = 0

    def __call__(self) -> bool:
        predicted_s = sum(s.task.uses * s.best_s for s in self.searches())
        if not self.factor * predicted_s <= self.target_s:
            return False
        seconds = self.measure()
        self.measured += 1
        if seconds == math.inf:
            self.factor = (1.0 + LEAST_EFFECT) * self.target_s / predicted_s
        else:
            self.factor = seconds / predicted_s if predicted_s > 0.0 else 1.0
        return seconds <= self.target_s


def goal_of(
    settings: TuneSettings,
    searches: Callable[[], Sequence[KernelSearch]],
    measure: Callable[[], float],
) -> Goal | None:
    """The latency that the user wants; None where none is wanted."""
    return (
        None if settings.target_ms is None else Goal(1e-3 * settings.target_ms, searches, measure)
    )
