"""Plans of one model against each other: whole, compiled, in turns.

    turn 0:  A  B  C
    turn 1:  B  C  A
    turn 2:  C  A  B
    turn 3:  C  B  A  ...

Everybody has every place equally often, and follows itself equally often: who does finds its constants in the caches.
In turns that only change their direction the first and the last one always do, and seemed two to four per cent faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tunegrad.inference import LoadedModel
from tunegrad.ir.fusion import Schedule
from tunegrad.trial import Policy

__all__ = [
    "CONTEST_POLICY",
    "ROUNDS",
    "Compare",
    "Contest",
    "by_kernel",
    "contest_s",
    "interleaved",
    "profiled",
    "profiled_s",
    "turn_order",
]

ROUNDS = 12
"""Turns of everyone, as a rule."""

_RUNS = 3
_COMPILE_S = 0.05
_SLOWER = 2.0
"""What default schedules take, about, in times of what a model of the machine expects."""

CONTEST_POLICY = Policy(cache="warm", min_samples=ROUNDS, max_samples=ROUNDS)
"""How the samples of a contest are taken."""

Compare = Callable[[Schedule, Schedule], tuple[list[float], list[float]]]
"""Samples of a plan and of its challenger, in seconds."""


@dataclass(slots=True)
class Contest:
    """Compares plans as models made by ``made``. Mutable: the last two are kept, one of them is in the next contest."""

    made: Callable[[Schedule], LoadedModel]
    kept: dict[str, LoadedModel] = field(default_factory=dict)

    def __call__(self, plan: Schedule, challenger: Schedule) -> tuple[list[float], list[float]]:
        """Samples of both, in seconds. Raises CandidateFailure where a kernel has no schedule that runs."""
        found: dict[str, LoadedModel] = {}
        for p in (plan, challenger):
            key = " ".join(f"{x.kernel.key}{x.args}" for x in p.launches)
            found[key] = self.kept.get(key) or self.made(p)
        self.kept = found
        first, *others = found.values()
        return interleaved(first, others[0] if others else first)


def contest_s(plans: Sequence[Schedule], expected_s: Sequence[float]) -> float:
    """Seconds that a contest of plans takes, about: compiling them, and runs of what is expected of each."""
    kernels = {key for plan in plans for key in plan.kernels()}
    return _COMPILE_S * len(kernels) + ROUNDS * _RUNS * _SLOWER * sum(expected_s)


def turn_order(count: int, turn: int) -> list[int]:
    """Who comes when in a turn, of ``count`` contestants: the start goes round, then the direction changes."""
    order = [(i + turn) % count for i in range(count)]
    return order if turn // count % 2 == 0 else order[::-1]


def interleaved(a: LoadedModel, b: LoadedModel) -> tuple[list[float], list[float]]:
    """Samples of two models in turns; the first of every turn only warms the caches."""
    samples: tuple[list[float], list[float]] = ([], [])
    for turn in range(ROUNDS):
        for side in turn_order(2, turn):
            samples[side].append(min((a, b)[side].benchmark_s(_RUNS)[1:]))
    return samples


def profiled(models: Sequence[LoadedModel], rounds: int = ROUNDS) -> list[list[tuple[float, ...]]]:
    """Seconds of every launch, by model and by turn, of models that run in turns; the first run only warms the caches.

    Each kernel is timed where the whole model leaves its inputs and constants.
    """
    turns: list[list[tuple[float, ...]]] = [[] for _ in models]
    for turn in range(rounds):
        for i in turn_order(len(models), turn):
            models[i].benchmark_s(1)
            turns[i].append(tuple(s for _, s in models[i].profile_s(_RUNS - 1)))
    return turns


def by_kernel(turns: Sequence[Sequence[float]], places: Mapping[str, Sequence[slice]]) -> dict[str, list[float]]:
    """Turn by turn, the mean over the uses of each kernel; ``places`` are the launches of every use of it."""
    return {key: [sum(sum(turn[u]) for u in uses) / len(uses) for turn in turns] for key, uses in places.items()}


def profiled_s(models_s: Sequence[float], rounds: int = ROUNDS) -> float:
    """Seconds that ``profiled`` takes, about, by what each model takes."""
    return rounds * _RUNS * sum(models_s)
