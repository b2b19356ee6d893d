"""Identity of trials: one row said twice, or two measurements of one thing.

subject    kernel, machine, actions, policy, space version: what is measured, and how
identity   the subject, and the session and the moment that measured it: one row
standing   of all measurements of a subject the one that counts
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from tunegrad.db.records import imported
from tunegrad.trial import Fingerprint, Status, Trial

__all__ = [
    "Identity",
    "Place",
    "Subject",
    "identity",
    "measured_again",
    "place_of",
    "standing",
    "stands_among",
    "subject",
    "wrong_of",
]

_Key = TypeVar("_Key")


class Place(NamedTuple):
    """The place in which figures compare and one trial wins: a kernel, a machine, a version of the
    space.
    """

    kernel_key: str
    fingerprint: Fingerprint
    space_version: int


class Subject(NamedTuple):
    """The subject of a measurement, and its conditions; the policy by its text."""

    kernel_key: str
    fingerprint: Fingerprint
    actions: str
    policy: str
    space_version: int

    @property
    def place(self) -> Place:
        """The place in which it competes."""
        return Place(self.kernel_key, self.fingerprint, self.space_version)


class Identity(NamedTuple):
    """One row: what was measured, by which session, when in seconds since the epoch."""

    subject: Subject
    session: str
    created_s: float

    @property
    def place(self) -> Place:
        """The place in which it competes."""
        return self.subject.place


def subject(trial: Trial) -> Subject:
    """The subject of a trial."""
    policy = trial.policy.text
    return Subject(trial.kernel_key, trial.fingerprint, trial.actions, policy, trial.space_version)


def identity(trial: Trial) -> Identity:
    """The identity of a trial's row."""
    return Identity(subject(trial), trial.session, trial.created_s)


def place_of(trial: Trial) -> Place:
    """The place that a trial competes in."""
    return Place(trial.kernel_key, trial.fingerprint, trial.space_version)


def stands_among(measurements: Iterable[Trial]) -> Trial:
    """The measurement of a subject that counts; they are given the oldest first, and there is one.

    Measured here before claimed by a file; a wrong one before all others, as a result that was
    wrong once is not trusted; a confirmed end before a crash that was seen once only; the newest.
    """
    *_, best = sorted(measurements, key=_rank)  # sorting is stable: of equals the newest comes last
    return best


def standing(trials: Iterable[Trial]) -> list[Trial]:
    """Of every subject the measurement that counts, in the order given: the oldest first."""
    given = list(trials)
    if len({t.actions for t in given}) == len(given):
        return given  # nothing was measured twice: subjects are dear to compare
    found: dict[Subject, list[Trial]] = {}
    for trial in given:
        found.setdefault(subject(trial), []).append(trial)
    chosen = {id(stands_among(measurements)) for measurements in found.values()}
    return [t for t in given if id(t) in chosen]


def wrong_of(measurements: Iterable[tuple[_Key, Trial]]) -> tuple[_Key, Trial] | None:
    """The oldest wrong measurement of a subject of which another ran: that withdraws it.

    What a file claims withdraws nothing.
    """
    given = list(measurements)
    wrong = [x for x in given if x[1].measurement.status is Status.WRONG and not imported(x[1])]
    if not wrong or not any(t.measurement.status is Status.OK for _, t in given):
        return None
    return min(wrong, key=lambda x: (x[1].created_s, x[1].session))


def measured_again(error: str) -> str:
    """Reason for withdrawing what ran well: a later measurement came out wrong."""
    return f"measured again, it was wrong: {error}"


def _rank(trial: Trial) -> tuple[bool, bool, bool]:
    m = trial.measurement
    return not imported(trial), m.status is Status.WRONG, m.settled
