"""Trials, winners, promotions and withdrawals of a store in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from tunegrad.db.base import BaseStore, described, withdrawn
from tunegrad.db.contents import fastest
from tunegrad.db.evidence_rows import admit_evidence
from tunegrad.db.identity import (
    Identity,
    Subject,
    identity,
    measured_again,
    standing,
    subject,
    wrong_of,
)
from tunegrad.db.protocol import Mode
from tunegrad.db.records import Evidence, Session, Withdrawal, imported
from tunegrad.db.rows import admit
from tunegrad.trial import Fingerprint, Policy, Properties, Trial

__all__ = ["MemoryTrials"]


class MemoryTrials(BaseStore):
    """Trials, promotions and withdrawals, in dictionaries."""

    def __init__(self, mode: Mode, label: str, clock: Callable[[], float]) -> None:
        super().__init__(label, mode, clock)
        self._trials: dict[int, Trial] = {}
        self._ids: dict[Identity, int] = {}
        self._by_subject: dict[Subject, list[int]] = {}
        self._by_kernel: dict[str, list[int]] = {}
        self._names: dict[str, str] = {}
        self._sessions: dict[str, Session] = {}
        self._promotions: list[tuple[int, Evidence]] = []
        self._withdrawn: dict[Subject, Withdrawal] = {}

    @contextmanager
    def together(self) -> Iterator[None]:
        """Trials that are added in the block are kept at its end, or none of them."""
        known, struck = len(self._trials), dict(self._withdrawn)
        try:
            yield
        except BaseException:
            for row in range(known + 1, len(self._trials) + 1):
                trial = self._trials.pop(row)
                del self._ids[identity(trial)]
                self._by_subject[subject(trial)].remove(row)
                self._by_kernel[trial.kernel_key].remove(row)
            self._withdrawn = struck
            raise

    def add(self, trial: Trial) -> int:
        """Keep one trial and return its id; that of the stored one when it is already there."""
        self._check_writable()
        trial = admit(trial)
        if (known := self._ids.get(identity(trial))) is not None:
            return known
        row = len(self._trials) + 1
        self._trials[row] = trial
        self._ids[identity(trial)] = row
        self._by_kernel.setdefault(trial.kernel_key, []).append(row)
        self._names.setdefault(trial.kernel_key, "")
        self._bare_session(trial.session, trial.created_s)
        measured = self._by_subject.setdefault(subject(trial), [])
        measured.append(row)
        if wrong := wrong_of((n, self._trials[n]) for n in measured):
            number, found = wrong
            self._strike(
                number, measured_again(found.measurement.error), found.session, found.created_s
            )
        return row

    def _bare_session(self, session: str, started_s: float) -> None:
        self._sessions.setdefault(session, Session(session, started_s, None, "", 0, "{}", ""))

    def trials(
        self,
        kernel_key: str,
        fingerprint: Fingerprint | None = None,
        policy: Policy | None = None,
        without: Collection[str] = (),
    ) -> list[Trial]:
        """Trials of a kernel, oldest first; of one fingerprint or one policy where given.

        Of what was measured several times the measurement that counts, as if the sessions in
        ``without`` had measured nothing.
        """
        self._check_open()
        return standing(
            trial
            for trial in map(self._seen, self._by_kernel.get(kernel_key, ()))
            if trial.session not in without
            and (fingerprint is None or trial.fingerprint == fingerprint)
            and (policy is None or trial.policy.text == policy.text)
        )

    def history(self, kernel_key: str, fingerprint: Fingerprint | None = None) -> list[Trial]:
        """Every measurement of a kernel as it was, oldest first; of one fingerprint where given."""
        self._check_open()
        found = [self._trials[row] for row in self._by_kernel.get(kernel_key, ())]
        return [t for t in found if fingerprint in (None, t.fingerprint)]

    def count(self, sessions: Collection[str], policy: Policy) -> int:
        """Number of trials that these sessions measured under a policy."""
        self._check_open()
        return sum(
            t.session in sessions and t.policy.text == policy.text for t in self._trials.values()
        )

    def kernels(self, fingerprint: Fingerprint | None = None) -> list[tuple[str, str]]:
        """(key, text) of every kernel that has trials (of one fingerprint), by key."""
        self._check_open()
        trials = (
            t for t in self._trials.values() if fingerprint is None or t.fingerprint == fingerprint
        )
        return sorted({t.kernel_key: t.kernel_text for t in trials}.items())

    def id_of(self, trial: Trial) -> int | None:
        """The id of the row that this trial is."""
        self._check_open()
        return self._ids.get(identity(trial))

    def winner(self, kernel_key: str, fingerprint: Fingerprint, space_version: int) -> Trial | None:
        """The trial promoted last, else the fastest OK trial of the newest OK trial's policy."""
        for trial, _ in reversed(self.promotions(kernel_key, fingerprint)):
            if trial.space_version == space_version:
                return self._newest(trial)
        place = [
            t for t in self.history(kernel_key, fingerprint) if t.space_version == space_version
        ]
        if any(
            w.trial.space_version == space_version
            for w in self.withdrawals(kernel_key, fingerprint)
        ):
            return None
        found = fastest(place)
        return next((w.trial for w in found.values()), None)

    def _newest(self, trial: Trial) -> Trial:
        """The newest measurement that ran of what was promoted; from here before claimed."""
        ran = [
            t for n in self._by_subject[subject(trial)] if (t := self._trials[n]).measurement.ran
        ]
        own = [t for t in ran if not imported(t)]
        return (own or ran)[-1]

    def knows(self, kernel_key: str) -> bool:
        """True when a trial or a name is kept for this kernel."""
        self._check_open()
        return kernel_key in self._names

    def places(self, kernel_key: str) -> list[tuple[Fingerprint, int]]:
        """(fingerprint, space version) pairs with an OK trial of this kernel, the newest first."""
        rows = (self._trials[row] for row in reversed(self._by_kernel.get(kernel_key, ())))
        timed = (t for t in rows if t.measurement.ran)
        return list(dict.fromkeys((t.fingerprint, t.space_version) for t in timed))

    def describe(self, trial_id: int, facts: Properties) -> None:
        """Add to a trial what a compiler makes of its program; what it has of it stays."""
        self._check_writable()
        if trial_id not in self._trials:
            raise self._nothing_to_describe(trial_id)
        self._trials[trial_id] = admit(described(self._trials[trial_id], facts))

    def promote(self, trial_id: int, evidence: Evidence) -> int:
        """Make a trial the winner of its kernel, fingerprint and space version."""
        self._check_writable()
        evidence = admit_evidence(evidence)
        trial = self._seen(trial_id) if trial_id in self._trials else None
        if trial is None or not trial.measurement.ran:
            raise self._no_such_winner(trial_id, trial)
        self._promotions.append((trial_id, evidence))
        return len(self._promotions)

    def promotions(self, kernel_key: str, fingerprint: Fingerprint) -> list[tuple[Trial, Evidence]]:
        """Every promotion of a kernel on a machine whose trial was not withdrawn, oldest first."""
        self._check_open()
        pairs = ((self._trials[row], evidence) for row, evidence in self._promotions)
        here = (
            (t, e) for t, e in pairs if t.kernel_key == kernel_key and t.fingerprint == fingerprint
        )
        return [(t, e) for t, e in here if subject(t) not in self._withdrawn]

    def withdraw(self, trial_id: int, reason: str, session: str) -> int:
        """Withdraw a trial and all measurements of the same; the id of the first withdrawal."""
        self._check_writable()
        if trial_id not in self._trials:
            raise self._nothing_to_withdraw(trial_id)
        return self._strike(trial_id, self._reason(reason), session, self._clock())

    def _strike(self, trial_id: int, reason: str, session: str, created_s: float) -> int:
        trial = self._trials[trial_id]
        if subject(trial) not in self._withdrawn:
            self._bare_session(session, created_s)
            self._withdrawn[subject(trial)] = Withdrawal(
                trial, self._reason(reason), session, created_s
            )
        return 1 + list(self._withdrawn).index(subject(trial))

    def withdrawals(self, kernel_key: str, fingerprint: Fingerprint) -> list[Withdrawal]:
        """Every withdrawal of a kernel's trials on a machine, oldest first."""
        self._check_open()
        found = self._withdrawn.values()
        return [
            w
            for w in found
            if w.trial.kernel_key == kernel_key and w.trial.fingerprint == fingerprint
        ]

    def _seen(self, row: int) -> Trial:
        """A trial as it is seen from outside: wrong where it was withdrawn."""
        trial = self._trials[row]
        withdrawal = self._withdrawn.get(subject(trial))
        return (
            trial if withdrawal is None else withdrawn(trial, withdrawal.reason, withdrawal.session)
        )
