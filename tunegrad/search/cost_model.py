"""A learned cost model: what a schedule will cost, by the decisions it came from.

    rows told       one column a decision (its option's position; absent: not a number)
                                                         --> kernel ridge regression --> log seconds
                    failures: slower than everything that ran

Schedules are alike where their decisions are: a decision counts as much as it says about the time
by itself (its share of the variance, adjusted as in Wherry, "A new formula for predicting the
shrinkage of the coefficient of multiple correlation", 1931). How fast likeness fades is chosen by
leaving one row out at a time (Hastie, Tibshirani and Friedman, "The elements of statistical
learning", 2009, 7.10). It ranks as well as 60 boosted trees of LightGBM did, and better where few
rows are known (decision 0133).

No product here is one of BLAS, whose threads would disturb what is timed meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

_FAILED = 1.0
"""A failure counts as this many log seconds slower than the slowest that ran (2.7 times)."""

_SLOWEST = 3.0
"""Whatever is slower than the best by more log seconds (20 times) is just bad: the model is for
telling the good apart.
"""

_RIDGE = 0.05
"""Variance of the noise, relative to that of what is learned."""

_FADING = (0.25, 0.5, 1.0, 2.0)
"""Rates at which likeness fades with distance: one of these is chosen."""

_CHOSEN_BY = 96
"""Rows that choose the rate, at most."""

_OTHER = 0.5
"""Distance of two neighbouring options of one decision; the first and the last one are 1 apart."""

_LEAST_WEIGHT = 0.15
"""Weight of a decision that says nothing by itself; the weightiest has 1 more."""


class CostModel:
    """Forecasts log seconds from named numbers.

    A new name becomes a column; rows without it have NaN there. Mutable: ``fit`` replaces what was
    learned.
    """

    def __init__(self) -> None:
        self._columns: dict[str, int] = {}
        self._known: Values | None = None

    @property
    def fitted(self) -> bool:
        return self._known is not None

    def fit(self, rows: Sequence[Mapping[str, float]], log_s: Sequence[float]) -> None:
        """Learn from rows and their log seconds; infinity is a failure.

        Nothing is learned where less than two ran. Takes 4 ms for 100 rows, 6 to 8 for 256.
        """
        if sum(t < math.inf for t in log_s) < 2:
            return
        for row in rows:
            for name in row:
                self._columns.setdefault(name, len(self._columns))
        self._known, y = self._table(rows), _targets(log_s)
        self._mean = float(y.mean())
        y = y - self._mean
        self._span = np.array([_span(column) for column in self._known.T])
        self._weight = np.sqrt([explained(column, y) for column in self._known.T])
        self._weight = _LEAST_WEIGHT + self._weight / (self._weight.max() or 1.0)
        distances = self._distances(self._known)
        part = np.arange(0, len(y), -(-len(y) // _CHOSEN_BY))
        apart = distances[np.ix_(part, part)]
        self._rate = min(_FADING, key=lambda rate: _left_out(np.exp(-rate * apart), y[part]))
        alike = np.exp(-self._rate * distances)
        self._share = _solved(alike + _RIDGE * np.eye(len(y)), y)

    def predict(self, rows: Sequence[Mapping[str, float]]) -> Values:
        """Forecast log seconds, lower is faster; all 0 before it learned anything."""
        if self._known is None or not rows:
            return np.zeros(len(rows))
        alike = np.exp(-self._rate * self._distances(self._table(rows)))
        return np.asarray(self._mean + (alike * self._share).sum(1), np.float64)

    def _table(self, rows: Sequence[Mapping[str, float]]) -> Values:
        names = list(self._columns)
        return np.array([[row.get(name, math.nan) for name in names] for row in rows], np.float64)

    def _distances(self, rows: Values) -> Values:
        """Distances of rows from those that are known: sums over decisions of 0 for the same
        option, up to 1 for others, 1 where one row lacks the decision.
        """
        assert self._known is not None
        found = np.zeros((len(rows), len(self._known)))
        for column, known, span, weight in zip(
            rows.T, self._known.T, self._span, self._weight, strict=True
        ):
            options, place = np.unique(column, return_inverse=True)
            gaps = np.abs(options[:, None] - known) / span
            far = np.where(gaps > 0, _OTHER + (1 - _OTHER) * np.minimum(gaps, 1.0), 0.0)
            far[np.isnan(options)[:, None] != np.isnan(known)] = 1.0
            found += (weight * far)[place]
        return found


def _span(column: Values) -> float:
    """From the least to the greatest of what is known, at least 1; columns of others have none."""
    known = column[~np.isnan(column)]
    return max(1.0, float(np.ptp(known))) if known.size else 1.0


def explained(column: Values, y: Values) -> float:
    """The share of the variance of ``y``, whose mean is 0, that the values of a column explain, 0
    to 1; adjusted for their number, as many values always explain something.
    """
    _, place, counts = np.unique(column, return_inverse=True, return_counts=True)
    n, groups, total = len(y), len(counts), float((y * y).sum())
    if groups >= n or groups < 2 or not total:
        return 0.0
    share = float((np.bincount(place, y) ** 2 / counts).sum()) / total
    chance = (groups - 1) / (n - 1)
    return max(0.0, (share - chance) / (1.0 - chance))


def _left_out(alike: Values, y: Values) -> float:
    """Squared error of each row's forecast by all the others, together."""
    inverse = _inverse(alike + _RIDGE * np.eye(len(y)))
    return float((((inverse * y).sum(1) / inverse.diagonal()) ** 2).sum())


def _inverse(a: Values) -> Values:
    """The inverse of a symmetric, positive definite matrix, by Gauss and Jordan."""
    a = a.copy()
    for i in range(len(a)):
        pivot, column = a[i, i], a[:, i].copy()
        row = a[i] / pivot
        a -= np.multiply.outer(column, row)
        a[i], a[:, i] = row, -column / pivot
        a[i, i] = 1.0 / pivot
    return a


def _solved(a: Values, y: Values) -> Values:
    """``x`` with ``a x = y`` for such a matrix, by conjugate gradients (Hestenes, Stiefel 1952)."""
    x, rest = np.zeros(len(y)), y
    along, size = rest, float((rest * rest).sum())
    least = 1e-10 * size
    for _ in range(2 * len(y)):
        if size <= least:
            break
        image = (a * along).sum(1)
        step = size / float((along * image).sum())
        x, rest = x + step * along, rest - step * image
        size, before = float((rest * rest).sum()), size
        along = rest + (size / before) * along
    return x


def _targets(log_s: Sequence[float]) -> Values:
    """Targets of the regression: log seconds bounded above, failures behind all that ran."""
    ran = [t for t in log_s if t < math.inf]
    top = min(max(ran), min(ran) + _SLOWEST)
    return np.array([min(t, top) if t < math.inf else top + _FAILED for t in log_s], np.float64)
