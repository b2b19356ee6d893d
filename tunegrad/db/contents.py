"""All that a store holds, as one value: export, import, merge, prune and diff are functions of it.

    store file --> read_contents --> Contents --> a pure function --> Contents --> replace_contents

Two stores with equal contents say the same: row ids are the order of the rows, and nothing else
depends on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import replace
from typing import NamedTuple, TypeVar

from tunegrad.db.records import IMPORTED, Decision, Evidence, Latency, Session, imported
from tunegrad.db.rows import key_of
from tunegrad.lazy import dataclass
from tunegrad.trial import Fingerprint, Status, Trial, middle

_Key = TypeVar("_Key")


class Place(NamedTuple):
    """The place in which figures compare and one trial wins: kernel, machine, space version."""

    kernel_key: str
    fingerprint: Fingerprint
    space_version: int


class Subject(NamedTuple):
    """The subject of a measurement, and its conditions; the policy by its text.

    subject    kernel, machine, actions, policy, space version: what is measured, and how
    identity   the subject, and the session and the moment that measured it: one row
    standing   of all measurements of a subject the one that counts
    """

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


@dataclass(frozen=True, slots=True)
class Promotion:
    """A trial became the winner of its place, and why. ``trial`` is its identity."""

    trial: Identity
    evidence: Evidence
    created_s: float

    @property
    def place(self) -> Place:
        return self.trial.place


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A trial shall never win again: which session said so, and why. ``trial`` is its identity."""

    trial: Identity
    reason: str
    session: str
    created_s: float

    @property
    def place(self) -> Place:
        return self.trial.place


@dataclass(frozen=True, slots=True)
class Spend:
    """Seconds of budget spent on a model with some settings on a machine."""

    model_key: str
    fingerprint: Fingerprint
    settings: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Contents:
    """Rows in the order of their ids; ``kernels`` are (text, name) by key, sessions by start,
    spends by their keys.

    Texts that decisions are about are ``kernels``, too.
    """

    kernels: tuple[tuple[str, str], ...] = ()
    sessions: tuple[Session, ...] = ()
    trials: tuple[Trial, ...] = ()
    promotions: tuple[Promotion, ...] = ()
    spends: tuple[Spend, ...] = ()
    withdrawals: tuple[Withdrawn, ...] = ()
    decisions: tuple[Decision, ...] = ()
    latencies: tuple[Latency, ...] = ()

    @property
    def withdrawn(self) -> frozenset[Subject]:
        """Subjects that shall not win, however often they are measured."""
        return frozenset(w.trial.subject for w in self.withdrawals)

    def by_identity(self) -> dict[Identity, Trial]:
        """Every trial by what makes it the same one."""
        return {identity(t): t for t in self.trials}

    def of_kernels(self, keys: Set[str]) -> Contents:
        """The part about some kernels, by their keys.

        Spent budget and latencies are of models, not of kernels, so a part has none.
        """
        part = self._with_trials(
            (t for t in self.trials if t.kernel_key in keys),
            tuple(d for d in self.decisions if d.key in keys),
        )
        return replace(part, kernels=tuple(k for k in self.kernels if key_of(k[0]) in keys))

    def of_winners(self) -> Contents:
        """The part that says what wins: winners with their evidence, and decisions in force."""
        won = winners(self).values()
        winning = {identity(w.trial) for w in won}
        winning |= {w.promotion.trial for w in won if w.promotion is not None}
        return self._with_trials(
            (t for t in self.trials if identity(t) in winning),
            tuple(d for d in self.decisions if d.chosen),
        )

    def _with_trials(self, trials: Iterable[Trial], decisions: tuple[Decision, ...]) -> Contents:
        """These trials and decisions of the contents, with the rows that name them or are named."""
        kept = {identity(t): t for t in trials}
        keys = {t.kernel_key for t in kept.values()} | {d.key for d in decisions}
        withdrawals = tuple(w for w in self.withdrawals if w.trial in kept)
        named = {t.session for t in kept.values()}
        named |= {w.session for w in withdrawals} | {d.session for d in decisions}
        return Contents(
            kernels=tuple(k for k in self.kernels if key_of(k[0]) in keys),
            sessions=tuple(s for s in self.sessions if s.id in named),
            trials=tuple(kept.values()),
            promotions=tuple(p for p in self.promotions if p.trial in kept),
            withdrawals=withdrawals,
            decisions=decisions,
        )

    def with_sound_promotions(self) -> Contents:
        """Without promotions and withdrawals whose trial is missing or not a timed one."""
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
        samples = () if self.promotion is None else self.promotion.evidence.challenger_samples_s
        return middle(samples) if samples else self.trial.measurement.seconds


def is_imported(row: Trial | Promotion | Withdrawn | Decision | Latency) -> bool:
    """True for a row that was imported, not measured by this store's owner."""
    if isinstance(row, Decision | Latency):
        return row.imported
    if isinstance(row, Withdrawn):
        return row.reason.startswith(IMPORTED)
    return imported(row) if isinstance(row, Trial) else row.evidence.imported


def winners(contents: Contents) -> dict[Place, Winner]:
    """The winner of every place that has one, by the store's own rule: promoted last, else the
    fastest.

    Figures of two policies do not compare: with no promotion, only the policy of the newest OK
    trial counts. A withdrawn trial does not win; where one was withdrawn, only a promotion makes a
    winner, not speed. What was promoted and measured again since has the figures of the newest
    measurement that ran.
    """
    withdrawn, void = contents.withdrawn, {w.place for w in contents.withdrawals}
    timed = {identity(t) for t in contents.trials if t.measurement.ran}
    ran: dict[Subject, Trial] = {}
    for trial in contents.trials:
        if trial.measurement.ran and (subject(trial) not in ran or not is_imported(trial)):
            ran[subject(trial)] = trial
    found: dict[Place, Winner] = {}
    for promotion in contents.promotions:
        at = promotion.trial.subject
        if promotion.trial in timed and at not in withdrawn:
            found[promotion.place] = Winner(ran[at], promotion)
    return fastest(t for t in contents.trials if place_of(t) not in found.keys() | void) | found


def fastest(trials: Iterable[Trial]) -> dict[Place, Winner]:
    """Per place the fastest OK trial of the newest OK trial's policy, the older of equals; trials
    oldest first.

    Of what was measured several times only the measurement that counts is looked at.
    """
    places: dict[Place, list[Trial]] = {}
    for trial in trials:
        places.setdefault(place_of(trial), []).append(trial)
    found = {}
    for place, rivals in places.items():
        policies = dict.fromkeys(t.policy.text for t in reversed(rivals) if t.measurement.ran)
        left = [t for t in standing(rivals) if t.measurement.ran]
        for policy in policies:
            if mine := [t for t in left if t.policy.text == policy]:
                found[place] = Winner(min(mine, key=lambda t: t.measurement.seconds), None)
                break
    return found


def decided(decisions: Iterable[Decision]) -> Decision | None:
    """The decision in force about one question, given oldest first: own before imported, last."""
    chosen = [d for d in decisions if d.chosen]
    return next((d for d in reversed(chosen) if not d.imported), chosen[-1] if chosen else None)


def with_wrong_withdrawn(contents: Contents) -> Contents:
    """With a withdrawal of everything that ran well in one measurement, and was wrong in another.

    It names the oldest wrong one. What a file claims withdraws nothing.
    """
    measured: dict[Subject, list[tuple[Identity, Trial]]] = {}
    for trial in contents.trials:
        measured.setdefault(subject(trial), []).append((identity(trial), trial))
    known = {w.trial for w in contents.withdrawals}
    wrong = [
        found for rows in measured.values() if (found := wrong_of(rows)) and found[0] not in known
    ]
    new = [
        Withdrawn(i, measured_again(t.measurement.error), t.session, t.created_s) for i, t in wrong
    ]
    return replace(contents, withdrawals=(*contents.withdrawals, *new)) if new else contents
