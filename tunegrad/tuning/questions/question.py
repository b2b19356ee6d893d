"""A question about a model's graph, and how it is decided: a race of whole plans, and its rows.

what stands, named others     -->   least hopeful last
a race of whole models        -->   what is proved faster runs from now on
                              -->   a row of what stands, and one of what came nearest
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic

from tunegrad.config import Numerics
from tunegrad.db import Question, Store
from tunegrad.errors import CandidateFailure
from tunegrad.events import Event
from tunegrad.ir.fusion import LaunchPlan
from tunegrad.ir.target import Target
from tunegrad.planning import expected_plan_s
from tunegrad.trial import Fingerprint

from ..race.halving import race
from ..race.model_track import Blamed, least_s
from ..race.values import Choice, Track
from .rows import DecisionRows

__all__ = ["PlanContext", "PlanQuestion", "PlanTrack"]

PlanTrack = Callable[[Blamed[LaunchPlan]], Track[LaunchPlan]]
"""The track on which plans of a model are raced; the function is told which one ended a race."""


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """The question which of several plans of a model runs.

    ``text`` is what the decision is about, and ``title`` names it; ``others`` may take the place
    of ``stands``, the most hopeful first.
    """

    kind: Question
    text: str
    title: str
    stands: tuple[str, LaunchPlan]
    others: Mapping[str, LaunchPlan]


@dataclass(frozen=True, slots=True)
class PlanContext:
    """The context that the decisions about one model's graph have in common."""

    target: Target
    here: Fingerprint
    store: Store
    session: str
    numerics: Numerics
    track: PlanTrack
    tell: Callable[[Event], None]

    def decided(self, question: PlanQuestion, deadline_s: float) -> str | None:
        """The name of the plan that runs from now on; None where none could be measured.

        A plan that ends the race has a row that says so.
        """
        name, stands = question.stands
        slowest = max(question.others.values(), key=self.expected_s, default=None)
        if slowest is None or not self.fits((stands, slowest), deadline_s):
            return None
        rows = DecisionRows(self.store, self.here, self.session, question.kind)
        names = {id(plan): other for other, plan in question.others.items()}

        def failed(_: str, plan: LaunchPlan, error: CandidateFailure) -> None:
            rows.failed(question.text, names[id(plan)], error)

        choice = Choice("plan", stands, tuple(question.others.values()))
        try:
            met = race([choice], self.track(failed), deadline_s).get(choice.key)
        except CandidateFailure:
            return None
        if met is None:
            return None
        # What stands has the first row, so that a question without a better answer is settled.
        self.store.name_kernel(question.text, question.title)
        rows.stands(question.text, name, met.samples[0])
        rows.challenged(question.text, names[id(met.alternative)], met, self.tell)
        return names[id(met.alternative)] if met.won else name

    def fits(self, both: tuple[LaunchPlan, LaunchPlan], deadline_s: float) -> bool:
        """True when the least race of two plans is expected to end in time."""
        return monotonic() + least_s(sum(map(self.expected_s, both))) <= deadline_s

    def expected_s(self, plan: LaunchPlan) -> float:
        """Seconds that a model of the machine expects a plan to take."""
        return expected_plan_s(plan, self.target, self.numerics)
