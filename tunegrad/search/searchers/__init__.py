"""Searchers: each proposes schedules of one kernel, and is told how long they take."""

from .bayesian import BayesianSearcher, optuna_installed
from .beam import BeamSearcher
from .evolution import EvolutionarySearcher
from .exhaustive import ExhaustiveSearcher
from .one_by_one import RandomChooser
from .portfolio import PortfolioSearcher
from .random import RandomSearcher
from .registry import check_searcher, make_searcher, searcher_names

__all__ = [
    "BayesianSearcher", "BeamSearcher", "EvolutionarySearcher", "ExhaustiveSearcher",
    "PortfolioSearcher", "RandomChooser", "RandomSearcher", "check_searcher", "make_searcher",
    "optuna_installed", "searcher_names",
]  # fmt: skip
