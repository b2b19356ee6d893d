"""What decisions about a graph rest on: measured parts, a race of whole plans, and the store that
keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tunegrad.config import Numerics
from tunegrad.db import Question, Store
from tunegrad.errors import CandidateFailure
from tunegrad.events import Event
from tunegrad.ir.fusion import LaunchPlan
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.trial import Fingerprint

from .decisions import DecisionRows
from .race import Choice, Met, Track, race

__all__ = ["HOPELESS", "SLOWER", "Grounds", "Measure", "PlanTrack"]

HOPELESS = 1.25
"""Alternatives that are expected to take this much longer are not measured."""

SLOWER = 2.0
"""What default schedules take, about, in times of what a model of the machine expects."""

Measure = Callable[[Sequence[Kernel]], dict[str, float]]
"""Verifies and times default schedules: seconds by key, infinity where none ran."""

PlanTrack = Callable[[Callable[[str, LaunchPlan, CandidateFailure], None]], Track[LaunchPlan]]
"""Where plans of a model are raced; the function is told which one ended a race."""


@dataclass(frozen=True, slots=True)
class Grounds:
    """What the decisions about one model's graph have in common."""

    target: Target
    here: Fingerprint
    store: Store
    session: str
    numerics: Numerics
    measure: Measure
    track: PlanTrack
    tell: Callable[[Event], None]

    def rows(self, kind: Question) -> DecisionRows:
        """Where decisions of one kind are written."""
        return DecisionRows(self.store, self.here, self.session, kind)

    def raced(
        self,
        kind: Question,
        text: str,
        stands: LaunchPlan,
        others: dict[str, LaunchPlan],
        deadline_s: float,
    ) -> tuple[str, Met[LaunchPlan]] | None:
        """The name of the plan that came nearest, and what was found of it.

        None where no other one ran.

        A plan that ends the race has a row that says so. Raises CandidateFailure where what stands
        does not run.
        """
        names = {id(plan): name for name, plan in others.items()}

        def failed(_: str, plan: LaunchPlan, error: CandidateFailure) -> None:
            self.rows(kind).failed(text, names[id(plan)], error)

        met = race(
            [Choice(kind, stands, tuple(others.values()))], self.track(failed), deadline_s
        ).get(kind)
        return None if met is None else (names[id(met.alternative)], met)
