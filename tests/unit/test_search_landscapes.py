"""On most of thirty seeded surfaces (ten in every run), every searcher that learns beats random at
equal trials.
"""

from functools import cache
from random import Random
from statistics import fmean

import pytest
from search_landscapes import area, landscape

from tunegrad.opts import DefaultChooser
from tunegrad.search import RandomSearcher, make_searcher
from tunegrad.trial import Status

FEW, ALL = 10, pytest.param(30, marks=pytest.mark.slow)
TRIALS = 80
LEARNERS = {"beam": 0.8, "bayesian": 2 / 3, "evolutionary": 0.8, "portfolio": 0.8}
"""The share of surfaces on which each has to be better, with one search on each."""


@cache
def random_area(surface: int) -> float:
    """Of random search, the mean of three seeds."""
    return fmean(area(RandomSearcher, surface, 100 + r, TRIALS) for r in range(3))


@cache
def area_of(name: str, surface: int) -> float:
    return area(lambda space, rng: make_searcher(name, space, rng), surface, surface, TRIALS)


@pytest.mark.parametrize("count", [FEW, ALL])
@pytest.mark.parametrize("name", LEARNERS)
def test_search_beats_random_on_most_surfaces(name, count):
    worse = [s for s in range(count) if area_of(name, s) >= random_area(s)]
    assert count - len(worse) >= LEARNERS[name] * count, worse


@pytest.mark.slow
def test_search_portfolio_is_hardly_behind_its_best_member():
    """By the gain over random search, in the mean over all surfaces."""
    surfaces = range(30)
    random = fmean(map(random_area, surfaces))
    gains = {name: random - fmean(area_of(name, s) for s in surfaces) for name in LEARNERS}
    best = max(gain for name, gain in gains.items() if name != "portfolio")
    assert gains["portfolio"] >= 0.9 * best, gains


@pytest.mark.parametrize("seed", range(3))
def test_search_landscape_is_the_same_every_time_and_its_default_runs(seed):
    space, surface = landscape(seed)
    default = space.sample(DefaultChooser())
    assert surface.measure(default).status is Status.OK
    assert landscape(seed)[1] == surface
    assert RandomSearcher(space, Random(0)).ask(20)
