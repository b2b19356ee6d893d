"""A track on which plans take what a test says: ``compare`` gives samples of what stands and of a
challenger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pytest

from tunegrad.errors import CandidateFailure
from tunegrad.ir.fusion import LaunchPlan
from tunegrad.tuning.questions.plan import PlanDecisions
from tunegrad.tuning.questions.question import PlanTrack
from tunegrad.tuning.race import FAULTS, Pair

Compare = Callable[[LaunchPlan, LaunchPlan], tuple[list[float], list[float]]]


@dataclass
class Compared:
    """A ``race.Track`` of plans; who raises what is no fault of a race can not be made."""

    compare: Compare
    blamed: Callable[[str, LaunchPlan, CandidateFailure], None]
    most: int = 8

    def ready(
        self, stands: Mapping[str, LaunchPlan], lineups: Sequence[Mapping[str, LaunchPlan]]
    ) -> None:
        pass

    def turns(
        self,
        stands: Mapping[str, LaunchPlan],
        lineups: Sequence[Mapping[str, LaunchPlan]],
        rounds: int,
    ) -> list[dict[str, Pair]]:
        return [
            {key: p for key, plan in x.items() if (p := self._pair(stands[key], plan))}
            for x in lineups
        ]

    def _pair(self, stands: LaunchPlan, plan: LaunchPlan) -> Pair | None:
        try:
            return self.compare(stands, plan)
        except FAULTS:
            raise
        except CandidateFailure:
            return None

    def fresh(self) -> None:
        pass

    def blame(self, key: str, alternative: LaunchPlan, failure: CandidateFailure) -> None:
        self.blamed(key, alternative, failure)


def track_of(compare: Compare) -> PlanTrack:
    return lambda blamed: Compared(compare, blamed)


def raced_as(monkeypatch: pytest.MonkeyPatch, compare: Compare) -> None:
    """From now on plans of a session are raced by a test."""
    context = PlanDecisions._plan_context
    monkeypatch.setattr(
        PlanDecisions,
        "_plan_context",
        lambda self, work: replace(context(self, work), track=track_of(compare)),
    )
