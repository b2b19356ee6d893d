"""A store in memory: the same contract, no file.

For tests, ``--store :memory:``, and the rest of a damaged file.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from tunegrad.db.base import BaseStore, described, withdrawn
from tunegrad.db.contents import Contents, decided, fastest
from tunegrad.db.file import SCHEMA_VERSION
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
from tunegrad.db.records import (
    STOPPED,
    Decision,
    Evidence,
    Latency,
    Problem,
    Question,
    Session,
    Stats,
    Withdrawal,
    imported,
)
from tunegrad.db.rows import (
    admit,
    admit_decision,
    admit_evidence,
    admit_latency,
    clean_text,
    key_of,
)
from tunegrad.trial import Fingerprint, Policy, Properties, Status, Trial

__all__ = ["MemoryStore"]


class MemoryStore(BaseStore):
    """Rows in dictionaries.

    ``problems`` is what ``verify`` reports: memory is not damaged, but its source may be.
    """

    def __init__(
        self,
        mode: Mode = "write",
        *,
        label: str = ":memory:",
        clock: Callable[[], float] = time.time,
        problems: Iterable[Problem] = (),
    ) -> None:
        super().__init__(label, mode, clock)
        self._trials: dict[int, Trial] = {}
        self._ids: dict[Identity, int] = {}
        self._by_subject: dict[Subject, list[int]] = {}
        self._by_kernel: dict[str, list[int]] = {}
        self._names: dict[str, str] = {}
        self._sessions: dict[str, Session] = {}
        self._promotions: list[tuple[int, Evidence]] = []
        self._withdrawn: dict[Subject, Withdrawal] = {}
        self._problems = list(problems)
        self._decisions: list[Decision] = []
        self._latencies: list[Latency] = []
        self._spend: dict[tuple[str, Fingerprint, str], float] = {}

    def freeze(self) -> None:
        """From now on, read only."""
        self._mode = "read"

    def fill(self, contents: Contents) -> None:
        """Hold what these contents say as well; ids are new."""
        for session in contents.sessions:
            self.keep_session(session)
        for trial in contents.trials:
            self.add(trial)
        for p in contents.promotions:
            self.promote(self._ids[p.trial], p.evidence)
        for w in contents.withdrawals:
            self._strike(self._ids[w.trial], w.reason, w.session, w.created_s)
        for decision in contents.decisions:
            self.record_decision(decision)
        for latency in contents.latencies:
            self.record_latency(latency)
        for text, name in contents.kernels:
            self.name_kernel(text, name)
        for s in contents.spends:
            self.add_spend(s.model_key, s.fingerprint, s.settings, s.seconds)

    def close(self) -> None:
        """Refuse further use."""
        self._closed = True

    def record_decision(self, decision: Decision) -> int:
        """Keep a decision and return its id."""
        self._check_writable()
        decision = admit_decision(decision)
        self._names.setdefault(decision.key, "")
        self._bare_session(decision.session, decision.created_s)
        self._decisions.append(decision)
        return len(self._decisions)

    def decision(
        self, kind: Question, key: str, fingerprint: Fingerprint, space_version: int
    ) -> Decision | None:
        """The decision in force about one question here."""
        found = self.decisions(key, fingerprint, kind)
        return decided(d for d in found if d.space_version == space_version)

    def decisions(
        self,
        key: str | None = None,
        fingerprint: Fingerprint | None = None,
        kind: Question | None = None,
    ) -> list[Decision]:
        """Every decision, oldest first; of one text, machine or kind of question where given."""
        self._check_open()
        return [
            d
            for d in self._decisions
            if key in (None, d.key)
            and fingerprint in (None, d.fingerprint)
            and kind in (None, d.kind)
        ]

    def record_latency(self, latency: Latency) -> int:
        """Keep what a whole model took and return the row's id."""
        self._check_writable()
        latency = admit_latency(latency)
        self._bare_session(latency.session, latency.created_s)
        self._latencies.append(latency)
        return len(self._latencies)

    def latencies(
        self,
        model: str | None = None,
        here: Fingerprint | None = None,
        since_s: float | None = None,
    ) -> list[Latency]:
        """Latencies of whole models, oldest first; of one model or machine, or not before a
        moment.
        """
        self._check_open()
        found = [
            x
            for x in self._latencies
            if model in (None, x.model)
            and here in (None, x.fingerprint)
            and (since_s is None or x.created_s >= since_s)
        ]
        return sorted(found, key=lambda x: x.created_s)

    def keep_session(self, session: Session) -> None:
        """Keep a session's row as it is, unless its id is taken by one that is known."""
        self._check_writable()
        if session.id not in self._sessions or not self._sessions[session.id].command:
            self._sessions[session.id] = session

    def _start_session(self, session: Session) -> bool:
        if session.id in self._sessions:
            return False
        self._sessions[session.id] = session
        return True

    def _end_session(self, session: Session) -> None:
        self._sessions[session.id] = replace(self._sessions[session.id], ended_s=session.ended_s)

    def _write_state(self, session: Session) -> None:
        self._sessions[session.id] = replace(self._sessions[session.id], state=session.state)

    def sessions(self) -> list[Session]:
        """Every session, oldest first."""
        self._check_open()
        return sorted(self._sessions.values(), key=lambda s: (s.started_s, s.id))

    def spent(self, model_key: str, fingerprint: Fingerprint, settings: str) -> float:
        """Seconds of tuning budget already spent."""
        self._check_open()
        return self._spend.get((model_key, fingerprint, settings), 0.0)

    def add_spend(
        self, model_key: str, fingerprint: Fingerprint, settings: str, seconds: float
    ) -> float:
        """Add seconds to what was spent and return the new total."""
        self._check_writable()
        self._check_spend(model_key, seconds)
        total = self.spent(model_key, fingerprint, settings) + float(seconds)
        self._spend[model_key, fingerprint, settings] = total
        return total

    def name_kernel(self, kernel_text: str, name: str) -> None:
        """Give a kernel a name for people."""
        self._check_writable()
        self._names[key_of(kernel_text)] = clean_text(name)

    def kernel_name(self, kernel_key: str) -> str:
        """The name, or ''."""
        self._check_open()
        return self._names.get(kernel_key, "")

    def stats(self) -> Stats:
        """Counts; a store in memory has no size."""
        self._check_open()
        counts = Counter(t.measurement.status for t in self._trials.values())
        machines = {t.fingerprint for t in self._trials.values()} | {
            machine for _, machine, _ in self._spend
        }
        machines |= {d.fingerprint for d in self._decisions} | {
            x.fingerprint for x in self._latencies
        }
        return Stats(
            trials=len(self._trials),
            by_status=tuple((status, counts[status]) for status in Status),
            unknown_status=0,
            kernels=len(self._names),
            fingerprints=len(machines),
            sessions=len(self._sessions),
            promotions=len(self._promotions),
            withdrawals=len(self._withdrawn),
            decisions=len(self._decisions),
            latencies=len(self._latencies),
            spent_s=sum(
                s for (_, _, settings), s in self._spend.items() if not settings.startswith(STOPPED)
            ),
            size_bytes=0,
            schema_version=SCHEMA_VERSION,
        )

    def verify(self) -> list[Problem]:
        """Problems of the file that the rows came from; none for a store that began in memory."""
        self._check_open()
        return list(self._problems)

    # ---- trials, promotions and withdrawals

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
