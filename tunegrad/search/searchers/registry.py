"""Every searcher by its name: what sessions, the replay bench and the tests ask for."""

from __future__ import annotations

from random import Random
from typing import get_args

from tunegrad.config import Searcher as SearcherName
from tunegrad.errors import ConfigError, InternalError

from ..protocols import Searcher, SearchSpace
from .bayesian import BayesianSearcher, optuna_installed
from .beam import BeamSearcher
from .evolution import EvolutionarySearcher
from .exhaustive import ExhaustiveSearcher
from .portfolio import PortfolioSearcher
from .random import RandomSearcher


def searcher_names() -> tuple[str, ...]:
    """The names that a setting may give, in the order of ``config.Searcher``."""
    return get_args(SearcherName)


def check_searcher(name: str) -> None:
    """Raise ConfigError for an unknown searcher, and for one whose package is not installed."""
    if name not in searcher_names():
        raise ConfigError(f"searcher {name!r} is unknown; valid: {', '.join(searcher_names())}")
    if name == "bayesian" and not optuna_installed():
        raise ConfigError(
            "searcher bayesian: the package optuna is not installed: pip install 'tunegrad[optuna]'"
        )


def make_searcher(name: str, space: SearchSpace, rng: Random) -> Searcher:
    """A fresh searcher of that name on a space; every draw comes from ``rng``.

    ConfigError as by ``check_searcher``.
    """
    check_searcher(name)
    match name:
        case "beam":
            return BeamSearcher(space, rng)
        case "random":
            return RandomSearcher(space, rng)
        case "exhaustive":
            return ExhaustiveSearcher(space, rng)
        case "bayesian":
            return BayesianSearcher(space, rng)
        case "evolutionary":
            return EvolutionarySearcher(space, rng)
        case "portfolio":
            return PortfolioSearcher(space, rng)
        case _:
            raise InternalError(
                f"searcher {name!r} is a name that a setting may give, but nothing makes it"
            )
