"""The store in a SQLite file: one writer, any number of readers, every row committed before its
method returns.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tunegrad.db.base import BaseStore, described, withdrawn
from tunegrad.db.check import verify_store
from tunegrad.db.contents import Contents, decided
from tunegrad.db.file import WriterLock, close_writer
from tunegrad.db.identity import (
    Identity,
    Subject,
    identity,
    measured_again,
    standing,
    stands_among,
    subject,
    wrong_of,
)
from tunegrad.db.queries import (
    BY_SPEED,
    FINGERPRINT,
    INSERT_TRIAL,
    KERNEL,
    MEASURED,
    PLACES,
    POLICY,
    PROMOTED,
    REPLACE,
    SAME,
    SELECT,
    STRUCK,
    WITHDRAW,
    WITHDRAWN,
    conditions,
)
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
    DECISION_COLUMNS,
    DECISION_FROM,
    DECISION_VALUES,
    LATENCY_COLUMNS,
    LATENCY_FROM,
    LATENCY_VALUES,
    SESSION_COLUMNS,
    SESSION_VALUES,
    TRIAL_COLUMNS,
    TRIAL_FROM,
    RowFault,
    admit,
    admit_decision,
    admit_evidence,
    admit_latency,
    clean_text,
    decode_decision,
    decode_evidence,
    decode_latency,
    decode_session,
    decode_trial,
    decode_withdrawal,
    dump_evidence,
    dump_fingerprint,
    dump_policy,
    dump_properties,
    encode_decision,
    encode_latency,
    encode_session,
    encode_trial,
    key_of,
    load_fingerprint,
)
from tunegrad.errors import InternalError, StoreError
from tunegrad.trial import Fingerprint, Policy, Properties, Status, Trial

__all__ = ["SqliteStore"]

_log = logging.getLogger(__name__)

Run = Callable[..., sqlite3.Cursor]

_Row = TypeVar("_Row")

INSERT_SESSION = (
    f"INSERT INTO sessions ({', '.join(SESSION_VALUES)}) VALUES "
    f"({', '.join('?' * len(SESSION_VALUES))})"
)


_OF_TRIALS = {
    "kernel": f"t.kernel = {KERNEL}",
    "fingerprint": f"t.fingerprint = {FINGERPRINT}",
    "policy": f"t.policy = {POLICY}",
}

INSERT_SPEND = "INSERT INTO spend (model_key, fingerprint, settings, seconds) VALUES (?, ?, ?, ?)"

_INSERT_DECISION = (
    f"INSERT INTO decisions (kernel, fingerprint, {', '.join(DECISION_VALUES)})"
    f" SELECT id, ?, {', '.join('?' * len(DECISION_VALUES))} FROM kernels WHERE key = ?"
)

_INSERT_LATENCY = (
    f"INSERT INTO latencies (fingerprint, {', '.join(LATENCY_VALUES)})"
    f" VALUES ({', '.join('?' * (1 + len(LATENCY_VALUES)))})"
)

_OF_DECISIONS = {
    "kernel": f"d.kernel = {KERNEL}",
    "fingerprint": f"d.fingerprint = {FINGERPRINT}",
    "space": "d.space_version = :space",
    "kind": "d.kind = :kind",
    "chosen": "d.chosen = :chosen",
}

_OF_LATENCIES = {
    "model": "l.model = :model",
    "fingerprint": f"l.fingerprint = {FINGERPRINT}",
    "since": "l.created_s >= :since",
}

_FILL = ", ".join(f"{name} = excluded.{name}" for name in SESSION_VALUES if name != "id")

# Those that others refer to come last.
_TABLES = (
    "spend", "withdrawals", "promotions", "decisions", "latencies", "trials", "sessions",
    "policies",
    "fingerprints", "kernels",
)  # fmt: skip


class SqliteStore(BaseStore):
    """A store on an open connection; a writer also holds the lock. Made by ``open_store``."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        lock: WriterLock | None,
        clock: Callable[[], float],
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
        """Release the file and the lock.

        In a forked child this does nothing: they are the owner's.
        """
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

    def _select(
        self, sql: str, values: Mapping[str, object] | tuple[object, ...] = ()
    ) -> list[tuple[Any, ...]]:
        self._check_open()
        with self._threads:
            try:
                return self._connection.execute(sql, values).fetchall()
            except sqlite3.Error as error:
                raise StoreError(f"store {self.label}: can not be read: {error}") from error

    @contextmanager
    def together(self) -> Iterator[None]:
        """Commit what is written in the block at its end, by one commit; or none of it."""
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
    def _transaction(self) -> Iterator[Run]:
        """Everything in the block is committed, or none; within ``together``, when that ends."""
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
                    raise StoreError(
                        f"store {self.label}: can not be written: {error}; nothing was changed"
                    ) from error
                raise

    def _intern_trial(self, run: Run, trial: Trial) -> dict[tuple[str, str], int]:
        """Ids of the kernel, fingerprint and policy of a trial, in this order.

        Where they are new, their rows are made, and the session's.
        """
        kernel = ("kernels", trial.kernel_key)
        policy = ("policies", trial.policy.text)
        self._intern_kernel(run, trial.kernel_key, trial.kernel_text)
        if policy not in self._interned:
            run(
                "INSERT INTO policies (text, fields) VALUES (?, ?)"
                " ON CONFLICT (text) DO UPDATE SET fields = excluded.fields",
                (trial.policy.text, dump_policy(trial.policy)),
            )
        self._intern_session(run, trial.session, trial.created_s)
        machine = self._intern_fingerprint(run, trial.fingerprint)
        return {
            kernel: self._interned.get(kernel)
            or _id(run, "SELECT id FROM kernels WHERE key = ?", trial.kernel_key),
            ("fingerprints", dump_fingerprint(trial.fingerprint)): machine,
            policy: self._interned.get(policy)
            or _id(run, "SELECT id FROM policies WHERE text = ?", trial.policy.text),
        }

    def _intern_session(self, run: Run, session: str, started_s: float) -> None:
        """A row for a session that only other rows name."""
        if session not in self._known_sessions:
            bare = Session(session, started_s, None, "", 0, "{}", "")
            run(f"{INSERT_SESSION} ON CONFLICT (id) DO NOTHING", encode_session(bare))

    def _intern_kernel(self, run: Run, key: str, text: str) -> None:
        """A row for a text: the right one, whatever a damaged row says, as its hash is the key."""
        if ("kernels", key) not in self._interned:
            run(
                "INSERT INTO kernels (key, text) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET "
                "text = excluded.text",
                (key, text),
            )

    def _intern_fingerprint(self, run: Run, fingerprint: Fingerprint) -> int:
        fields = dump_fingerprint(fingerprint)
        known = self._interned.get(("fingerprints", fields))
        if known is not None:
            return known
        run(
            "INSERT INTO fingerprints (fields) VALUES (?) ON CONFLICT (fields) DO NOTHING",
            (fields,),
        )
        return _id(run, "SELECT id FROM fingerprints WHERE fields = ?", fields)

    def _sound(self, found: Iterable[_Row | Problem]) -> list[_Row]:
        """Rows that could be read; a damaged row is reported and skipped."""
        rows = []
        for row in found:
            if isinstance(row, Problem):
                self._report(row)
            else:
                rows.append(row)
        return rows

    def _report(self, problem: Problem) -> None:
        _log.warning("store %s: skipped: %s", self.label, problem)

    # Trials, promotions and withdrawals

    def add(self, trial: Trial) -> int:
        """Commit one trial and return its id; that of the stored row when it is already there."""
        self._check_writable()
        trial = admit(trial)
        values = encode_trial(trial)
        with self._transaction() as run:
            owners = self._intern_trial(run, trial)
            cursor = run(INSERT_TRIAL, (*owners.values(), 0, *values))
            if cursor.rowcount == 1 and cursor.lastrowid is not None:
                row = cursor.lastrowid
            else:
                row = self._add_again(run, trial, tuple(owners.values()), values)
        # Only what is committed may be skipped next time.
        self._interned.update(owners)
        self._known_sessions.add(trial.session)
        return row

    def trials(
        self,
        kernel_key: str,
        fingerprint: Fingerprint | None = None,
        policy: Policy | None = None,
        without: Collection[str] = (),
    ) -> list[Trial]:
        """Trials of a kernel, oldest first; of one fingerprint or policy (by its text).

        Of what was measured several times the measurement that counts, as if the sessions in
        ``without`` had measured nothing.
        """
        where, wanted = conditions(
            _OF_TRIALS,
            kernel=kernel_key,
            fingerprint=None if fingerprint is None else dump_fingerprint(fingerprint),
            policy=None if policy is None else policy.text,
        )
        rows = self._select(f"{SELECT} WHERE {where} ORDER BY t.id", wanted)
        found = [t for t in map(self._usable, rows) if t is not None]
        return standing(
            t for t in found if t.session not in without and _answers(t, kernel_key, fingerprint)
        )

    def history(self, kernel_key: str, fingerprint: Fingerprint | None = None) -> list[Trial]:
        """Every measurement of a kernel as it was, oldest first; of one fingerprint where given."""
        fields = None if fingerprint is None else dump_fingerprint(fingerprint)
        where, wanted = conditions(_OF_TRIALS, kernel=kernel_key, fingerprint=fields)
        rows = self._select(
            f"SELECT {TRIAL_COLUMNS} FROM {TRIAL_FROM} WHERE {where} ORDER BY t.id", wanted
        )
        found = [t for t in map(self._decoded, rows) if t is not None]
        return [t for t in found if _answers(t, kernel_key, fingerprint)]

    def count(self, sessions: Collection[str], policy: Policy) -> int:
        """Number of trials that these sessions measured under a policy."""
        wanted = (
            "SELECT COUNT(*) FROM trials t WHERE t.policy = (SELECT id FROM policies "
            "WHERE text = ?)"
        )
        marks = ", ".join("?" * len(sessions))
        return int(
            self._select(f"{wanted} AND t.session IN ({marks})", (policy.text, *sessions))[0][0]
        )

    def kernels(self, fingerprint: Fingerprint | None = None) -> list[tuple[str, str]]:
        """(key, text) of every kernel that has trials (of one fingerprint), by key."""
        fields = None if fingerprint is None else dump_fingerprint(fingerprint)
        where, wanted = conditions(_OF_TRIALS, fingerprint=fields)
        trials = f"SELECT 1 FROM trials t WHERE t.kernel = k.id AND {where}"
        rows = self._select(
            f"SELECT key, text FROM kernels k WHERE EXISTS ({trials}) ORDER BY key", wanted
        )
        return [(key, text) for key, text in rows if isinstance(text, str) and key_of(text) == key]

    def id_of(self, trial: Trial) -> int | None:
        """The id of the stored trial that is the same as this one."""
        when = "t.session = :session AND t.created_s = :created_s"
        named = _names_of(trial) | {"session": trial.session, "created_s": trial.created_s}
        for row in self._select(f"{SELECT} WHERE {SAME} AND {when}", named):
            found = self._usable(row)
            if found is not None and identity(found) == identity(trial):
                return int(row[0])
        return None

    def winner(self, kernel_key: str, fingerprint: Fingerprint, space_version: int) -> Trial | None:
        """The trial promoted last, else the fastest OK trial of the newest OK trial's policy."""
        wanted = {
            "kernel": kernel_key, "fingerprint": dump_fingerprint(fingerprint),
            "space": space_version,
        }  # fmt: skip
        for *row, repeated in self._select(
            f"{PROMOTED} AND t.space_version = :space ORDER BY r.id DESC", wanted
        ):
            entry = self._usable_promotion(row)
            if entry is not None and _answers(entry[0], kernel_key, fingerprint, space_version):
                return self._newest(entry[0]) if repeated else entry[0]
        for trial_id, repeated in self._select(BY_SPEED, wanted):
            trial = self._trial(trial_id)
            if trial is None or not trial.measurement.ran:
                continue
            if not _answers(trial, kernel_key, fingerprint, space_version):
                continue
            if not repeated or stands_among(self._measurements(trial)) == trial:
                return trial
        return None

    def _measurements(self, trial: Trial) -> list[Trial]:
        """All sound measurements of what a trial measured, as they were, oldest first."""
        rows = self._select(MEASURED, _names_of(trial))
        return [t for *row, _ in rows if (t := self._decoded(row)) is not None]

    def _newest(self, trial: Trial) -> Trial:
        """The newest measurement that ran of what was promoted; from here before claimed."""
        ran = [t for t in self._measurements(trial) if t.measurement.ran]
        own = [t for t in ran if not imported(t)]
        return (own or ran or [trial])[-1]

    def knows(self, kernel_key: str) -> bool:
        """True when any row names this kernel."""
        return bool(self._select("SELECT 1 FROM kernels WHERE key = ?", (kernel_key,)))

    def places(self, kernel_key: str) -> list[tuple[Fingerprint, int]]:
        """(fingerprint, space version) pairs with an OK trial of this kernel, the newest first."""
        found = []
        for row, fields, space_version in self._select(PLACES, {"kernel": kernel_key}):
            try:
                found.append((load_fingerprint(fields), int(space_version)))
            except RowFault as error:
                self._report(Problem("fingerprints", row, str(error)))
        return found

    def describe(self, trial_id: int, facts: Properties) -> None:
        """Add to a trial what a compiler makes of its program; what it has of it stays."""
        self._check_writable()
        rows = self._select(f"SELECT {TRIAL_COLUMNS} FROM {TRIAL_FROM} WHERE t.id = ?", (trial_id,))
        found = self._decoded(rows[0]) if rows else None
        if found is None:
            raise self._nothing_to_describe(trial_id)
        with self._transaction() as run:
            run(REPLACE, (*encode_trial(admit(described(found, facts))), trial_id))

    # Promotions

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
        rows = self._select(f"{PROMOTED} ORDER BY r.id", wanted)
        entries = [e for *row, _ in rows if (e := self._usable_promotion(row)) is not None]
        return [entry for entry in entries if _answers(entry[0], kernel_key, fingerprint)]

    def withdraw(self, trial_id: int, reason: str, session: str) -> int:
        """Withdraw a trial and all measurements of the same; the id of the first withdrawal."""
        self._check_writable()
        found = self._select(f"SELECT ({STRUCK}) FROM trials t WHERE t.id = ?", (trial_id,))
        if not found:
            raise self._nothing_to_withdraw(trial_id)
        if found[0][0] is not None:
            return int(found[0][0])
        now_s = self._clock()
        with self._transaction() as run:
            self._intern_session(run, session, now_s)
            cursor = run(WITHDRAW, (self._reason(reason), session, now_s, trial_id))
        self._known_sessions.add(session)
        return int(cursor.lastrowid or 0)

    def withdrawals(self, kernel_key: str, fingerprint: Fingerprint) -> list[Withdrawal]:
        """Every withdrawal of a kernel's trials on a machine, oldest first."""
        wanted = {"kernel": kernel_key, "fingerprint": dump_fingerprint(fingerprint)}
        found = []
        for *columns, reason, session, created_s, row in self._select(WITHDRAWN, wanted):
            trial = decode_trial(columns)
            if isinstance(trial, Problem):
                self._report(trial)  # a damaged row wins nothing either
            elif _answers(trial, kernel_key, fingerprint):
                found.append(decode_withdrawal(row, trial, reason, session, created_s))
        return found

    # Inside

    def _add_again(
        self, run: Run, trial: Trial, owners: tuple[int, ...], values: tuple[object, ...]
    ) -> int:
        """The id of a trial of which the same was measured before.

        It is that of its row, if it is there; of a damaged row, which it replaces; or of a further
        row. What ran and was wrong is withdrawn.
        """
        known: list[tuple[int, Trial]] = []
        rows = run(MEASURED, _names_of(trial)).fetchall()
        for *row, _ in rows:
            found = decode_trial(row)
            if isinstance(found, Problem):
                _log.warning("store %s: %s; replaced by a new measurement", self.label, found)
                run(REPLACE, (*values, row[0]))
                return int(row[0])
            if identity(found) == identity(trial):
                return int(row[0])
            known.append((row[0], found))
        number = int(run(INSERT_TRIAL, (*owners, rows[-1][-1] + 1, *values)).lastrowid or 0)
        wrong = wrong_of([*known, (number, trial)])
        if wrong is not None:
            row_id, measured = wrong
            reason = self._reason(measured_again(measured.measurement.error))
            run(WITHDRAW, (reason, measured.session, measured.created_s, row_id))
        return number

    def _trial(self, trial_id: int) -> Trial | None:
        rows = self._select(f"{SELECT} WHERE t.id = ?", (trial_id,))
        return self._usable(rows[0]) if rows else None

    def _decoded(self, columns: Sequence[Any]) -> Trial | None:
        """The trial of TRIAL_COLUMNS; a damaged one is reported and skipped."""
        found = decode_trial(columns)
        if isinstance(found, Problem):
            self._report(found)
            return None
        return found

    def _usable(self, row: tuple[Any, ...]) -> Trial | None:
        """The trial of a row of SELECT, wrong where it was withdrawn."""
        *columns, reason, session = row
        found = self._decoded(columns)
        if found is None or session is None:
            return found
        return withdrawn(found, str(reason), str(session))

    def _usable_promotion(self, row: Sequence[Any]) -> tuple[Trial, Evidence] | None:
        *columns, promotion, text = row
        trial = self._decoded(columns)
        evidence = decode_evidence(promotion, text)
        if isinstance(evidence, Problem):
            self._report(evidence)
            return None
        return (trial, evidence) if trial is not None and trial.measurement.ran else None

    # Sessions

    def _start_session(self, session: Session) -> bool:
        with self._transaction() as run:
            cursor = run(f"{INSERT_SESSION} ON CONFLICT (id) DO NOTHING", encode_session(session))
        return cursor.rowcount == 1

    def _end_session(self, session: Session) -> None:
        with self._transaction() as run:
            run("UPDATE sessions SET ended_s = ? WHERE id = ?", (session.ended_s, session.id))

    def _write_state(self, session: Session) -> None:
        state = dump_properties(session.state)
        with self._transaction() as run:
            run("UPDATE sessions SET state = ? WHERE id = ?", (state, session.id))

    def sessions(self) -> list[Session]:
        """Every session, oldest first."""
        rows = self._select(f"SELECT {SESSION_COLUMNS} FROM sessions ORDER BY started_s, id")
        return self._sound(map(decode_session, rows))

    def keep_session(self, session: Session) -> None:
        """Keep a session's row as it is, unless its id is taken by one that is known."""
        with self._transaction() as run:
            run(
                f"{INSERT_SESSION} ON CONFLICT (id) DO UPDATE SET {_FILL} WHERE command = ''",
                encode_session(session),
            )

    # Decisions

    def record_decision(self, decision: Decision) -> int:
        """Commit a decision and return its id."""
        self._check_writable()
        decision = admit_decision(decision)
        with self._transaction() as run:
            number = self._insert_decision(run, decision)
        self._known_sessions.add(decision.session)
        return number

    def _insert_decision(self, run: Run, d: Decision) -> int:
        self._intern_kernel(run, d.key, d.text)
        self._intern_session(run, d.session, d.created_s)
        machine = self._intern_fingerprint(run, d.fingerprint)
        return int(run(_INSERT_DECISION, (machine, *encode_decision(d), d.key)).lastrowid or 0)

    def decision(
        self, kind: Question, key: str, fingerprint: Fingerprint, space_version: int
    ) -> Decision | None:
        """The decision in force about one question here."""
        where, wanted = conditions(
            _OF_DECISIONS,
            kernel=key,
            fingerprint=dump_fingerprint(fingerprint),
            space=space_version,
            kind=kind,
            chosen=1,
        )
        asked = kind, key, fingerprint, space_version
        found = self._decisions(where, wanted)
        return decided(d for d in found if (d.kind, d.key, d.fingerprint, d.space_version) == asked)

    def decisions(
        self,
        key: str | None = None,
        fingerprint: Fingerprint | None = None,
        kind: Question | None = None,
    ) -> list[Decision]:
        """Every decision, oldest first; of one text, machine or kind of question where given."""
        fields = None if fingerprint is None else dump_fingerprint(fingerprint)
        return self._decisions(
            *conditions(_OF_DECISIONS, kernel=key, fingerprint=fields, kind=kind)
        )

    def _decisions(self, where: str, wanted: dict[str, object]) -> list[Decision]:
        select = f"SELECT {DECISION_COLUMNS} FROM {DECISION_FROM} WHERE {where} ORDER BY d.id"
        return self._sound(map(decode_decision, self._select(select, wanted)))

    # Latencies

    def record_latency(self, latency: Latency) -> int:
        """Commit what a whole model took and return the row's id."""
        self._check_writable()
        latency = admit_latency(latency)
        with self._transaction() as run:
            number = self._insert_latency(run, latency)
        self._known_sessions.add(latency.session)
        return number

    def _insert_latency(self, run: Run, x: Latency) -> int:
        self._intern_session(run, x.session, x.created_s)
        machine = self._intern_fingerprint(run, x.fingerprint)
        return int(run(_INSERT_LATENCY, (machine, *encode_latency(x))).lastrowid or 0)

    def latencies(
        self,
        model: str | None = None,
        here: Fingerprint | None = None,
        since_s: float | None = None,
    ) -> list[Latency]:
        """Latencies of models, oldest first; of one model or machine, or not before a moment."""
        fields = None if here is None else dump_fingerprint(here)
        where, wanted = conditions(_OF_LATENCIES, model=model, fingerprint=fields, since=since_s)
        select = (
            f"SELECT {LATENCY_COLUMNS} FROM {LATENCY_FROM} WHERE {where} ORDER BY l.created_s, l.id"
        )
        return self._sound(map(decode_latency, self._select(select, wanted)))

    # Spent budget

    def spent(self, model_key: str, fingerprint: Fingerprint, settings: str) -> float:
        """Seconds of tuning budget already spent; a damaged figure counts as none."""
        rows = self._select(
            "SELECT id, seconds FROM spend"
            f" WHERE model_key = :model AND fingerprint = {FINGERPRINT} AND settings = :settings",
            {
                "model": model_key,
                "fingerprint": dump_fingerprint(fingerprint),
                "settings": settings,
            },
        )
        for row, seconds in rows:
            if isinstance(seconds, int | float) and 0 <= seconds < float("inf"):
                return float(seconds)
            self._report(Problem("spend", row, f"seconds is {seconds!r}, not a finite time >= 0"))
        return 0.0

    def add_spend(
        self, model_key: str, fingerprint: Fingerprint, settings: str, seconds: float
    ) -> float:
        """Add seconds to what was spent and return the new total."""
        self._check_writable()
        self._check_spend(model_key, seconds)
        with self._transaction() as run:
            machine = self._intern_fingerprint(run, fingerprint)
            total = self.spent(model_key, fingerprint, settings) + float(seconds)
            run(
                f"{INSERT_SPEND} ON CONFLICT (model_key, fingerprint, settings)"
                " DO UPDATE SET seconds = excluded.seconds",
                (model_key, machine, settings, total),
            )
        return total

    # Names

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


def _id(run: Run, sql: str, value: str) -> int:
    return int(run(sql, (value,)).fetchone()[0])


def _answers(
    trial: Trial,
    kernel_key: str,
    fingerprint: Fingerprint | None = None,
    space_version: int | None = None,
) -> bool:
    """True for a trial of what was asked for: a damaged index may lead to a row of another."""
    return (
        trial.kernel_key == kernel_key
        and (fingerprint is None or trial.fingerprint == fingerprint)
        and (space_version is None or trial.space_version == space_version)
    )


def _names_of(trial: Trial) -> dict[str, object]:
    return {
        "kernel": trial.kernel_key,
        "fingerprint": dump_fingerprint(trial.fingerprint),
        "policy": trial.policy.text,
        "actions": trial.actions,
        "space": trial.space_version,
    }
