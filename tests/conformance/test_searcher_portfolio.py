"""Portfolio search keeps the contract of a searcher."""

import pytest
from searcher_suite import SearcherSuite

from tunegrad.search import PortfolioSearcher


class TestPortfolioSearcher(SearcherSuite):
    @pytest.fixture
    def make(self):
        return PortfolioSearcher
