"""The cost model ranks what it has not seen, takes failures for slow, and says the same every
time.
"""

import math
from random import Random

import numpy as np
import pytest
from search_landscapes import landscape

from benchmarks.ranking import ranking_accuracy
from tunegrad.errors import IllegalAction
from tunegrad.search import CostModel, RandomChooser


def rows(seed, count):
    """Random rows of a surface: decisions, and log seconds."""
    space, surface = landscape(seed)
    rng = Random(seed)
    found = {}
    while len(found) < count:
        try:
            schedule = space.sample(RandomChooser(rng))
        except IllegalAction:
            continue
        found[schedule.text] = (
            {d.name: d.choice for d in schedule.trace},
            math.log(surface.measure(schedule).seconds),
        )
    return list(found.values())


@pytest.mark.parametrize("seed", [0, 3, 6])
def test_cost_model_orders_four_of_five_held_out_pairs(seed):
    found = rows(seed, 300)
    known, held = found[:200], found[200:]
    model = CostModel()
    model.fit([r for r, _ in known], [t for _, t in known])
    forecast = model.predict([r for r, _ in held])
    assert ranking_accuracy(forecast, [t for _, t in held]) >= 0.8


def test_cost_model_takes_failures_for_slow():
    model = CostModel()
    model.fit(
        [{"a": float(i % 2), "b": float(i)} for i in range(40)],
        [math.inf if i % 2 else -5.0 for i in range(40)],
    )
    ran, failed = model.predict([{"a": 0.0, "b": 3.0}, {"a": 1.0, "b": 3.0}])
    assert ran < failed


def test_cost_model_forecasts_alike_twice():
    known = rows(1, 80)
    forecasts = []
    for _ in range(2):
        model = CostModel()
        model.fit([r for r, _ in known], [t for _, t in known])
        forecasts.append(model.predict([r for r, _ in known]))
    assert np.array_equal(*forecasts)


def test_cost_model_that_learned_nothing_forecasts_nothing():
    model = CostModel()
    assert model.predict([{"a": 1.0}]).tolist() == [0.0]
    model.fit([{"a": 1.0}, {"a": 2.0}], [math.inf, -3.0])
    assert not model.fitted


def test_cost_model_takes_rows_with_names_it_does_not_know():
    model = CostModel()
    model.fit([{"a": float(i)} for i in range(20)], [float(i) for i in range(20)])
    assert model.predict([{"b": 1.0}]).shape == (1,)


def test_ranking_accuracy_counts_pairs():
    assert ranking_accuracy([1.0, 2.0, 3.0], [10.0, 20.0, 30.0]) == 1.0
    assert ranking_accuracy([3.0, 2.0, 1.0], [10.0, 20.0, 30.0]) == 0.0
    assert ranking_accuracy([1.0, 1.0], [10.0, 20.0]) == 0.5
    assert ranking_accuracy([2.0, 1.0, 9.0], [10.0, 10.5, 20.0], apart=1.0) == 1.0
    assert math.isnan(ranking_accuracy([1.0], [1.0]))
