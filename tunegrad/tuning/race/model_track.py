"""Tracks of a race: whole models in turns, launch by launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tunegrad.errors import CandidateFailure

from ..models import ModelBench, Turns, WholeModel
from ..models.work import MOST_BYTES, MOST_TURNS, RUNS
from ..workload import Workload
from .values import AT_ONCE, HEAT_TURNS, PROOF_TURNS, TOTAL, Pair

__all__ = [
    "Blamed",
    "ModelTrack",
    "Places",
    "compared_s",
    "least_s",
    "most_at_once",
    "most_compared_s",
]

A = TypeVar("A")

_LEAST_S = 0.5
"""A race of models starts a process, compiles, and checks what models compute: about so long."""

_CHECKS, _PAIRED = 6, 4
"""Runs of a model that check it, and its fewest turns."""

Blamed = Callable[[str, A, CandidateFailure], None]
"""Is told which alternative, of which choice, ended a race, and how."""

Places = Mapping[str, Sequence[slice]]
"""Places of the launches of each choice in a model, use by use."""


def most_at_once(work: Workload) -> int:
    """Number of models that run beside the first, for the memory of their constants; at least
    one.
    """
    constants = sum(b.nbytes for b in work.plan.buffers if b.role == "const")
    return max(1, min(AT_ONCE, MOST_BYTES // max(1, constants) - 1))


def least_s(both_s: float) -> float:
    """Seconds that the least race of models takes, about: one heat and one look at a proof of two
    models, which are expected to take ``both_s`` together.
    """
    return _LEAST_S + (HEAT_TURNS + PROOF_TURNS) * RUNS * both_s


def compared_s(both_s: float) -> float:
    """Seconds that it takes to check two models and to compare them in the fewest turns, about."""
    return _LEAST_S + (_CHECKS + _PAIRED * RUNS) * both_s


def most_compared_s(both_s: float) -> float:
    """Seconds that it takes in the most turns, about: what is reserved beyond is lost to the
    search.
    """
    return _LEAST_S + (_CHECKS + 2 * MOST_TURNS * RUNS) * both_s


@dataclass(slots=True)
class ModelTrack(Generic[A]):
    """Models in turns.

    ``made`` makes those of lineups, None for one that can not be made; ``places`` is where.

    ``blamed`` is called with the alternative that ended a race. Mutable: it keeps
    the models of the latest lineups.
    """

    bench: ModelBench
    made: Callable[[Sequence[Mapping[str, A]]], Sequence[WholeModel | None]]
    places: Callable[[Mapping[str, A]], Places]
    blamed: Blamed[A]
    most: int = AT_ONCE
    _models: list[WholeModel | None] = field(default_factory=list)

    def ready(self, stands: Mapping[str, A], lineups: Sequence[Mapping[str, A]]) -> None:
        """See ``Track``."""
        self._models = list(self.made([stands, *({**stands, **x} for x in lineups)]))
        if self._models[0] is None:
            raise CandidateFailure("what stands does not compile")
        self.bench.check([m for m in self._models if m is not None])

    def turns(
        self, stands: Mapping[str, A], lineups: Sequence[Mapping[str, A]], rounds: int
    ) -> list[dict[str, Pair]]:
        """See ``Track``; ``ready`` was called with the same lineups."""
        runs = iter(self.bench.profiled([m for m in self._models if m is not None], rounds))
        base = self._seconds(stands, next(runs))
        found: list[dict[str, Pair]] = []
        for model, lineup in zip(self._models[1:], lineups, strict=True):
            mine = {} if model is None else self._seconds({**stands, **lineup}, next(runs))
            found.append({key: (base[key], mine[key]) for key in (*lineup, TOTAL) if key in mine})
        return found

    def fresh(self) -> None:
        """See ``Track``."""
        self.bench.renew()

    def blame(self, key: str, alternative: A, failure: CandidateFailure) -> None:
        """See ``Track``."""
        self.blamed(key, alternative, failure)

    def _seconds(self, lineup: Mapping[str, A], turns: Turns) -> dict[str, list[float]]:
        """Turn by turn, the mean over the uses of each choice, and the sum of all launches."""
        taken = {
            key: [sum(sum(turn[u]) for u in uses) / len(uses) for turn in turns]
            for key, uses in self.places(lineup).items()
        }
        return {**taken, TOTAL: [sum(turn) for turn in turns]}
