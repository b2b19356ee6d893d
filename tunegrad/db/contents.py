"""All that a store holds, as one value: what export, import, merge, prune and diff are functions of.

    store file   -->   read_contents   -->   Contents   -->   a pure function   -->   Contents   -->   replace_contents

Two stores with equal contents say the same: row ids are the order of the rows, and nothing else depends on them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from tunegrad.db.records import IMPORTED, Evidence, Session
from tunegrad.db.rows import identity
from tunegrad.trial import Fingerprint, Trial

__all__ = [
    "Contents",
    "Identity",
    "Place",
    "Promotion",
    "Spend",
    "Winner",
    "Withdrawn",
    "fastest",
    "is_imported",
    "place_of",
    "winners",
]

Identity = tuple[str, Fingerprint, str, str, int]


class Place(NamedTuple):
    """Where figures compare and one trial wins: a kernel, a machine, a version of the space."""

    kernel_key: str
    fingerprint: Fingerprint
    space_version: int


@dataclass(frozen=True, slots=True)
class Promotion:
    """A trial became the winner of its place, and why. ``trial`` is its identity."""

    trial: Identity
    evidence: Evidence
    created_s: float

    @property
    def place(self) -> Place:
        return Place(self.trial[0], self.trial[1], self.trial[4])


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A trial shall never win again: which session said so, and why. ``trial`` is its identity."""

    trial: Identity
    reason: str
    session: str
    created_s: float

    @property
    def place(self) -> Place:
        return Place(self.trial[0], self.trial[1], self.trial[4])


@dataclass(frozen=True, slots=True)
class Spend:
    """Seconds of budget spent on a model with some settings on a machine."""

    model_key: str
    fingerprint: Fingerprint
    settings: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Contents:
    """Rows in the order of their ids; ``kernels`` are (text, name) by key, sessions by start, spends by their keys."""

    kernels: tuple[tuple[str, str], ...] = ()
    sessions: tuple[Session, ...] = ()
    trials: tuple[Trial, ...] = ()
    promotions: tuple[Promotion, ...] = ()
    spends: tuple[Spend, ...] = ()
    withdrawals: tuple[Withdrawn, ...] = ()

    @property
    def withdrawn(self) -> frozenset[Identity]:
        """The trials that shall not win."""
        return frozenset(w.trial for w in self.withdrawals)

    def by_identity(self) -> dict[Identity, Trial]:
        """Every trial by what makes it the same one."""
        return {identity(t): t for t in self.trials}

    def with_sound_promotions(self) -> Contents:
        """Without the promotions whose trial is not there, or is not a timed one; withdrawals of none likewise."""
        timed = {identity(t) for t in self.trials if t.measurement.ran}
        known = {identity(t) for t in self.trials} if self.withdrawals else set()
        return replace(
            self,
            promotions=tuple(p for p in self.promotions if p.trial in timed),
            withdrawals=tuple(w for w in self.withdrawals if w.trial in known),
        )


@dataclass(frozen=True, slots=True)
class Winner:
    """The winning trial of a place; ``promotion`` is None where it is only the fastest."""

    trial: Trial
    promotion: Promotion | None

    @property
    def time_s(self) -> float:
        """Median of the samples that decided: those of its promotion, else its own."""
        evidence = None if self.promotion is None else self.promotion.evidence
        samples = evidence.challenger_samples_s if evidence is not None else ()
        measured = replace(self.trial.measurement, samples_s=samples) if samples else self.trial.measurement
        return measured.seconds


def place_of(trial: Trial) -> Place:
    """The place that a trial competes in."""
    return Place(trial.kernel_key, trial.fingerprint, trial.space_version)


def is_imported(row: Trial | Promotion | Withdrawn) -> bool:
    """Whether a row came out of a file of somebody else, rather than from a measurement of this store's owner."""
    if isinstance(row, Withdrawn):
        return row.reason.startswith(IMPORTED)
    return row.origin.startswith(IMPORTED) if isinstance(row, Trial) else row.evidence.imported


def winners(contents: Contents) -> dict[Place, Winner]:
    """The winner of every place that has one, by the store's own rule: promoted last, else the fastest.

    Figures of two policies do not compare: with no promotion, only the policy of the newest OK trial counts. A
    withdrawn trial does not win; where one was withdrawn, only a promotion makes a winner, not speed.
    """
    trials = contents.by_identity()
    withdrawn, void = contents.withdrawn, {w.place for w in contents.withdrawals}
    found: dict[Place, Winner] = {}
    for promotion in contents.promotions:
        trial = trials.get(promotion.trial)
        if trial is not None and trial.measurement.ran and promotion.trial not in withdrawn:
            found[promotion.place] = Winner(trial, promotion)
    return fastest(t for t in contents.trials if place_of(t) not in found.keys() | void) | found


def fastest(trials: Iterable[Trial]) -> dict[Place, Winner]:
    """Per place the fastest OK trial of the newest OK trial's policy, the older of equals; trials oldest first."""
    timed: dict[Place, list[Trial]] = {}
    for trial in trials:
        if trial.measurement.ran:
            timed.setdefault(place_of(trial), []).append(trial)
    found = {}
    for place, rivals in timed.items():
        policy = rivals[-1].policy.text
        best = min((t for t in rivals if t.policy.text == policy), key=lambda t: t.measurement.seconds)
        found[place] = Winner(best, None)
    return found
