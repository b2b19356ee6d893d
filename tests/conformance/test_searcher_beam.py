"""Beam search keeps the contract of a searcher."""

import pytest
from searcher_suite import SearcherSuite

from tunegrad.search import BeamSearcher


class TestBeamSearcher(SearcherSuite):
    @pytest.fixture
    def make(self):
        return BeamSearcher


class TestNarrowBeamSearcher(SearcherSuite):
    @pytest.fixture
    def make(self):
        return lambda space, rng: BeamSearcher(space, rng, width=1, append=0.3)
