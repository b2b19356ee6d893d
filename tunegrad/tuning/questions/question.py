"""A question about a model's graph, and how it is decided: a race of whole plans, and its rows.

what stands, named others     -->   least hopeful last
a race of whole models        -->   what is proved faster runs from now on
                              -->   a row of what stands, and one of what came nearest
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import monotonic, time

from tunegrad.config import Numerics
from tunegrad.db import Decision, Evidence, Question, Store
from tunegrad.errors import (
    CandidateCrashed,
    CandidateFailure,
    CandidateTimeout,
    OutOfResources,
    WrongResult,
)
from tunegrad.events import Event, WinnerPromoted
from tunegrad.ir.fusion import LaunchPlan
from tunegrad.ir.kernel import key_of
from tunegrad.ir.target import Target
from tunegrad.opts import SPACE_VERSION
from tunegrad.planning import expected_plan_s
from tunegrad.trial import Fingerprint, Policy, Status, Trial

from ..race import PROOF_TURNS, Blamed, Choice, Met, Track, least_s, race

_STATUS = {
    CandidateCrashed: Status.CRASHED,
    CandidateTimeout: Status.TIMED_OUT,
    OutOfResources: Status.OUT_OF_RESOURCES,
    WrongResult: Status.WRONG,
}

_STANDING = "standing"
"""The test of a first incumbent, which met no challenger."""

_POLICY = Policy(cache="warm", min_samples=PROOF_TURNS, max_samples=PROOF_TURNS)
"""In turns, in whole models."""


def evidence_of(met: Met[object]) -> Evidence:
    """A race as stored: samples of the incumbent and of the challenger, warm caches."""
    found, (stands_s, others_s) = met.comparison, met.samples
    return Evidence(found.test, found.p_value, tuple(stands_s), tuple(others_s), cold=False)


def in_model(failure: CandidateFailure) -> str:
    """Text of a row about a failure in a whole model."""
    return f"in the whole model: {status_of(failure)}: {failure}"


def status_of(failure: CandidateFailure) -> Status:
    """Status under which a failure is stored."""
    for kind, status in _STATUS.items():
        if isinstance(failure, kind):
            return status
    return Status.COMPILE_ERROR


@dataclass(frozen=True, slots=True)
class DecisionRows:
    """Writes the rows of one kind of decision.

    what stands    it is chosen without a contest, so that the question is settled
    a challenger   its samples beside the incumbent's; chosen where it won; or how its model failed

    A row names its question by the hash of the text that it is about: a graph, a region, a kernel.
    """

    store: Store
    here: Fingerprint
    session: str
    kind: Question

    def stands(self, text: str, choice: str, samples_s: Sequence[float]) -> None:
        """Record the first incumbent, chosen without a contest."""
        evidence = Evidence(_STANDING, 1.0, (), tuple(samples_s), cold=False)
        self._record(text, choice, evidence, chosen=True)

    def challenged(
        self, text: str, choice: str, met: Met[object], tell: Callable[[Event], None] | None = None
    ) -> None:
        """A challenger with its samples, chosen where it won; then ``tell`` hears of it."""
        self._record(text, choice, evidence_of(met), chosen=met.won)
        if met.won and tell is not None:
            key = key_of(text)
            before_s, after_s = map(median, met.samples)
            name = self.store.kernel_name(key)
            tell(WinnerPromoted(name, key, choice, after_s, before_s, self.kind))

    def failed(self, text: str, choice: str, failure: CandidateFailure) -> None:
        """A challenger that ended the contest, or whose model computes something else, twice in
        fresh processes.
        """
        nothing = Evidence("failed", 1.0, (), (), cold=False)
        error, status = in_model(failure), status_of(failure)
        self._record(text, choice, nothing, chosen=False, status=status, error=error)

    def _record(
        self,
        text: str,
        choice: str,
        evidence: Evidence,
        *,
        chosen: bool,
        status: Status = Status.OK,
        error: str = "",
    ) -> None:
        self.store.record_decision(
            Decision(
                self.kind, text, choice, chosen, evidence, self.here, SPACE_VERSION, self.session,
                time(), status,
                error, _POLICY.text,
            )
        )  # fmt: skip


def measured_here(store: Store, key: str, here: Fingerprint) -> list[tuple[Trial, Evidence]]:
    """The promotions of a kernel that rest on samples of this machine, oldest first."""
    return [(t, e) for t, e in store.promotions(key, here) if not e.imported]


def decided_here(store: Store, question: Question, key: str, here: Fingerprint) -> Decision | None:
    """The decision of whole models on this machine; None without one but a file's."""
    found = store.decision(question, key, here, SPACE_VERSION)
    return None if found is None or found.imported else found


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
    data_s: float = 0.0
    """Seconds that inputs and outputs take once, beside the runs."""

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
        return monotonic() + least_s(sum(map(self.expected_s, both)), self.data_s) <= deadline_s

    def expected_s(self, plan: LaunchPlan) -> float:
        """Seconds that a model of the machine expects a plan to take."""
        return expected_plan_s(plan, self.target, self.numerics)
