"""The store in a SQLite file: one writer, any number of readers, every row committed before its
method returns.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from tunegrad.db.contents import Contents
from tunegrad.db.decision_rows import admit_decision
from tunegrad.db.evidence_rows import admit_evidence, dump_evidence
from tunegrad.db.identity import Identity, Subject, identity, subject
from tunegrad.db.latency_rows import admit_latency
from tunegrad.db.records import STOPPED, Problem, Stats
from tunegrad.db.rows import admit, encode_trial, key_of
from tunegrad.db.session_rows import encode_session
from tunegrad.db.sqlite_base import INSERT_SESSION, Run
from tunegrad.db.sqlite_queries import INSERT_TRIAL, WITHDRAW
from tunegrad.db.sqlite_records import INSERT_SPEND, SqliteRecords
from tunegrad.db.sqlite_trials import SqliteTrials
from tunegrad.db.values import clean_text
from tunegrad.db.verify import verify_store
from tunegrad.errors import InternalError, StoreError
from tunegrad.trial import Status

__all__ = ["SqliteStore"]

# Those that others refer to come last.
_TABLES = (
    "spend", "withdrawals", "promotions", "decisions", "latencies", "trials", "sessions",
    "policies",
    "fingerprints", "kernels",
)  # fmt: skip


class SqliteStore(SqliteTrials, SqliteRecords):
    """A store on an open connection; a writer also holds the lock. Made by ``open_store``."""

    # Everything at once

    def replace_contents(self, contents: Contents) -> None:
        """Hold exactly this from now on: all of it is committed, or nothing changes.

        Ids are new, in order.
        """
        try:
            with self._transaction() as run:
                self._forget_ids()
                for table in _TABLES:
                    run(f"DELETE FROM {table}")
                self._insert_all(run, contents)
        except BaseException:
            self._forget_ids()
            raise

    def compact(self) -> None:
        """Give unused pages of the file back to the filesystem."""
        self._check_writable()
        with self._threads:
            try:
                self._connection.execute("VACUUM")
            except sqlite3.Error as error:
                raise StoreError(
                    f"store {self.label}: can not be compacted: {error}; no row was changed"
                ) from error

    def _forget_ids(self) -> None:
        self._interned.clear()
        self._known_sessions.clear()

    def _insert_all(self, run: Run, contents: Contents) -> None:
        run_many = self._connection.executemany
        run_many(INSERT_SESSION, map(encode_session, contents.sessions))
        self._known_sessions.update(s.id for s in contents.sessions)
        named = ((key_of(text), text, clean_text(name)) for text, name in contents.kernels)
        run_many("INSERT INTO kernels (key, text, name) VALUES (?, ?, ?)", named)
        self._insert_trials(run, contents)
        for decision in map(admit_decision, contents.decisions):
            self._insert_decision(run, decision)
            self._known_sessions.add(decision.session)
        for latency in map(admit_latency, contents.latencies):
            self._insert_latency(run, latency)
            self._known_sessions.add(latency.session)
        for s in contents.spends:
            self._check_spend(s.model_key, s.seconds)
            machine = self._intern_fingerprint(run, s.fingerprint)
            run(INSERT_SPEND, (s.model_key, machine, s.settings, s.seconds))

    def _insert_trials(self, run: Run, contents: Contents) -> None:
        """Trials, and the promotions and withdrawals that name them."""
        ids: dict[Identity, int] = {}
        repeats: dict[Subject, int] = {}
        for trial in map(admit, contents.trials):
            if identity(trial) in ids:
                continue
            owners = self._intern_trial(run, trial)
            self._interned.update(owners)
            self._known_sessions.add(trial.session)
            repeat = repeats[subject(trial)] = repeats.get(subject(trial), -1) + 1
            cursor = run(INSERT_TRIAL, (*owners.values(), repeat, *encode_trial(trial)))
            ids[identity(trial)] = int(cursor.lastrowid or 0)
        for p in contents.promotions:
            run(
                "INSERT INTO promotions (kernel, fingerprint, trial, evidence, created_s)"
                " SELECT kernel, fingerprint, id, ?, ? FROM trials WHERE id = ?",
                (
                    dump_evidence(admit_evidence(p.evidence)),
                    p.created_s,
                    self._named("promotion", p.trial, ids),
                ),
            )
        for w in contents.withdrawals:
            number = self._named("withdrawal", w.trial, ids)
            self._intern_session(run, w.session, w.created_s)
            self._known_sessions.add(w.session)
            run(WITHDRAW, (self._reason(w.reason), w.session, w.created_s, number))

    def _named(self, what: str, trial: Identity, ids: dict[Identity, int]) -> int:
        if trial not in ids:
            actions = trial.subject.actions
            raise InternalError(
                f"store {self.label}: a {what} names a trial that is not there: {actions!r}"
            )
        return ids[trial]

    # The store about itself
    # -------------------------------------------------------------------------------------------

    def stats(self) -> Stats:
        """Counts and size."""
        counts: dict[object, int] = dict(
            self._select("SELECT status, COUNT(*) FROM trials GROUP BY status")
        )
        rows = {
            table: self._select(f"SELECT COUNT(*) FROM {table}")[0][0]
            for table in (
                "kernels",
                "fingerprints",
                "sessions",
                "promotions",
                "withdrawals",
                "decisions",
                "latencies",
            )
        }
        known = {status: counts.pop(status.value, 0) for status in Status}
        ((spent,),) = self._select(
            "SELECT TOTAL(seconds) FROM spend WHERE seconds >= 0 AND seconds < 9e999 AND "
            "substr(settings, 1, ?) != ?",
            (len(STOPPED), STOPPED),
        )
        ((version,),) = self._select("PRAGMA user_version")
        return Stats(
            trials=sum(known.values()) + sum(counts.values()),
            by_status=tuple(known.items()),
            unknown_status=sum(counts.values()),
            spent_s=float(spent),
            size_bytes=sum(
                p.stat().st_size for p in (self._path, Path(f"{self._path}-wal")) if p.exists()
            ),
            schema_version=int(version),
            **rows,
        )

    def verify(self) -> list[Problem]:
        """Check the file and every row; an empty list is a healthy store."""
        self._check_open()
        with self._threads:
            return verify_store(self._connection)
