"""Searchers, the search of one kernel, the budget over a model's kernels, the test before a winner is replaced."""

from tunegrad.search.beam import BeamSearcher
from tunegrad.search.budget import BudgetPolicy, ModelSearch
from tunegrad.search.driver import KernelSearch, Result, SearchTask, Step, Winner
from tunegrad.search.promote import LEAST_EFFECT, TEST, Evidence, decide
from tunegrad.search.protocols import Measured, Measurer, Proposal, Searcher, SearchSpace, TrialStore
from tunegrad.search.random import RandomChooser, RandomSearcher
from tunegrad.search.registry import make_searcher, searcher_names
from tunegrad.search.trial_log import TrialLog

__all__ = [
    "LEAST_EFFECT",
    "TEST",
    "BeamSearcher",
    "BudgetPolicy",
    "Evidence",
    "KernelSearch",
    "Measured",
    "Measurer",
    "ModelSearch",
    "Proposal",
    "RandomChooser",
    "RandomSearcher",
    "Result",
    "SearchSpace",
    "SearchTask",
    "Searcher",
    "Step",
    "TrialLog",
    "TrialStore",
    "Winner",
    "decide",
    "make_searcher",
    "searcher_names",
]
