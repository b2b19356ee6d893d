"""A store in memory: the same contract, no file.

For tests, ``--store :memory:``, and the rest of a damaged file.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from tunegrad.db.contents import Contents, decided
from tunegrad.db.decision_rows import admit_decision
from tunegrad.db.latency_rows import admit_latency
from tunegrad.db.memory_trials import MemoryTrials
from tunegrad.db.migrations import SCHEMA_VERSION
from tunegrad.db.protocol import Mode
from tunegrad.db.records import STOPPED, Decision, Latency, Problem, Question, Session, Stats
from tunegrad.db.rows import key_of
from tunegrad.db.values import clean_text
from tunegrad.trial import Fingerprint, Status

__all__ = ["MemoryStore"]


class MemoryStore(MemoryTrials):
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
        super().__init__(mode, label, clock)
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
