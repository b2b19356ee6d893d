"""Every searcher keeps the contract of a searcher; to exhaustive search the seed has nothing to
say.
"""

from random import Random

import pytest
from search_surface import separable
from searcher_suite import SearcherSuite, play

from tunegrad.search import (
    BayesianSearcher,
    BeamSearcher,
    EvolutionarySearcher,
    ExhaustiveSearcher,
    PortfolioSearcher,
    RandomSearcher,
)

SEARCHERS = {
    "bayesian": BayesianSearcher,
    "beam": BeamSearcher,
    "narrow beam": lambda space, rng: BeamSearcher(space, rng, width=1, append=0.3),
    "evolutionary": EvolutionarySearcher,
    "portfolio": PortfolioSearcher,
    "random": RandomSearcher,
}


class TestSearcher(SearcherSuite):
    @pytest.fixture(params=SEARCHERS)
    def make(self, request):
        return SEARCHERS[request.param]


class TestExhaustiveSearcher(SearcherSuite):
    @pytest.fixture
    def make(self):
        return ExhaustiveSearcher

    def test_searcher_other_seed_gives_other_asks(self, make):
        """It goes through the space in order, which is what it is for: all seeds ask alike."""
        space, surface = separable(Random(3))
        assert play(make(space, Random(7)), space, surface, 40) == play(
            make(space, Random(8)), space, surface, 40
        )
