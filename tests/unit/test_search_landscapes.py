"""On most of thirty seeded surfaces, every searcher that learns beats random search at equal trials."""

from functools import cache
from random import Random
from statistics import fmean

import pytest
from search_landscapes import area, landscape

from tunegrad.opts import DefaultChooser
from tunegrad.search import RandomSearcher, make_searcher
from tunegrad.trial import Status

SURFACES = 30
TRIALS = 80
LEARNERS = {"beam": 0.8, "bayesian": 2 / 3, "evolutionary": 0.8, "portfolio": 0.8}
"""The share of surfaces on which each has to be better, with one search on each."""


@cache
def random_areas() -> tuple[float, ...]:
    """Of random search on each surface, the mean of three seeds."""
    return tuple(fmean(area(RandomSearcher, s, 100 + r, TRIALS) for r in range(3)) for s in range(SURFACES))


@cache
def areas(name: str) -> tuple[float, ...]:
    return tuple(area(lambda sp, rng: make_searcher(name, sp, rng), s, s, TRIALS) for s in range(SURFACES))


@pytest.mark.parametrize("name", LEARNERS)
def test_search_beats_random_on_most_surfaces(name):
    better = [mine < theirs for mine, theirs in zip(areas(name), random_areas(), strict=True)]
    assert sum(better) >= LEARNERS[name] * SURFACES, [s for s, b in enumerate(better) if not b]


def test_search_portfolio_is_hardly_behind_its_best_member():
    """By the gain over random search, in the mean over all surfaces."""
    gains = {name: fmean(random_areas()) - fmean(areas(name)) for name in LEARNERS}
    best = max(gain for name, gain in gains.items() if name != "portfolio")
    assert gains["portfolio"] >= 0.9 * best, gains


@pytest.mark.parametrize("seed", range(3))
def test_search_landscape_is_the_same_every_time_and_its_default_runs(seed):
    space, surface = landscape(seed)
    default = space.sample(DefaultChooser())
    assert surface.measure(default).status is Status.OK
    assert landscape(seed)[1] == surface
    assert RandomSearcher(space, Random(0)).ask(20)
