"""Weights of a model that is tuned."""

from __future__ import annotations

import numpy as np

import tunegrad as tg
from tunegrad.tuning.workload import not_a_number, workload_of_function


def test_workload_names_weights_that_are_nan():
    weights = tg.Tensor(np.array([1.0, np.nan, 2.0], np.float32))
    bias = tg.Tensor(np.array([1.0, np.inf, 2.0], np.float32))

    def spoilt(x):
        return x * weights + bias

    def sound(x):
        return x + bias

    work = [workload_of_function(f, (np.ones(3, np.float32),)) for f in (spoilt, sound)]
    (warning,) = not_a_number(work)
    assert warning.startswith("model spoilt: weights that are NaN in ")
