"""A learned cost model: what a schedule will cost, by the decisions it came from.

    rows told       one column a decision (its option's position; absent: not a number)
                                                               --> boosted trees --> log seconds
                    failures: slower than everything that ran

The trees are LightGBM's (Ke et al., NeurIPS 2017), one thread, deterministic: same rows, same
forecast. Ranking candidates by boosted trees is from Chen et al., "Learning to optimize tensor
programs", NeurIPS 2018. Facts of loop trees and rows of other kernels brought the portfolio nothing
(decision 0114).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lightgbm import Booster
    from numpy.typing import NDArray

__all__ = ["OPENMP", "CostModel", "cost_model_installed"]

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
"""Trees of a forecast: more fit the noise of so few rows."""

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


class CostModel:
    """Forecasts log seconds from named numbers.

    A new name becomes a column; rows without it have NaN there.

    Mutable: ``fit`` replaces what was learned. ``seed`` decides which rows and columns each tree
    sees.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._columns: dict[str, int] = {}
        self._booster: Booster | None = None

    @property
    def fitted(self) -> bool:
        return self._booster is not None

    def fit(self, rows: Sequence[Mapping[str, float]], log_s: Sequence[float]) -> None:
        """Learn from rows and their log seconds; infinity is a failure.

        Nothing is learned where less than two ran.
        """
        if sum(t < math.inf for t in log_s) < 2:
            return
        import lightgbm

        for row in rows:
            for name in row:
                self._columns.setdefault(name, len(self._columns))
        data = lightgbm.Dataset(self._table(rows), _targets(log_s), params={"verbosity": -1})
        # Else the trees are printed and read back, which takes a third of the time and changes no
        # forecast.
        parameters = _PARAMETERS | {"seed": self.seed}
        self._booster = lightgbm.train(
            parameters, data, num_boost_round=_TREES, keep_training_booster=True
        )

    def predict(self, rows: Sequence[Mapping[str, float]]) -> NDArray[np.float64]:
        """Forecast log seconds, lower is faster; all 0 before it learned anything."""
        if self._booster is None or not rows:
            return np.zeros(len(rows))
        return np.asarray(self._booster.predict(self._table(rows), num_threads=1), np.float64)

    def _table(self, rows: Sequence[Mapping[str, float]]) -> NDArray[np.float64]:
        names = list(self._columns)
        return np.array([[row.get(name, math.nan) for name in names] for row in rows], np.float64)


def _targets(log_s: Sequence[float]) -> NDArray[np.float64]:
    """Targets of the regression: log seconds bounded above, failures behind all that ran."""
    ran = [t for t in log_s if t < math.inf]
    top = min(max(ran), min(ran) + _SLOWEST)
    return np.array([min(t, top) if t < math.inf else top + _FAILED for t in log_s], np.float64)
