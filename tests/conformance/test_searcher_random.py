"""Random search keeps the contract of a searcher."""

import pytest
from searcher_suite import SearcherSuite

from tunegrad.search import RandomSearcher


class TestRandomSearcher(SearcherSuite):
    @pytest.fixture
    def make(self):
        return RandomSearcher
