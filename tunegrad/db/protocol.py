"""The contract of a store. One conformance suite holds every implementation to it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Literal, Protocol, Self

from tunegrad.db.lookup import Lookup
from tunegrad.db.records import (
    Decision,
    Evidence,
    Latency,
    Problem,
    Properties,
    Question,
    Session,
    Stats,
    Withdrawal,
)
from tunegrad.trial import Fingerprint, Policy, Trial

__all__ = ["Mode", "Store"]

Mode = Literal["read", "write"]


class Store(Protocol):
    """Trials, winners, decisions, latencies of whole models, sessions and spent budget.

    Every method may raise StoreError; those that write do, when the store was opened for reading.
    What a method wrote is committed before it returns. Damaged rows are skipped and reported by
    ``verify``, never returned. A store belongs to the process that opened it; its threads may share
    it.
    """

    @property
    def mode(self) -> Mode:
        """The mode in which it was opened."""

    def close(self) -> None:
        """Release the file and the writer's lock. Closing twice is fine."""

    def __enter__(self) -> Self:
        """The store itself."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""

    def add(self, trial: Trial) -> int:
        """Commit one trial and return its id, > 0 and rising.

        Two trials measured the same when kernel, fingerprint, actions, policy text and space
        version are equal: the later one is a further row. It is the same row when its session and
        moment are equal, too: then nothing is written, and that row's id is returned. A damaged row
        is replaced by a new measurement of the same, under the same id. Where one measurement of
        the same ran and another was wrong, they are withdrawn. Raises InternalError for a trial
        that breaks its rules (a key that is not the hash of the text, a time that is negative or
        not finite).
        """

    def together(self) -> AbstractContextManager[None]:
        """Trials that are added in the block are committed at its end, at the cost of one commit;
        or none of them.
        """

    def trials(
        self,
        kernel_key: str,
        fingerprint: Fingerprint | None = None,
        policy: Policy | None = None,
        without: Collection[str] = (),
    ) -> list[Trial]:
        """Trials of a kernel, oldest first; of one fingerprint or one policy (by its text) where
        given.

        Of what was measured several times it is the measurement that counts: one from here before
        one of a file, a wrong one before all others, a settled end before a crash that was seen
        once only, then the newest. A withdrawn one reads as ``wrong``: it has no samples, and its
        error says which session withdrew it, and why. It is as if the sessions in ``without`` had
        measured nothing.
        """

    def history(self, kernel_key: str, fingerprint: Fingerprint | None = None) -> list[Trial]:
        """Every measurement of a kernel, as it was measured, oldest first; of one fingerprint where
        given.
        """

    def count(self, sessions: Collection[str], policy: Policy) -> int:
        """Number of trials that these sessions measured under a policy (by its text)."""

    def kernels(self, fingerprint: Fingerprint | None = None) -> Sequence[tuple[str, str]]:
        """(key, text) of every kernel that has trials, by key; trials of one fingerprint where
        given.
        """

    def id_of(self, trial: Trial) -> int | None:
        """The id of the row that this trial is: the same measured by the same session at the same
        moment.
        """

    def winner(self, kernel_key: str, fingerprint: Fingerprint, space_version: int) -> Trial | None:
        """The trial promoted last; with no promotion, the fastest OK trial by median, the oldest of
        equals.

        Figures of two policies do not compare: with no promotion, only the policy of the newest OK
        trial counts. A withdrawn trial does not win; where one was withdrawn, only a promotion
        makes a winner, not speed. What was promoted and measured again since comes with the figures
        of the newest measurement that ran.
        """

    def lookup(self, kernel_key: str, fingerprint: Fingerprint, space_version: int) -> Lookup:
        """The winner, or what differs between here and what is stored."""

    def knows(self, kernel_key: str) -> bool:
        """True when any row names this kernel."""

    def places(self, kernel_key: str) -> Sequence[tuple[Fingerprint, int]]:
        """Distinct (fingerprint, space version) pairs with an OK trial of this kernel, the newest
        first.
        """

    def describe(self, trial_id: int, facts: Properties) -> None:
        """Add to a trial what a compiler makes of its program; what it has of it stays.

        Raises StoreError for no trial.
        """

    def promote(self, trial_id: int, evidence: Evidence) -> int:
        """Make a trial the winner of its kernel, fingerprint and space version; returns the
        promotion's id.

        Raises StoreError when there is no such trial, when it is not OK with samples, or when it
        was withdrawn.
        """

    def promotions(self, kernel_key: str, fingerprint: Fingerprint) -> list[tuple[Trial, Evidence]]:
        """Every promotion of a kernel on a machine whose trial was not withdrawn, oldest first."""

    def withdraw(self, trial_id: int, reason: str, session: str) -> int:
        """Withdraw a trial and all measurements of the same, for good. Returns the withdrawal's id.

        They never win again, by promotion or by speed. What was measured and promoted stays as
        history. Of a trial that is withdrawn already the first withdrawal stays, and its id is
        returned. Raises StoreError when there is no such trial.
        """

    def withdrawals(self, kernel_key: str, fingerprint: Fingerprint) -> list[Withdrawal]:
        """Every withdrawal of a kernel's trials on a machine, oldest first; the trials as they were
        measured.
        """

    def record_decision(self, decision: Decision) -> int:
        """Commit an alternative of a question, and whether it stands from now on; returns its id.

        Raises InternalError for one that breaks its rules: what failed does not stand.
        """

    def decision(
        self, kind: Question, key: str, fingerprint: Fingerprint, space_version: int
    ) -> Decision | None:
        """The decision in force about one text here: own before imported, then the last."""

    def decisions(
        self,
        key: str | None = None,
        fingerprint: Fingerprint | None = None,
        kind: Question | None = None,
    ) -> list[Decision]:
        """Every decision, oldest first; about one text, on one machine, of one kind where given."""

    def record_latency(self, latency: Latency) -> int:
        """Commit what a whole model took; returns the row's id.

        Raises InternalError for one without samples.
        """

    def latencies(
        self,
        model: str | None = None,
        here: Fingerprint | None = None,
        since_s: float | None = None,
    ) -> list[Latency]:
        """Latencies of whole models, oldest first; of one model, on one machine, from a moment on
        where given.
        """

    def session(
        self,
        command: str,
        seed: int,
        settings: Mapping[str, object],
        version: str,
        session_id: str | None = None,
        versions: Properties = (),
        state: Properties = (),
    ) -> AbstractContextManager[Session]:
        """Open a session row and, when the block ends however it ends, note the time.

        A fresh id where none is given.

        ``settings`` must be JSON; ``seed`` fits 64 bits. ``versions`` are of what measures,
        ``state`` is the machine's. Raises StoreError when the id is taken.
        """

    def add_facts(self, session_id: str, facts: Properties) -> None:
        """Add facts to a session's ``state``: what it found out, and how it ended.

        A fact of a name that is known replaces it. Raises StoreError for an unknown session.
        """

    def sessions(self) -> list[Session]:
        """Every session, oldest first."""

    def keep_session(self, session: Session) -> None:
        """Keep a session of another store as it is, unless its id is taken by one that is known."""

    def spent(self, model_key: str, fingerprint: Fingerprint, settings: str) -> float:
        """Seconds of tuning budget already spent on a model under these settings; 0 where none."""

    def add_spend(
        self, model_key: str, fingerprint: Fingerprint, settings: str, seconds: float
    ) -> float:
        """Add seconds to what was spent and return the new total."""

    def name_kernel(self, kernel_text: str, name: str) -> None:
        """Give a kernel a name for people. Never part of a key; the last name wins."""

    def kernel_name(self, kernel_key: str) -> str:
        """The name, or '' where there is none."""

    def stats(self) -> Stats:
        """Counts and size."""

    def verify(self) -> list[Problem]:
        """Check the file and every row; an empty list is a healthy store. Writes nothing."""
