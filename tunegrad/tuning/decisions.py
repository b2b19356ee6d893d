"""Rows of what whole models decide: the form of images, an edge of the graph, the variant of a kernel.

    what stands    its row is promoted without a contest, so that the question is settled
    a challenger   its row, its samples in the contest; promoted where it won; or how its model failed

A decision is a trial whose action text names what was chosen: ``images(last)``, ``plan(NAME)``, ``variant(NAME)``. Its
key is the hash of the text that the question is about.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import time

from tunegrad.db import Evidence, Store
from tunegrad.errors import CandidateCrashed, CandidateFailure, CandidateTimeout, OutOfResources, WrongResult
from tunegrad.events import Event, WinnerPromoted
from tunegrad.ir.keys import key_of
from tunegrad.opts import SPACE_VERSION
from tunegrad.search import Verdict
from tunegrad.trial import Fingerprint, Measurement, Policy, Status, Trial

from .contest import CONTEST_POLICY

_STATUS = {
    CandidateCrashed: Status.CRASHED,
    CandidateTimeout: Status.TIMED_OUT,
    OutOfResources: Status.OUT_OF_RESOURCES,
    WrongResult: Status.WRONG,
}

__all__ = ["DecisionRows", "evidence_of", "in_model", "status_of"]


def evidence_of(verdict: Verdict, samples: tuple[Sequence[float], Sequence[float]]) -> Evidence:
    """A contest as the store keeps it: samples of the incumbent and of the challenger, with warm caches."""
    return Evidence(verdict.test, verdict.p_value, tuple(samples[0]), tuple(samples[1]), cold=False)


def in_model(failure: CandidateFailure) -> str:
    """What a row says of a failure in a whole model."""
    return f"in the whole model: {status_of(failure)}: {failure}"


def status_of(failure: CandidateFailure) -> Status:
    """How a failure is stored."""
    for kind, status in _STATUS.items():
        if isinstance(failure, kind):
            return status
    return Status.COMPILE_ERROR


@dataclass(frozen=True, slots=True)
class DecisionRows:
    """Writes the rows of one kind of decision, by ``origin``: ``plan`` or ``variant``."""

    store: Store
    here: Fingerprint
    session: str
    origin: str

    def stands(self, text: str, actions: str, policy: Policy, samples_s: Sequence[float], test: str) -> None:
        """What was there first, promoted by ``test``, which compared it with nothing."""
        samples = tuple(samples_s)
        self.store.promote(self._add(text, actions, policy, samples), Evidence(test, 1.0, (), samples, cold=False))

    def challenged(
        self, text: str, actions: str, evidence: Evidence, won: bool, tell: Callable[[Event], None] | None = None
    ) -> None:
        """A challenger with its samples, promoted where it won; then ``tell`` hears of it."""
        number = self._add(text, actions, CONTEST_POLICY, evidence.challenger_samples_s)
        if not won:
            return
        self.store.promote(number, evidence)
        if tell is not None:
            key = key_of(text)
            best_s, previous_s = median(evidence.challenger_samples_s), median(evidence.incumbent_samples_s)
            tell(WinnerPromoted(self.store.kernel_name(key), key, actions, best_s, previous_s, self.origin))

    def failed(self, text: str, actions: str, failure: CandidateFailure) -> None:
        """A challenger that ended the contest, or whose model computes something else, twice in fresh processes."""
        self._keep(text, actions, CONTEST_POLICY, Measurement(status_of(failure), error=in_model(failure), attempts=2))

    def _add(self, text: str, actions: str, policy: Policy, samples_s: tuple[float, ...]) -> int:
        return self._keep(text, actions, policy, Measurement(Status.OK, samples_s))

    def _keep(self, text: str, actions: str, policy: Policy, measured: Measurement) -> int:
        return self.store.add(
            Trial(
                key_of(text), text, self.here, actions, "", SPACE_VERSION, policy, measured, self.session,
                self.origin, time(),
            )
        )  # fmt: skip
