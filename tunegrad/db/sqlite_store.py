"""The store in a SQLite file: one writer, any number of readers, every trial committed before ``add`` returns.

Statements are counted, not timed: an ``add`` of a known kernel, machine and policy is BEGIN, INSERT, COMMIT; a lookup
that hits is one SELECT where the winner was promoted, three where it is the fastest trial.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Any

from tunegrad.db.base import BaseStore, withdrawn
from tunegrad.db.connection import close_writer
from tunegrad.db.contents import Contents, Identity
from tunegrad.db.lock import WriterLock
from tunegrad.db.records import STOPPED, Evidence, Problem, Session, Stats, Withdrawal
from tunegrad.db.rows import (
    SESSION_COLUMNS,
    TRIAL_COLUMNS,
    TRIAL_FROM,
    TRIAL_VALUES,
    RowFault,
    admit,
    admit_evidence,
    clean_text,
    decode_evidence,
    decode_session,
    decode_trial,
    decode_withdrawal,
    dump_evidence,
    dump_fingerprint,
    dump_policy,
    encode_trial,
    identity,
    key_of,
    load_fingerprint,
)
from tunegrad.db.verify import verify_store
from tunegrad.errors import InternalError, StoreError
from tunegrad.trial import Fingerprint, Policy, Status, Trial

__all__ = ["SqliteStore"]

_log = logging.getLogger(__name__)
_Run = Callable[..., sqlite3.Cursor]

# Those that others refer to come last.
_TABLES = ("spend", "withdrawals", "promotions", "trials", "sessions", "policies", "fingerprints", "kernels")

_KERNEL = "(SELECT id FROM kernels WHERE key = :kernel)"
_FINGERPRINT = "(SELECT id FROM fingerprints WHERE fields = :fingerprint)"
_POLICY = "(SELECT id FROM policies WHERE text = :policy)"
_TIMED = "t.status = 'ok' AND t.median_s IS NOT NULL"
_SAME = (
    f"t.kernel = {_KERNEL} AND t.fingerprint = {_FINGERPRINT} AND t.policy = {_POLICY}"
    " AND t.actions = :actions AND t.space_version = :space"
)
_INSERT = (
    f"INSERT INTO trials (kernel, fingerprint, policy, {', '.join(TRIAL_VALUES)})"
    f" VALUES ({', '.join('?' * (3 + len(TRIAL_VALUES)))})"
    " ON CONFLICT (kernel, fingerprint, actions, policy, space_version) DO NOTHING"
)
_REPLACE = f"UPDATE trials SET {', '.join(f'{name} = ?' for name in TRIAL_VALUES)} WHERE id = ?"
_SELECT = f"SELECT {TRIAL_COLUMNS}, w.reason, w.session FROM {TRIAL_FROM} LEFT JOIN withdrawals w ON w.trial = t.id"
_BY_SPEED = (
    f"SELECT t.id FROM trials t WHERE t.kernel = {_KERNEL} AND t.fingerprint = {_FINGERPRINT}"
    f" AND t.space_version = :space AND {_TIMED} AND NOT EXISTS ("
    "SELECT 1 FROM withdrawals w CROSS JOIN trials x ON x.id = w.trial"
    f" WHERE w.kernel = {_KERNEL} AND w.fingerprint = {_FINGERPRINT} AND x.space_version = :space)"
    " ORDER BY MAX(t.id) OVER (PARTITION BY t.policy) DESC, t.median_s, t.id"
)
_PROMOTED = (
    f"SELECT {TRIAL_COLUMNS}, r.id, r.evidence FROM promotions r JOIN {TRIAL_FROM}"
    f" WHERE t.id = r.trial AND t.kernel = r.kernel AND t.fingerprint = r.fingerprint"
    f" AND r.kernel = {_KERNEL} AND r.fingerprint = {_FINGERPRINT}"
    " AND NOT EXISTS (SELECT 1 FROM withdrawals w WHERE w.trial = t.id)"
)
_WITHDRAWN = (
    f"SELECT {TRIAL_COLUMNS}, w.reason, w.session, w.created_s, w.id FROM withdrawals w JOIN {TRIAL_FROM}"
    f" WHERE t.id = w.trial AND w.kernel = {_KERNEL} AND w.fingerprint = {_FINGERPRINT} ORDER BY w.id"
)
_WITHDRAW = (
    "INSERT INTO withdrawals (kernel, fingerprint, trial, reason, session, created_s)"
    " SELECT kernel, fingerprint, id, ?, ?, ? FROM trials WHERE id = ? ON CONFLICT (trial) DO NOTHING"
)
_PLACES = (
    "SELECT f.id, f.fields, t.space_version FROM trials t JOIN fingerprints f ON f.id = t.fingerprint"
    f" WHERE t.kernel = {_KERNEL} AND {_TIMED} GROUP BY t.fingerprint, t.space_version ORDER BY MAX(t.id) DESC"
)


class SqliteStore(BaseStore):
    """A store on an open connection; a writer also holds the lock. Made by ``open_store``."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, lock: WriterLock | None, clock: Callable[[], float]
    ) -> None:
        super().__init__(str(path), "read" if lock is None else "write", clock)
        self._path = path
        self._connection = connection
        self._writer_lock = lock
        self._threads = threading.RLock()
        self._interned: dict[tuple[str, str], int] = {}
        self._known_sessions: set[str] = set()
        self._joined = False

    def close(self) -> None:
        """Release the file and the lock. In a forked child this does nothing: they are the owner's."""
        try:
            self._check_open()
        except StoreError:
            return
        with self._threads:
            self._closed = True
            if self._writer_lock is None:
                self._connection.close()
            else:
                close_writer(self._connection)
                self._writer_lock.release()

    # Trials -----------------------------------------------------------------------------------------------------------

    def add(self, trial: Trial) -> int:
        """Commit one trial and return its id; that of the stored one when it is already there."""
        self._check_writable()
        trial = admit(trial)
        values = encode_trial(trial)
        with self._transaction() as run:
            owners = self._intern_trial(run, trial)
            cursor = run(_INSERT, (*owners.values(), *values))
            if cursor.rowcount == 1 and cursor.lastrowid is not None:
                row = cursor.lastrowid
            else:
                row = self._settle_conflict(run, trial, values)
        # Only what is committed may be skipped next time.
        self._interned.update(owners)
        self._known_sessions.add(trial.session)
        return row

    def trials(
        self, kernel_key: str, fingerprint: Fingerprint | None = None, policy: Policy | None = None
    ) -> list[Trial]:
        """Trials of a kernel, oldest first; of one fingerprint or one policy (by its text) where given."""
        wanted = {"kernel": kernel_key}
        where = f"t.kernel = {_KERNEL}"
        if fingerprint is not None:
            wanted["fingerprint"] = dump_fingerprint(fingerprint)
            where += f" AND t.fingerprint = {_FINGERPRINT}"
        if policy is not None:
            wanted["policy"] = policy.text
            where += f" AND t.policy = {_POLICY}"
        rows = self._select(f"{_SELECT} WHERE {where} ORDER BY t.id", wanted)
        return [t for t in map(self._usable, rows) if t is not None and _answers(t, kernel_key, fingerprint)]

    def count(self, sessions: Collection[str], policy: Policy) -> int:
        """How many trials these sessions measured under a policy."""
        wanted = "SELECT COUNT(*) FROM trials t WHERE t.policy = (SELECT id FROM policies WHERE text = ?)"
        marks = ", ".join("?" * len(sessions))
        return int(self._select(f"{wanted} AND t.session IN ({marks})", (policy.text, *sessions))[0][0])

    def kernels(self, fingerprint: Fingerprint | None = None) -> list[tuple[str, str]]:
        """(key, text) of every kernel that has trials, by key; trials of one fingerprint where given."""
        where, wanted = "t.kernel = k.id", {}
        if fingerprint is not None:
            where += f" AND t.fingerprint = {_FINGERPRINT}"
            wanted["fingerprint"] = dump_fingerprint(fingerprint)
        trials = f"SELECT 1 FROM trials t WHERE {where}"
        rows = self._select(f"SELECT key, text FROM kernels k WHERE EXISTS ({trials}) ORDER BY key", wanted)
        return [(key, text) for key, text in rows if isinstance(text, str) and key_of(text) == key]

    def id_of(self, trial: Trial) -> int | None:
        """The id of the stored trial that is the same as this one."""
        for row in self._select(f"{_SELECT} WHERE {_SAME}", _names_of(trial)):
            found = self._usable(row)
            if found is not None and identity(found) == identity(trial):
                return int(row[0])
        return None

    def winner(self, kernel_key: str, fingerprint: Fingerprint, space_version: int) -> Trial | None:
        """The trial promoted last, else the fastest OK trial of the newest OK trial's policy."""
        wanted = {"kernel": kernel_key, "fingerprint": dump_fingerprint(fingerprint), "space": space_version}
        for row in self._select(f"{_PROMOTED} AND t.space_version = :space ORDER BY r.id DESC", wanted):
            entry = self._usable_promotion(row)
            if entry is not None and _answers(entry[0], kernel_key, fingerprint, space_version):
                return entry[0]
        for (trial_id,) in self._select(_BY_SPEED, wanted):
            trial = self._trial(trial_id)
            if trial is not None and trial.measurement.ran and _answers(trial, kernel_key, fingerprint, space_version):
                return trial
        return None

    def knows(self, kernel_key: str) -> bool:
        """Whether any row names this kernel."""
        return bool(self._select("SELECT 1 FROM kernels WHERE key = ?", (kernel_key,)))

    def places(self, kernel_key: str) -> list[tuple[Fingerprint, int]]:
        """Distinct (fingerprint, space version) pairs with an OK trial of this kernel, the newest first."""
        found = []
        for row, fields, space_version in self._select(_PLACES, {"kernel": kernel_key}):
            try:
                found.append((load_fingerprint(fields), int(space_version)))
            except RowFault as error:
                self._report(Problem("fingerprints", row, str(error)))
        return found

    # Promotions -------------------------------------------------------------------------------------------------------

    def promote(self, trial_id: int, evidence: Evidence) -> int:
        """Make a trial the winner of its kernel, fingerprint and space version."""
        self._check_writable()
        evidence = admit_evidence(evidence)
        trial = self._trial(trial_id)
        if trial is None or not trial.measurement.ran:
            raise self._no_such_winner(trial_id, trial)
        with self._transaction() as run:
            cursor = run(
                "INSERT INTO promotions (kernel, fingerprint, trial, evidence, created_s)"
                " SELECT kernel, fingerprint, id, ?, ? FROM trials WHERE id = ?",
                (dump_evidence(evidence), self._clock(), trial_id),
            )
        return int(cursor.lastrowid or 0)

    def promotions(self, kernel_key: str, fingerprint: Fingerprint) -> list[tuple[Trial, Evidence]]:
        """Every promotion of a kernel on a machine, oldest first."""
        wanted = {"kernel": kernel_key, "fingerprint": dump_fingerprint(fingerprint)}
        rows = self._select(f"{_PROMOTED} ORDER BY r.id", wanted)
        entries = [entry for entry in map(self._usable_promotion, rows) if entry is not None]
        return [entry for entry in entries if _answers(entry[0], kernel_key, fingerprint)]

    def withdraw(self, trial_id: int, reason: str, session: str) -> int:
        """Withdraw a trial, for good; the id of its first withdrawal."""
        self._check_writable()
        if not self._select("SELECT 1 FROM trials WHERE id = ?", (trial_id,)):
            raise self._nothing_to_withdraw(trial_id)
        now_s = self._clock()
        with self._transaction() as run:
            self._intern_session(run, session, now_s)
            run(_WITHDRAW, (self._reason(reason), session, now_s, trial_id))
        self._known_sessions.add(session)
        return int(self._select("SELECT id FROM withdrawals WHERE trial = ?", (trial_id,))[0][0])

    def withdrawals(self, kernel_key: str, fingerprint: Fingerprint) -> list[Withdrawal]:
        """Every withdrawal of a kernel's trials on a machine, oldest first; the trials as they were measured."""
        wanted = {"kernel": kernel_key, "fingerprint": dump_fingerprint(fingerprint)}
        found = []
        for *columns, reason, session, created_s, row in self._select(_WITHDRAWN, wanted):
            trial = decode_trial(columns)
            if isinstance(trial, Problem):
                self._report(trial)  # a damaged row wins nothing either
            elif _answers(trial, kernel_key, fingerprint):
                found.append(decode_withdrawal(row, trial, reason, session, created_s))
        return found

    # Sessions, spend, names -------------------------------------------------------------------------------------------

    def _start_session(self, session: Session) -> bool:
        with self._transaction() as run:
            cursor = run(
                "INSERT INTO sessions VALUES (?, ?, NULL, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
                (session.id, session.started_s, session.command, session.seed, session.settings, session.version),
            )
        return cursor.rowcount == 1

    def _end_session(self, session: Session) -> None:
        with self._transaction() as run:
            run("UPDATE sessions SET ended_s = ? WHERE id = ?", (session.ended_s, session.id))

    def sessions(self) -> list[Session]:
        """Every session, oldest first."""
        rows = self._select(f"SELECT {SESSION_COLUMNS} FROM sessions ORDER BY started_s, id")
        found = []
        for session in map(decode_session, rows):
            if isinstance(session, Problem):
                self._report(session)
            else:
                found.append(session)
        return found

    def keep_session(self, session: Session) -> None:
        """Keep a session's row as it is, unless its id is taken by one that is known."""
        with self._transaction() as run:
            run(
                "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
                " started_s = excluded.started_s, ended_s = excluded.ended_s, command = excluded.command,"
                " seed = excluded.seed, settings = excluded.settings, version = excluded.version WHERE command = ''",
                astuple(session),
            )

    def spent(self, model_key: str, fingerprint: Fingerprint, settings: str) -> float:
        """Seconds of tuning budget already spent; a damaged figure counts as none."""
        rows = self._select(
            "SELECT id, seconds FROM spend"
            f" WHERE model_key = :model AND fingerprint = {_FINGERPRINT} AND settings = :settings",
            {"model": model_key, "fingerprint": dump_fingerprint(fingerprint), "settings": settings},
        )
        for row, seconds in rows:
            if isinstance(seconds, int | float) and 0 <= seconds < float("inf"):
                return float(seconds)
            self._report(Problem("spend", row, f"seconds is {seconds!r}, not a finite time >= 0"))
        return 0.0

    def add_spend(self, model_key: str, fingerprint: Fingerprint, settings: str, seconds: float) -> float:
        """Add seconds to what was spent and return the new total."""
        self._check_writable()
        self._check_spend(model_key, seconds)
        with self._transaction() as run:
            machine = self._intern_fingerprint(run, fingerprint)
            total = self.spent(model_key, fingerprint, settings) + float(seconds)
            run(
                "INSERT INTO spend (model_key, fingerprint, settings, seconds) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (model_key, fingerprint, settings) DO UPDATE SET seconds = excluded.seconds",
                (model_key, machine, settings, total),
            )
        return total

    def name_kernel(self, kernel_text: str, name: str) -> None:
        """Give a kernel a name for people."""
        with self._transaction() as run:
            run(
                "INSERT INTO kernels (key, text, name) VALUES (?, ?, ?)"
                " ON CONFLICT (key) DO UPDATE SET name = excluded.name",
                (key_of(kernel_text), kernel_text, clean_text(name)),
            )

    def kernel_name(self, kernel_key: str) -> str:
        """The name, or ''."""
        rows = self._select("SELECT name FROM kernels WHERE key = ?", (kernel_key,))
        return str(rows[0][0]) if rows else ""

    # Everything at once -----------------------------------------------------------------------------------------------

    def replace_contents(self, contents: Contents) -> None:
        """Hold exactly this from now on: all of it is committed, or nothing changes. Ids are new, in order."""
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
                raise StoreError(f"store {self.label}: can not be compacted: {error}; no row was changed") from error

    def _forget_ids(self) -> None:
        self._interned.clear()
        self._known_sessions.clear()

    def _insert_all(self, run: _Run, contents: Contents) -> None:
        run_many = self._connection.executemany
        run_many("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?)", map(astuple, contents.sessions))
        self._known_sessions.update(s.id for s in contents.sessions)
        named = ((key_of(text), text, clean_text(name)) for text, name in contents.kernels)
        run_many("INSERT INTO kernels (key, text, name) VALUES (?, ?, ?)", named)
        ids: dict[Identity, int] = {}
        for trial in map(admit, contents.trials):
            owners = self._intern_trial(run, trial)
            self._interned.update(owners)
            self._known_sessions.add(trial.session)
            cursor = run(_INSERT, (*owners.values(), *encode_trial(trial)))
            if cursor.rowcount == 1 and cursor.lastrowid is not None:
                ids[identity(trial)] = cursor.lastrowid
        for p in contents.promotions:
            if p.trial not in ids:
                raise InternalError(f"store {self.label}: a promotion names a trial that is not there: {p.trial[2]!r}")
            run(
                "INSERT INTO promotions (kernel, fingerprint, trial, evidence, created_s)"
                " SELECT kernel, fingerprint, id, ?, ? FROM trials WHERE id = ?",
                (dump_evidence(admit_evidence(p.evidence)), p.created_s, ids[p.trial]),
            )
        for w in contents.withdrawals:
            if w.trial not in ids:
                raise InternalError(f"store {self.label}: a withdrawal names a trial that is not there: {w.trial[2]!r}")
            self._intern_session(run, w.session, w.created_s)
            self._known_sessions.add(w.session)
            run(_WITHDRAW, (self._reason(w.reason), w.session, w.created_s, ids[w.trial]))
        for s in contents.spends:
            self._check_spend(s.model_key, s.seconds)
            run(
                "INSERT INTO spend (model_key, fingerprint, settings, seconds) VALUES (?, ?, ?, ?)",
                (s.model_key, self._intern_fingerprint(run, s.fingerprint), s.settings, s.seconds),
            )

    # The store about itself -------------------------------------------------------------------------------------------

    def stats(self) -> Stats:
        """Counts and size."""
        counts: dict[object, int] = dict(self._select("SELECT status, COUNT(*) FROM trials GROUP BY status"))
        rows = {
            table: self._select(f"SELECT COUNT(*) FROM {table}")[0][0]
            for table in ("kernels", "fingerprints", "sessions", "promotions", "withdrawals")
        }
        known = {status: counts.pop(status.value, 0) for status in Status}
        ((spent,),) = self._select(
            "SELECT TOTAL(seconds) FROM spend WHERE seconds >= 0 AND seconds < 9e999 AND substr(settings, 1, ?) != ?",
            (len(STOPPED), STOPPED),
        )
        ((version,),) = self._select("PRAGMA user_version")
        return Stats(
            trials=sum(known.values()) + sum(counts.values()),
            by_status=tuple(known.items()),
            unknown_status=sum(counts.values()),
            spent_s=float(spent),
            size_bytes=sum(p.stat().st_size for p in (self._path, Path(f"{self._path}-wal")) if p.exists()),
            schema_version=int(version),
            **rows,
        )

    def verify(self) -> list[Problem]:
        """Check the file and every row; an empty list is a healthy store."""
        self._check_open()
        with self._threads:
            return verify_store(self._connection)

    # Inside -----------------------------------------------------------------------------------------------------------

    def _select(self, sql: str, values: Mapping[str, object] | tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        self._check_open()
        with self._threads:
            try:
                return self._connection.execute(sql, values).fetchall()
            except sqlite3.Error as error:
                raise StoreError(f"store {self.label}: can not be read: {error}") from error

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is written in the block is committed at its end, at the cost of one commit; or none of it."""
        with self._threads, self._transaction():
            self._joined = True
            try:
                yield
            except BaseException:
                self._interned.clear()
                self._known_sessions.clear()
                raise
            finally:
                self._joined = False

    @contextmanager
    def _transaction(self) -> Iterator[_Run]:
        """Everything in the block is committed, or none of it; within ``together``, when that ends."""
        self._check_writable()
        with self._threads:
            if self._joined:
                yield self._connection.execute
                return
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection.execute
                self._connection.execute("COMMIT")
            except BaseException as error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise StoreError(f"store {self.label}: can not be written: {error}; nothing was changed") from error
                raise

    def _intern_trial(self, run: _Run, trial: Trial) -> dict[tuple[str, str], int]:
        """Ids of the kernel, fingerprint and policy of a trial, in this order; their rows and the session's, if new."""
        kernel = ("kernels", trial.kernel_key)
        policy = ("policies", trial.policy.text)
        if kernel not in self._interned:
            # The text is the right one, whatever a damaged row says: its hash is the key.
            run(
                "INSERT INTO kernels (key, text) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET text = excluded.text",
                (trial.kernel_key, trial.kernel_text),
            )
        if policy not in self._interned:
            run(
                "INSERT INTO policies (text, fields) VALUES (?, ?)"
                " ON CONFLICT (text) DO UPDATE SET fields = excluded.fields",
                (trial.policy.text, dump_policy(trial.policy)),
            )
        self._intern_session(run, trial.session, trial.created_s)
        machine = self._intern_fingerprint(run, trial.fingerprint)
        return {
            kernel: self._interned.get(kernel) or _id(run, "SELECT id FROM kernels WHERE key = ?", trial.kernel_key),
            ("fingerprints", dump_fingerprint(trial.fingerprint)): machine,
            policy: self._interned.get(policy) or _id(run, "SELECT id FROM policies WHERE text = ?", trial.policy.text),
        }

    def _intern_session(self, run: _Run, session: str, started_s: float) -> None:
        """A row for a session that only other rows name."""
        if session not in self._known_sessions:
            run(
                "INSERT INTO sessions VALUES (?, ?, NULL, '', 0, '{}', '') ON CONFLICT (id) DO NOTHING",
                (session, started_s),
            )

    def _intern_fingerprint(self, run: _Run, fingerprint: Fingerprint) -> int:
        fields = dump_fingerprint(fingerprint)
        known = self._interned.get(("fingerprints", fields))
        if known is not None:
            return known
        run("INSERT INTO fingerprints (fields) VALUES (?) ON CONFLICT (fields) DO NOTHING", (fields,))
        return _id(run, "SELECT id FROM fingerprints WHERE fields = ?", fields)

    def _settle_conflict(self, run: _Run, trial: Trial, values: tuple[object, ...]) -> int:
        """The id of the row that is the same trial; its content replaced where it was damaged, or no settled end."""
        row = run(f"SELECT {TRIAL_COLUMNS} FROM {TRIAL_FROM} WHERE {_SAME}", _names_of(trial)).fetchone()
        trial_id = int(row[0])
        known = decode_trial(row)
        if isinstance(known, Problem):
            _log.warning("store %s: %s; replaced by a new measurement", self.label, known)
        if isinstance(known, Problem) or (trial.measurement.settled and not known.measurement.settled):
            run(_REPLACE, (*values, trial_id))
        return trial_id

    def _trial(self, trial_id: int) -> Trial | None:
        rows = self._select(f"{_SELECT} WHERE t.id = ?", (trial_id,))
        return self._usable(rows[0]) if rows else None

    def _usable(self, row: tuple[Any, ...]) -> Trial | None:
        """The trial of a row of _SELECT, wrong where it was withdrawn; a damaged one is reported and skipped."""
        *columns, reason, session = row
        found = decode_trial(columns)
        if isinstance(found, Problem):
            self._report(found)
            return None
        return found if session is None else withdrawn(found, str(reason), str(session))

    def _usable_promotion(self, row: tuple[Any, ...]) -> tuple[Trial, Evidence] | None:
        *columns, promotion, text = row
        trial = self._usable((*columns, None, None))
        evidence = decode_evidence(promotion, text)
        if isinstance(evidence, Problem):
            self._report(evidence)
            return None
        return (trial, evidence) if trial is not None and trial.measurement.ran else None

    def _report(self, problem: Problem) -> None:
        _log.warning("store %s: skipped: %s", self.label, problem)


def _answers(
    trial: Trial, kernel_key: str, fingerprint: Fingerprint | None = None, space_version: int | None = None
) -> bool:
    """Whether a trial is of what was asked for: a damaged index may lead to a sound row of something else."""
    return (
        trial.kernel_key == kernel_key
        and (fingerprint is None or trial.fingerprint == fingerprint)
        and (space_version is None or trial.space_version == space_version)
    )


def _id(run: _Run, sql: str, value: str) -> int:
    return int(run(sql, (value,)).fetchone()[0])


def _names_of(trial: Trial) -> dict[str, object]:
    return {
        "kernel": trial.kernel_key,
        "fingerprint": dump_fingerprint(trial.fingerprint),
        "policy": trial.policy.text,
        "actions": trial.actions,
        "space": trial.space_version,
    }
