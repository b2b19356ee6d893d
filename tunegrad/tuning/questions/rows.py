"""Rows of what whole models decide: the form of images, an edge of the graph, the variant of a
kernel.

    what stands    it is chosen without a contest, so that the question is settled
    a challenger   its samples beside the incumbent's; chosen where it won; or how its model failed

A row names its question by the hash of the text that it is about: a graph, a region, a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import time

from tunegrad.db import Decision, Evidence, Question, Store
from tunegrad.errors import (
    CandidateCrashed,
    CandidateFailure,
    CandidateTimeout,
    OutOfResources,
    WrongResult,
)
from tunegrad.events import Event, WinnerPromoted
from tunegrad.ir.kernel import key_of
from tunegrad.opts import SPACE_VERSION
from tunegrad.trial import Fingerprint, Policy, Status, Trial

from ..race.values import PROOF_TURNS, Met

_STATUS = {
    CandidateCrashed: Status.CRASHED,
    CandidateTimeout: Status.TIMED_OUT,
    OutOfResources: Status.OUT_OF_RESOURCES,
    WrongResult: Status.WRONG,
}

__all__ = [
    "DecisionRows",
    "decided_here",
    "evidence_of",
    "in_model",
    "measured_here",
    "status_of",
]

_STANDING = "standing"
"""The test of a first incumbent, which met no challenger."""

_POLICY = Policy(cache="warm", min_samples=PROOF_TURNS, max_samples=PROOF_TURNS)
"""In turns, in whole models."""


def evidence_of(met: Met[object]) -> Evidence:
    """A race as the store keeps it: samples of the incumbent and of the challenger, with warm
    caches.
    """
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
    """Writes the rows of one kind of decision."""

    store: Store
    here: Fingerprint
    session: str
    kind: Question

    def stands(self, text: str, choice: str, samples_s: Sequence[float]) -> None:
        """Record the first incumbent, chosen without a contest."""
        evidence = Evidence(_STANDING, 1.0, (), tuple(samples_s), cold=False)
        self._record(text, choice, evidence, chosen=True)

    def challenged(
        self,
        text: str,
        choice: str,
        met: Met[object],
        tell: Callable[[Event], None] | None = None,
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
    """The decision of whole models on this machine; None where there is none, or a file
    claims it.
    """
    found = store.decision(question, key, here, SPACE_VERSION)
    return None if found is None or found.imported else found
