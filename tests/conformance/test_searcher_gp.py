"""Search by Gaussian process keeps the contract of a searcher."""

from functools import partial

import pytest
from search_surface import needs_gp
from searcher_suite import SearcherSuite

from tunegrad.search import GpSearcher


@needs_gp
class TestGpSearcher(SearcherSuite):
    @pytest.fixture
    def make(self):
        return partial(GpSearcher, most=24)  # as a large study, but faster
