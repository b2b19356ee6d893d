"""Rules that end a search before its budget does.

    gain      all kernels together may save little more of the model's time (the default)
    patience  so many trials in a row made the model no faster, where the user says how many
    trials    as many candidates were measured as the user allows
    target    the model is as fast as the user wants it

What a kernel may still save is told from how long it has not improved: after n vain trials a search
without end is expected to save ``potential(n)`` of its time. That curve was measured on recorded
spaces: it is about twice the mean of what any searcher still found there, or more (decision 0015).
It asks nothing of the machine's peaks.

All of it is reckoned from rows, so a resumed search stops where it would have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from .driver import KernelSearch
from .promote import LEAST_EFFECT
from .steps import Step

StopReason = Literal["budget", "gain", "patience", "trials", "target", "exhausted", "interrupted"]
"""Reason for the end of a search. ``budget``: its time was up. ``exhausted``: no searcher had
anything left to propose.
"""

_AT_ONCE = 0.24
_HALVED = 8.0


def potential(vain: int) -> float:
    """The part of a kernel's time still expected to be saved after ``vain`` vain trials."""
    return _AT_ONCE / (1.0 + vain / _HALVED)


@dataclass(frozen=True, slots=True)
class StopRule:
    """The rules that the user asked for. ``patience`` None is the rule of expected gain, 0 is
    never.

    ``trials`` bounds how many candidates are measured. ``reached`` says whether the model is fast
    enough.
    """

    patience: int | None = None
    trials: int | None = None
    reached: Callable[[], bool] | None = None


@dataclass(slots=True)
class _Vain:
    """Trials in a row that did not make something faster by a notable part.

    ``mark_s`` is what they are held against.

    Small savings add up: the mark stays until what is below it is notable.
    """

    mark_s: float = math.inf
    trials: int = 0

    def observe(self, trials: int, seconds: float) -> None:
        if seconds < (1.0 - LEAST_EFFECT) * self.mark_s or (
            self.mark_s == math.inf and seconds < math.inf
        ):
            self.mark_s, self.trials = seconds, 0
        else:
            self.trials += trials


@dataclass(slots=True)
class Watch:
    """Looks at a search of several kernels and says when it is over.

    Mutable: kernels may leave, and count no more.
    """

    searches: Sequence[KernelSearch]
    rule: StopRule
    measured: int = 0
    gone: set[int] = field(default_factory=set)
    _kernels: list[_Vain] = field(init=False)
    _model: _Vain = field(default_factory=_Vain)

    def __post_init__(self) -> None:
        self._kernels = [_Vain() for _ in self.searches]

    def observe(self, i: int, step: Step) -> None:
        """Learn from what came of proposals for kernel ``i``."""
        self.measured += sum(not r.stored and r.measurement is not None for r in step.results)
        trials = sum(r.measurement is not None for r in step.results)
        self._kernels[i].observe(trials, step.after_s)
        self._model.observe(trials, self.model_s)

    def leave(self, i: int) -> None:
        """Stop searching kernel ``i``; counting how long others do not improve begins anew."""
        self.gone.add(i)
        self._model = _Vain()

    def allowed(self, under_way: int) -> float:
        """Number of candidates that may still be measured beside ``under_way``; or infinity."""
        return (
            math.inf if self.rule.trials is None else self.rule.trials - self.measured - under_way
        )

    @property
    def model_s(self) -> float:
        """The sum of the best kernel times, all uses; infinity while a kernel has none."""
        return sum(s.task.uses * s.best_s for s, _ in self._left)

    @property
    def expected_s(self) -> float:
        """Model seconds that a search without end is still expected to save."""
        total_s = 0.0
        for s, vain in self._left:
            if not s.done:
                total_s += s.task.uses * _current_s(s) * potential(vain.trials)
        return total_s

    @property
    def _left(self) -> list[tuple[KernelSearch, _Vain]]:
        pairs = zip(self.searches, self._kernels, strict=True)
        return [pair for i, pair in enumerate(pairs) if i not in self.gone]

    def reason(self) -> StopReason | None:
        """Reason to stop now; None to go on."""
        if all(s.done for s, _ in self._left):
            return None  # what is under way may give new ideas; without any, it is exhausted
        if self.rule.reached is not None and self.rule.reached():
            return "target"
        match self.rule.patience:
            case None:
                current_s = sum(s.task.uses * _current_s(s) for s, _ in self._left)
                return "gain" if self.expected_s < LEAST_EFFECT * current_s else None
            case 0:
                return None
            case patience:
                return "patience" if self._model.trials >= patience else None


def _current_s(search: KernelSearch) -> float:
    """The best time so far; where nothing ran, what a slow kernel takes."""
    return search.best_s if search.best_s < math.inf else search.task.guess_s
