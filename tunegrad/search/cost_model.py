"""A learned cost model: what a schedule will cost, by the decisions it came from and the facts of
its program.

    rows told       one column a decision (its option's position; absent: not a number)
                    one column a fact of the program           --> boosted trees --> log seconds
                    failures: slower than everything that ran

    other kernels'  the columns of facts; times over the fastest of their kernel, at a smaller
                    weight

The trees are LightGBM's (Ke et al., NeurIPS 2017), one thread, deterministic: same rows, same
forecast. Ranking candidates by boosted trees is from Chen et al., "Learning to optimize tensor
programs", NeurIPS 2018.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from tunegrad.errors import IllegalAction
from tunegrad.opts import Schedule

if TYPE_CHECKING:
    from lightgbm import Booster
    from numpy.typing import NDArray

__all__ = [
    "OPENMP",
    "CostModel",
    "Features",
    "Lessons",
    "ScheduleFeatures",
    "cost_model_installed",
    "ranking_accuracy",
]

Features = Callable[[Schedule], Mapping[str, float]]
"""Named numbers of a schedule, as ``tree_features`` gives them. IllegalAction for one that has
none.
"""

_FAILED = 1.0
"""A failure counts as this many log seconds slower than the slowest that ran (2.7 times)."""

_SLOWEST = 3.0
"""Whatever is slower than the best by more log seconds (20 times) is just bad: trees are for
telling the good apart.
"""

_PARAMETERS = {
    "objective": "regression",
    "learning_rate": 0.1,
    "num_leaves": 15,
    "min_data_in_leaf": 3,
    "min_data_in_bin": 1,
    "lambda_l2": 0.1,
    "feature_fraction": 0.8,
    "bagging_fraction": 0.9,
    "bagging_freq": 1,
    "num_threads": 1,
    "deterministic": True,
    "force_col_wise": True,
    "verbosity": -1,
}

_TREES = 60
_TREES_OF_LESSONS = 120
"""With other kernels' rows there is more to tell apart."""

_WEIGHT = 0.3
"""Weight of a row of another kernel, against 1 for the kernel's own."""

_ENOUGH = 100
"""With so many rows of its own a kernel does not learn from others any more: they would only
cost time.
"""


OPENMP = "it needs the system's OpenMP runtime, libgomp.so.1 (Debian: libgomp1)"
"""The further need of the library that learns, in words."""


@cache
def cost_model_installed() -> bool:
    """True when LightGBM can be imported; besides the package it needs the system's OpenMP
    runtime.
    """
    try:
        import lightgbm  # noqa: F401
    except (ImportError, OSError):
        return False
    return True


@dataclass(frozen=True, slots=True)
class Lessons:
    """Rows that other kernels of the device contribute: features of schedules, named as
    ``ScheduleFeatures`` does, and their times.

    ``log_s`` are log seconds over the fastest known schedule of the same kernel; infinity is a
    failure.
    """

    rows: tuple[Mapping[str, float], ...] = ()
    log_s: tuple[float, ...] = ()


class ScheduleFeatures:
    """The numbers that a cost model sees of a schedule: its decisions, and its features where there
    are any.

    Remembers them.
    """

    def __init__(self, features: Features | None = None) -> None:
        self.features = features
        self._known: dict[str, Mapping[str, float]] = {}

    def of(self, schedule: Schedule) -> Mapping[str, float]:
        """Named numbers of a schedule; the decisions alone where it has no features: measuring it
        will say why.
        """
        decisions = {d.name: d.choice for d in schedule.trace}
        if self.features is None:
            return decisions
        text = schedule.text
        if text not in self._known:
            try:
                self._known[text] = self.named(self.features(schedule))
            except IllegalAction:
                self._known[text] = {}
        return {**self._known[text], **decisions}

    @staticmethod
    def named(features: Mapping[str, float]) -> Mapping[str, float]:
        """Features under names that no decision has."""
        return {f"@{name}": value for name, value in features.items()}


class CostModel:
    """Forecasts log seconds from named numbers.

    A new name becomes a column; rows without it have NaN there.

    Mutable: ``fit`` replaces what was learned. ``seed`` decides which rows and columns each tree
    sees. With ``lessons`` there is a forecast from the first row on, and it is of log seconds over
    the fastest.
    """

    def __init__(self, seed: int, trees: int = _TREES, lessons: Lessons | None = None) -> None:
        self.seed, self.trees = seed, trees
        self.lessons = lessons if lessons is not None else Lessons()
        self._columns: dict[str, int] = {}
        self._booster: Booster | None = None

    @property
    def fitted(self) -> bool:
        return self._booster is not None

    def fit(self, rows: Sequence[Mapping[str, float]], log_s: Sequence[float]) -> None:
        """Learn from rows and their log seconds; infinity is a failure.

        Nothing is learned where less than two ran.
        """
        taught = self.lessons.rows if len(rows) < _ENOUGH else ()
        ran = [t for t in log_s if t < math.inf]
        if len(ran) < 2 and not taught:
            return
        import lightgbm

        for row in (*rows, *taught):
            for name in row:
                self._columns.setdefault(name, len(self._columns))
        target, weight, trees = _targets(log_s, relative=bool(taught)), None, self.trees
        if taught:
            target = np.concatenate([target, _targets(self.lessons.log_s, relative=False)])
            weight = np.array([1.0] * len(rows) + [_WEIGHT] * len(taught))
            trees = max(trees, _TREES_OF_LESSONS)
        data = lightgbm.Dataset(
            self._table([*rows, *taught]), target, weight=weight, params={"verbosity": -1}
        )
        # Else the trees are printed and read back, which takes a third of the time and changes no
        # forecast.
        parameters = _PARAMETERS | {"seed": self.seed}
        self._booster = lightgbm.train(
            parameters, data, num_boost_round=trees, keep_training_booster=True
        )

    def predict(self, rows: Sequence[Mapping[str, float]]) -> NDArray[np.float64]:
        """Forecast log seconds, lower is faster; all 0 before it learned anything."""
        if self._booster is None or not rows:
            return np.zeros(len(rows))
        return np.asarray(self._booster.predict(self._table(rows), num_threads=1), np.float64)

    def _table(self, rows: Sequence[Mapping[str, float]]) -> NDArray[np.float64]:
        names = list(self._columns)
        return np.array([[row.get(name, math.nan) for name in names] for row in rows], np.float64)


def _targets(log_s: Sequence[float], *, relative: bool) -> NDArray[np.float64]:
    """Targets of the regression: log seconds bounded above, failures behind all that ran; over the
    fastest, if ``relative``.
    """
    ran = [t for t in log_s if t < math.inf]
    least = min(ran, default=0.0)
    top = min(max(ran, default=0.0), least + _SLOWEST)
    found = np.array([min(t, top) if t < math.inf else top + _FAILED for t in log_s], np.float64)
    return found - least if relative else found


def ranking_accuracy(
    forecast: Sequence[float], actual: Sequence[float], apart: float = 0.0
) -> float:
    """The share of pairs that a forecast puts in the right order; NaN where there are none.

    Only pairs whose actual values differ by more than ``apart`` count; a forecast that ties them is
    half right.
    """
    right, pairs = 0.0, 0
    for i, j in combinations(range(len(actual)), 2):
        if abs(actual[i] - actual[j]) <= apart:
            continue
        pairs += 1
        order = (forecast[i] - forecast[j]) * (1.0 if actual[i] > actual[j] else -1.0)
        right += 1.0 if order > 0.0 else 0.5 if order == 0.0 else 0.0
    return right / pairs if pairs else math.nan
