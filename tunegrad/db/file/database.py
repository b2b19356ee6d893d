"""An open store: its connection, the transactions on it, and the lock of its writer."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tunegrad.db.file.connection import close_writer
from tunegrad.db.file.lock import WriterLock
from tunegrad.errors import StoreError

__all__ = ["Database", "Run"]

Run = Callable[..., sqlite3.Cursor]


class Database:
    """An open connection to a store, and the ids of shared rows that were written or read by it.

    It belongs to the process that opened it; its threads may share it. ``label`` names the store in
    messages, ``path`` is None for a store in memory, ``writable`` says that rows may change.
    """

    def __init__(
        self,
        label: str,
        connection: sqlite3.Connection,
        *,
        writable: bool,
        path: Path | None = None,
        lock: WriterLock | None = None,
    ) -> None:
        self.label = label
        self.connection = connection
        self.writable = writable
        self.closed = False
        self.threads = threading.RLock()
        self._path = path
        self._lock = lock
        self._owner = os.getpid()
        self._ids: dict[tuple[str, str], int] = {}
        self._joined = False

    def close(self) -> None:
        """Release the file and the lock; in a forked child nothing, since they are the owner's."""
        if self.closed or self._owner != os.getpid():
            return
        with self.threads:
            self.closed = True
            if self._lock is None:
                self.connection.close()
            else:
                close_writer(self.connection)
                self._lock.release()

    def check_open(self) -> None:
        """Raise StoreError for a closed store, and in a forked child."""
        if self.closed:
            raise StoreError(f"store {self.label}: is closed")
        if self._owner != os.getpid():
            raise StoreError(
                f"store {self.label}: was opened by process {self._owner} and is used in process "
                f"{os.getpid()}; workers return rows to the owner"
            )

    def check_writable(self) -> None:
        """Raise StoreError for a store that is closed, or open for reading."""
        self.check_open()
        if not self.writable:
            raise StoreError(
                f"store {self.label}: is open for reading; open it with mode 'write' to change it"
            )

    def select(
        self, sql: str, values: Mapping[str, object] | tuple[object, ...] = ()
    ) -> list[tuple[Any, ...]]:
        """All rows of a statement that reads."""
        self.check_open()
        with self.threads:
            try:
                return self.connection.execute(sql, values).fetchall()
            except sqlite3.Error as error:
                raise StoreError(f"store {self.label}: can not be read: {error}") from error

    @contextmanager
    def transaction(self) -> Iterator[Run]:
        """Commit everything in the block, or nothing; within ``together``, when that ends."""
        self.check_writable()
        with self.threads:
            if self._joined:
                yield self.connection.execute
                return
            try:
                self.connection.execute("BEGIN IMMEDIATE")
                yield self.connection.execute
                self.connection.execute("COMMIT")
            except BaseException as error:
                self._ids.clear()
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise StoreError(
                        f"store {self.label}: can not be written: {error}; nothing was changed"
                    ) from error
                raise

    @contextmanager
    def together(self) -> Iterator[None]:
        """Join the transactions of the block into one."""
        with self.threads, self.transaction():
            self._joined = True
            try:
                yield
            finally:
                self._joined = False

    def id_of(
        self,
        run: Run,
        table: str,
        column: str,
        value: str,
        also: Callable[[], Mapping[str, str]] = dict,
    ) -> int:
        """Id of the row of ``table`` that has this value; it is made where it is missing.

        ``also`` gives the content of its other columns: it replaces what a damaged row says.
        """
        known = self._ids.get((table, value))
        if known is None:
            more = also()
            names, marks = ", ".join((column, *more)), ", ".join("?" * (1 + len(more)))
            change = ", ".join(f"{name} = excluded.{name}" for name in more)
            run(
                f"INSERT INTO {table} ({names}) VALUES ({marks}) ON CONFLICT ({column}) DO "
                + (f"UPDATE SET {change}" if more else "NOTHING"),
                (value, *more.values()),
            )
            (known,) = run(f"SELECT id FROM {table} WHERE {column} = ?", (value,)).fetchone()
            self._ids[table, value] = known
        return known

    def has(self, table: str, key: str) -> bool:
        """True for a row that was made or read by this connection; the next time as well."""
        known = (table, key) in self._ids
        self._ids.setdefault((table, key), 0)
        return known

    def forget(self) -> None:
        """Forget every id, before all rows are replaced."""
        self._ids.clear()

    def compact(self) -> None:
        """Give unused pages of the file back to the filesystem."""
        self.check_writable()
        with self.threads:
            try:
                self.connection.execute("VACUUM")
            except sqlite3.Error as error:
                raise StoreError(
                    f"store {self.label}: can not be compacted: {error}; no row was changed"
                ) from error

    @property
    def size_bytes(self) -> int:
        """Bytes of the file and its log; 0 for a store in memory."""
        if self._path is None:
            return 0
        files = (self._path, Path(f"{self._path}-wal"))
        return sum(file.stat().st_size for file in files if file.exists())
