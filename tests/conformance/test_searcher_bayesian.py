"""Bayesian search keeps the contract of a searcher."""

import pytest
from searcher_suite import SearcherSuite

from tunegrad.search import BayesianSearcher


class TestBayesianSearcher(SearcherSuite):
    @pytest.fixture
    def make(self):
        return BayesianSearcher
