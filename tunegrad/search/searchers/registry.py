"""Every searcher by its name: what sessions, the replay bench and the tests ask for."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import get_args

from tunegrad import config
from tunegrad.errors import ConfigError

from ..protocols import Searcher, SearchSpace
from .bayesian import BayesianSearcher, optuna_installed
from .beam import BeamSearcher
from .evolution import EvolutionarySearcher
from .exhaustive import ExhaustiveSearcher
from .portfolio import PortfolioSearcher
from .random import RandomSearcher

_SEARCHERS: dict[str, Callable[[SearchSpace, Random], Searcher]] = {
    "beam": BeamSearcher,
    "random": RandomSearcher,
    "exhaustive": ExhaustiveSearcher,
    "bayesian": BayesianSearcher,
    "evolutionary": EvolutionarySearcher,
    "portfolio": PortfolioSearcher,
}


def searcher_names() -> tuple[str, ...]:
    """The names that a setting may give, in the order of ``config.Searcher``."""
    return get_args(config.Searcher)


def check_searcher(name: str) -> None:
    """Raise ConfigError for an unknown searcher, and for one whose package is not installed."""
    if config.check_searcher(name) == "bayesian" and not optuna_installed():
        raise ConfigError(
            "searcher bayesian: the package optuna is not installed: pip install 'tunegrad[optuna]'"
        )


def make_searcher(name: str, space: SearchSpace, rng: Random) -> Searcher:
    """A fresh searcher of that name on a space; every draw comes from ``rng``.

    ConfigError as by ``check_searcher``.
    """
    check_searcher(name)
    return _SEARCHERS[name](space, rng)
