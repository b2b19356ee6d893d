"""Plans of one model against each other: how many turns, what they cost, and the times of a kernel among launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tunegrad.errors import CandidateCrashed, CandidateTimeout, WrongResult
from tunegrad.ir.fusion import Schedule
from tunegrad.trial import Policy

from .models import turn_order
from .models.work import RUNS

__all__ = [
    "CONTEST_POLICY",
    "FAULTS",
    "ROUNDS",
    "Compare",
    "by_kernel",
    "contest_s",
    "profiled_s",
    "turn_order",
]

ROUNDS = 12
"""Turns of everyone, as a rule."""

_COMPILE_S = 0.05
_SLOWER = 2.0
"""What default schedules take, about, in times of what a model of the machine expects."""

CONTEST_POLICY = Policy(cache="warm", min_samples=ROUNDS, max_samples=ROUNDS)
"""How the samples of a contest are taken."""

Compare = Callable[[Schedule, Schedule], tuple[list[float], list[float]]]
"""Samples of a plan and of its challenger, in seconds. Raises one of ``FAULTS`` for what the challenger did, twice."""

FAULTS = (CandidateCrashed, CandidateTimeout, WrongResult)
"""How a model that compiled can fail: its process ends, it hangs, or computes something else."""


def contest_s(plans: Sequence[Schedule], expected_s: Sequence[float]) -> float:
    """Seconds that a contest of plans takes, about: compiling them, and runs of what is expected of each."""
    kernels = {key for plan in plans for key in plan.kernels()}
    return _COMPILE_S * len(kernels) + ROUNDS * RUNS * _SLOWER * sum(expected_s)


def by_kernel(turns: Sequence[Sequence[float]], places: Mapping[str, Sequence[slice]]) -> dict[str, list[float]]:
    """Turn by turn, the mean over the uses of each kernel; ``places`` are the launches of every use of it."""
    return {key: [sum(sum(turn[u]) for u in uses) / len(uses) for turn in turns] for key, uses in places.items()}


def profiled_s(models_s: Sequence[float], rounds: int = ROUNDS) -> float:
    """Seconds that ``profiled`` takes, about, by what each model takes."""
    return rounds * RUNS * sum(models_s)
