"""Evolutionary search keeps the contract of a searcher."""

import pytest
from searcher_suite import SearcherSuite

from tunegrad.search import EvolutionarySearcher


class TestEvolutionarySearcher(SearcherSuite):
    @pytest.fixture
    def make(self):
        return EvolutionarySearcher
