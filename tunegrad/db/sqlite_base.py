"""The base of a store in a SQLite file: connection, transactions, ids of rows."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tunegrad.db.base import BaseStore
from tunegrad.db.connection import close_writer
from tunegrad.db.lock import WriterLock
from tunegrad.db.records import Problem, Session
from tunegrad.db.rows import dump_fingerprint, dump_policy
from tunegrad.db.session_rows import SESSION_VALUES, encode_session
from tunegrad.errors import StoreError
from tunegrad.trial import Fingerprint, Trial

__all__ = ["INSERT_SESSION", "Run", "SqliteBase"]

_log = logging.getLogger(__name__)
Run = Callable[..., sqlite3.Cursor]
_Row = TypeVar("_Row")

INSERT_SESSION = (
    f"INSERT INTO sessions ({', '.join(SESSION_VALUES)}) VALUES "
    f"({', '.join('?' * len(SESSION_VALUES))})"
)


class SqliteBase(BaseStore):
    """A store's connection; a writer also holds the lock."""

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


def _id(run: Run, sql: str, value: str) -> int:
    return int(run(sql, (value,)).fetchone()[0])
