"""Searchers, a kernel's search, the budget of a model's kernels, the test of a promotion."""

from tunegrad.search.budget import BudgetPolicy, ModelSearch
from tunegrad.search.cost_model import CostModel, explained
from tunegrad.search.driver import KernelSearch
from tunegrad.search.promote import LEAST_EFFECT, LOOKS, Comparison, decide, fastest_ratio
from tunegrad.search.protocols import (
    Measured,
    Measurer,
    Proposal,
    Results,
    Searcher,
    SearchSpace,
    TrialStore,
)
from tunegrad.search.searchers import (
    BayesianSearcher,
    BeamSearcher,
    EvolutionarySearcher,
    ExhaustiveSearcher,
    PortfolioSearcher,
    RandomChooser,
    RandomSearcher,
    check_searcher,
    make_searcher,
    optuna_installed,
    searcher_names,
)
from tunegrad.search.seeds import Shape, adapted, distance, seeds_from
from tunegrad.search.steps import Result, SearchTask, Step, Winner
from tunegrad.search.stopping import StopReason, StopRule
from tunegrad.search.trial_log import TrialLog, different

__all__ = [
    "LEAST_EFFECT", "LOOKS", "BayesianSearcher", "BeamSearcher", "BudgetPolicy", "Comparison",
    "CostModel", "EvolutionarySearcher", "ExhaustiveSearcher", "KernelSearch", "Measured",
    "Measurer", "ModelSearch", "PortfolioSearcher", "Proposal", "RandomChooser",
    "RandomSearcher", "Result", "Results", "SearchSpace", "SearchTask", "Searcher", "Shape",
    "Step", "StopReason", "StopRule", "TrialLog", "TrialStore", "Winner", "adapted",
    "check_searcher", "decide", "different", "distance", "explained", "fastest_ratio",
    "make_searcher", "optuna_installed", "searcher_names", "seeds_from",
]  # fmt: skip
