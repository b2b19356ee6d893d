"""How far a model in 16 bits is said to be from the model as it was."""

from __future__ import annotations

from math import inf, sqrt

import numpy as np

from tunegrad.planning import deviation
from tunegrad.reports import Deviation, to_json

FULL = np.array([3.0, -4.0, 0.0, 0.0], np.float32)


def test_it_is_relative_to_the_largest_output_and_to_their_root_mean_square() -> None:
    found = deviation([FULL + np.float32([0, 0, 0.5, 0])], [FULL])
    assert found == Deviation(0.5 / 4, 0.5 / sqrt(9 + 16))


def test_of_several_outputs_the_worst_counts_and_integers_do_not() -> None:
    ids = np.arange(4)
    found = deviation([FULL, FULL * 1.5, ids + 1], [FULL, FULL, ids])
    assert found == Deviation(0.5, 0.5)


def test_an_overflow_is_infinitely_far_off_and_null_in_json() -> None:
    got = FULL.copy()
    got[0] = inf
    assert deviation([got], [FULL]) == Deviation(inf, inf)
    assert to_json(deviation([got], [FULL])) == {"largest": None, "rms": None}


def test_where_the_model_in_f32_is_not_finite_nothing_is_said() -> None:
    full = np.float32([inf, np.nan, 2.0])
    assert deviation([np.float32([1.0, 1.0, 2.0])], [full]) == Deviation(0.0, 0.0)


def test_nothing_is_not_off() -> None:
    empty = np.zeros(0, np.float32)
    assert deviation([empty], [empty]) == deviation([], []) == Deviation(0.0, 0.0)
    assert deviation([empty[:0]], [empty]).largest == 0.0
