"""A store in memory: the same contract, no file. For tests, ``--store :memory:``, and the rest of a damaged file."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from tunegrad.db.base import BaseStore, withdrawn
from tunegrad.db.migrations import SCHEMA_VERSION
from tunegrad.db.protocol import Mode
from tunegrad.db.records import STOPPED, Evidence, Problem, Session, Stats, Withdrawal
from tunegrad.db.rows import admit, admit_evidence, clean_text, identity, key_of
from tunegrad.trial import Fingerprint, Policy, Status, Trial

__all__ = ["MemoryStore"]


class MemoryStore(BaseStore):
    """Rows in dictionaries. ``problems`` is what ``verify`` reports: memory is not damaged, but its source may be."""

    def __init__(
        self,
        mode: Mode = "write",
        *,
        label: str = ":memory:",
        clock: Callable[[], float] = time.time,
        problems: Iterable[Problem] = (),
    ) -> None:
        super().__init__(label, mode, clock)
        self._problems = list(problems)
        self._trials: dict[int, Trial] = {}
        self._ids: dict[tuple[str, Fingerprint, str, str, int], int] = {}
        self._by_kernel: dict[str, list[int]] = {}
        self._names: dict[str, str] = {}
        self._sessions: dict[str, Session] = {}
        self._promotions: list[tuple[int, Evidence]] = []
        self._withdrawn: dict[int, Withdrawal] = {}
        self._spend: dict[tuple[str, Fingerprint, str], float] = {}

    def freeze(self) -> None:
        """From now on, read only."""
        self._mode = "read"

    def close(self) -> None:
        """Refuse further use."""
        self._closed = True

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is written in the block is kept at its end, or none of the trials that are new in it."""
        known = len(self._trials)
        try:
            yield
        except BaseException:
            for row in range(known + 1, len(self._trials) + 1):
                trial = self._trials.pop(row)
                del self._ids[identity(trial)]
                self._by_kernel[trial.kernel_key].remove(row)
            raise

    def add(self, trial: Trial) -> int:
        """Keep one trial and return its id; that of the stored one when it is already there."""
        self._check_writable()
        trial = admit(trial)
        known = self._ids.get(identity(trial))
        if known is not None:
            if trial.measurement.settled and not self._trials[known].measurement.settled:
                self._trials[known] = trial
            return known
        row = len(self._trials) + 1
        self._trials[row] = trial
        self._ids[identity(trial)] = row
        self._by_kernel.setdefault(trial.kernel_key, []).append(row)
        self._names.setdefault(trial.kernel_key, "")
        bare = Session(trial.session, trial.created_s, None, "", 0, "{}", "")
        self._sessions.setdefault(trial.session, bare)
        return row

    def trials(
        self, kernel_key: str, fingerprint: Fingerprint | None = None, policy: Policy | None = None
    ) -> list[Trial]:
        """Trials of a kernel, oldest first; of one fingerprint or one policy where given."""
        self._check_open()
        return [
            trial
            for trial in map(self._seen, self._by_kernel.get(kernel_key, ()))
            if (fingerprint is None or trial.fingerprint == fingerprint)
            and (policy is None or trial.policy.text == policy.text)
        ]

    def count(self, sessions: Collection[str], policy: Policy) -> int:
        """How many trials these sessions measured under a policy."""
        self._check_open()
        return sum(t.session in sessions and t.policy.text == policy.text for t in self._trials.values())

    def kernels(self, fingerprint: Fingerprint | None = None) -> list[tuple[str, str]]:
        """(key, text) of every kernel that has trials, by key; trials of one fingerprint where given."""
        self._check_open()
        trials = (t for t in self._trials.values() if fingerprint is None or t.fingerprint == fingerprint)
        return sorted({t.kernel_key: t.kernel_text for t in trials}.items())

    def id_of(self, trial: Trial) -> int | None:
        """The id of the stored trial that is the same as this one."""
        self._check_open()
        return self._ids.get(identity(trial))

    def winner(self, kernel_key: str, fingerprint: Fingerprint, space_version: int) -> Trial | None:
        """The trial promoted last, else the fastest OK trial of the newest OK trial's policy."""
        for trial, _ in reversed(self.promotions(kernel_key, fingerprint)):
            if trial.space_version == space_version:
                return trial
        eligible = [
            t for t in self.trials(kernel_key, fingerprint) if t.space_version == space_version and t.measurement.ran
        ]
        void = any(w.trial.space_version == space_version for w in self.withdrawals(kernel_key, fingerprint))
        if not eligible or void:
            return None
        policy = eligible[-1].policy.text
        return min((t for t in eligible if t.policy.text == policy), key=lambda t: t.measurement.seconds)

    def knows(self, kernel_key: str) -> bool:
        """Whether a trial or a name is kept for this kernel."""
        self._check_open()
        return kernel_key in self._names

    def places(self, kernel_key: str) -> list[tuple[Fingerprint, int]]:
        """Distinct (fingerprint, space version) pairs with an OK trial of this kernel, the newest first."""
        rows = (self._trials[row] for row in reversed(self._by_kernel.get(kernel_key, ())))
        timed = (t for t in rows if t.measurement.ran)
        return list(dict.fromkeys((t.fingerprint, t.space_version) for t in timed))

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
        pairs = ((self._trials[row], evidence) for row, evidence in self._promotions if row not in self._withdrawn)
        return [(t, e) for t, e in pairs if t.kernel_key == kernel_key and t.fingerprint == fingerprint]

    def withdraw(self, trial_id: int, reason: str, session: str) -> int:
        """Withdraw a trial, for good; the id of its first withdrawal."""
        self._check_writable()
        if trial_id not in self._trials:
            raise self._nothing_to_withdraw(trial_id)
        if trial_id not in self._withdrawn:
            now_s = self._clock()
            self._sessions.setdefault(session, Session(session, now_s, None, "", 0, "{}", ""))
            self._withdrawn[trial_id] = Withdrawal(self._trials[trial_id], self._reason(reason), session, now_s)
        return 1 + list(self._withdrawn).index(trial_id)

    def withdrawals(self, kernel_key: str, fingerprint: Fingerprint) -> list[Withdrawal]:
        """Every withdrawal of a kernel's trials on a machine, oldest first; the trials as they were measured."""
        self._check_open()
        found = self._withdrawn.values()
        return [w for w in found if w.trial.kernel_key == kernel_key and w.trial.fingerprint == fingerprint]

    def _seen(self, row: int) -> Trial:
        """A trial as it is seen from outside: wrong where it was withdrawn."""
        trial, withdrawal = self._trials[row], self._withdrawn.get(row)
        return trial if withdrawal is None else withdrawn(trial, withdrawal.reason, withdrawal.session)

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

    def sessions(self) -> list[Session]:
        """Every session, oldest first."""
        self._check_open()
        return sorted(self._sessions.values(), key=lambda s: (s.started_s, s.id))

    def spent(self, model_key: str, fingerprint: Fingerprint, settings: str) -> float:
        """Seconds of tuning budget already spent."""
        self._check_open()
        return self._spend.get((model_key, fingerprint, settings), 0.0)

    def add_spend(self, model_key: str, fingerprint: Fingerprint, settings: str, seconds: float) -> float:
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
        machines = {t.fingerprint for t in self._trials.values()} | {fingerprint for _, fingerprint, _ in self._spend}
        return Stats(
            trials=len(self._trials),
            by_status=tuple((status, counts[status]) for status in Status),
            unknown_status=0,
            kernels=len(self._names),
            fingerprints=len(machines),
            sessions=len(self._sessions),
            promotions=len(self._promotions),
            withdrawals=len(self._withdrawn),
            spent_s=sum(s for (_, _, settings), s in self._spend.items() if not settings.startswith(STOPPED)),
            size_bytes=0,
            schema_version=SCHEMA_VERSION,
        )

    def verify(self) -> list[Problem]:
        """What was wrong with the file that the rows came from; nothing, for a store that began in memory."""
        self._check_open()
        return list(self._problems)
