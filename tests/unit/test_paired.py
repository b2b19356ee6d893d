"""How sure a gain is: an interval of the median ratio of pairs."""

from __future__ import annotations

import random

from tunegrad.paired import gain_interval


def test_fewer_than_six_pairs_say_nothing() -> None:
    assert gain_interval([2.0] * 5, [1.0] * 5) is None
    assert gain_interval([2.0] * 6, [1.0] * 6) == (2.0, 2.0)


def test_interval_of_twelve_pairs_is_between_the_third_and_the_tenth() -> None:
    shuffled = [float(n) for n in range(10, 22)]
    random.Random(0).shuffle(shuffled)
    assert gain_interval(shuffled, [1.0] * 12) == (12.0, 19.0)


def test_pairs_are_compared_turn_by_turn() -> None:
    turns = [1.0, 5.0, 2.0, 8.0, 3.0, 1.5, 9.0, 4.0]
    assert gain_interval([2 * s for s in turns], turns) == (2.0, 2.0)


def test_interval_holds_the_median_in_nineteen_of_twenty_cases() -> None:
    rng, held = random.Random(1), 0
    for _ in range(1000):
        ratios = [rng.lognormvariate(0.0, 0.3) for _ in range(24)]
        found = gain_interval(ratios, [1.0] * 24)
        assert found is not None
        held += found[0] <= 1.0 <= found[1]
    assert held >= 940
