"""A learned cost model: what a schedule will cost, by the decisions it came from and the facts of its program.

    rows told --> one column a decision (the option's position; absent: not a number)  --> boosted trees --> log seconds
                  one column a feature of the program, where features are handed in
                  failures: slower than everything that ran

The trees are LightGBM's (Ke et al., NeurIPS 2017), one thread, deterministic: same rows, same forecast. It comes with
the extra ``tunegrad[learn]``. Ranking candidates by boosted trees is from Chen et al., "Learning to optimize tensor
programs", NeurIPS 2018.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lightgbm import Booster
    from numpy.typing import NDArray

__all__ = ["CostModel", "cost_model_installed", "ranking_accuracy"]

_FAILED = 1.0
"""A failure counts as this many log seconds slower than the slowest that ran (2.7 times)."""

_SLOWEST = 3.0
"""Whatever is slower than the best by more log seconds (20 times) is just bad: trees are for telling the good apart."""

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


def cost_model_installed() -> bool:
    """Whether the library that learns is there."""
    return find_spec("lightgbm") is not None


class CostModel:
    """Forecasts log seconds from named numbers. A new name becomes a column; rows without it have NaN there.

    Mutable: ``fit`` replaces what was learned. ``seed`` decides which rows and columns each tree sees.
    """

    def __init__(self, seed: int, trees: int = _TREES) -> None:
        self.seed, self.trees = seed, trees
        self._columns: dict[str, int] = {}
        self._booster: Booster | None = None

    @property
    def fitted(self) -> bool:
        return self._booster is not None

    def fit(self, rows: Sequence[Mapping[str, float]], log_s: Sequence[float]) -> None:
        """Learn from rows and their log seconds; infinity is a failure. Nothing is learned where less than two ran."""
        ran = [t for t in log_s if t < math.inf]
        if len(ran) < 2:
            return
        import lightgbm

        for row in rows:
            for name in row:
                self._columns.setdefault(name, len(self._columns))
        top = min(max(ran), min(ran) + _SLOWEST)
        target = np.array([min(t, top) if t < math.inf else top + _FAILED for t in log_s])
        data = lightgbm.Dataset(self._table(rows), target, params={"verbosity": -1}, free_raw_data=True)
        self._booster = lightgbm.train(_PARAMETERS | {"seed": self.seed}, data, num_boost_round=self.trees)

    def predict(self, rows: Sequence[Mapping[str, float]]) -> NDArray[np.float64]:
        """Forecast log seconds, lower is faster; all 0 before it learned anything."""
        if self._booster is None or not rows:
            return np.zeros(len(rows))
        return np.asarray(self._booster.predict(self._table(rows), num_threads=1), np.float64)

    def _table(self, rows: Sequence[Mapping[str, float]]) -> NDArray[np.float64]:
        table = np.full((len(rows), len(self._columns)), np.nan)
        for i, row in enumerate(rows):
            for name, value in row.items():
                at = self._columns.get(name)
                if at is not None:
                    table[i, at] = value
        return table


def ranking_accuracy(forecast: Sequence[float], actual: Sequence[float], apart: float = 0.0) -> float:
    """The share of pairs that a forecast puts in the right order; NaN where there are none.

    Only pairs whose actual values differ by more than ``apart`` count; a forecast that ties them is half right.
    """
    right, pairs = 0.0, 0
    for i, j in combinations(range(len(actual)), 2):
        if abs(actual[i] - actual[j]) <= apart:
            continue
        pairs += 1
        order = (forecast[i] - forecast[j]) * (1.0 if actual[i] > actual[j] else -1.0)
        right += 1.0 if order > 0.0 else 0.5 if order == 0.0 else 0.0
    return right / pairs if pairs else math.nan
