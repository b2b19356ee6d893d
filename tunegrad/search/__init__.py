"""Searchers, the search of one kernel, the budget over a model's kernels, the test before a winner is replaced."""

from tunegrad.search.beam import BeamSearcher
from tunegrad.search.protocols import Measured, Measurer, Proposal, Searcher, SearchSpace, TrialStore
from tunegrad.search.random import RandomChooser, RandomSearcher

__all__ = [
    "BeamSearcher",
    "Measured",
    "Measurer",
    "Proposal",
    "RandomChooser",
    "RandomSearcher",
    "SearchSpace",
    "Searcher",
    "TrialStore",
]
