"""An open store: its connection, the transactions on it, and the lock of its writer."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tunegrad.db.connection import close_writer
from tunegrad.errors import StoreError

_held: dict[Path, int] = {}

_guard = threading.Lock()


class WriterLock:
    """The lock of one store; taken when made, given back by ``release``.

    Raises StoreError when another writer has it (naming the process), or when the side file can not
    be made.

    A POSIX record lock on the side file ``<store>.lock`` is held for as long as the store is open.
    The kernel drops it when the process ends, however it ends, and does not pass it on to forked
    workers, so nothing stale is left to clean up. Such a lock does not exclude its own process, so
    a table of the locks held here does.
    """

    __slots__ = ("_descriptor", "_owner", "path")

    def __init__(self, store: Path) -> None:
        self.path = store.with_name(store.name + ".lock")
        self._owner = os.getpid()
        with _guard:
            # Never open the side file while this process holds it: closing any descriptor would
            # drop the lock.
            if _held.get(self.path) == self._owner:
                raise StoreError(_taken(store, self.path, f"this process ({self._owner})"))
            self._descriptor = _acquire(store, self.path)
            _held[self.path] = self._owner
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, f"{self._owner}\n".encode())

    def release(self) -> None:
        """Give the lock back and remove the side file. In a forked child this does nothing."""
        if self._descriptor < 0 or self._owner != os.getpid():
            return
        with _guard:
            with contextlib.suppress(OSError):
                self.path.unlink()
            os.close(self._descriptor)
            self._descriptor = -1
            _held.pop(self.path, None)


def _acquire(store: Path, path: Path) -> int:
    """A locked descriptor of the side file at ``path``; again, where it was removed meanwhile."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(
                f"store {store}: can not be written: {path}: {error.strerror}"
            ) from error
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            same = os.path.samestat(os.fstat(descriptor), path.stat())
        except BlockingIOError:
            owner = os.read(descriptor, 64).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise StoreError(
                _taken(store, path, f"process {owner}" if owner else "another process")
            ) from None
        except FileNotFoundError:
            same = False
        except OSError as error:
            os.close(descriptor)
            raise StoreError(
                f"store {store}: can not be locked for writing: {path}: {error.strerror}"
            ) from error
        if same:
            return descriptor
        os.close(descriptor)


def _taken(store: Path, lock: Path, owner: str) -> str:
    return (
        f"store {store}: already open for writing by {owner} (lock {lock}); wait for it, or "
        "open for reading"
    )


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
