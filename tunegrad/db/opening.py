"""Opening of a store: the checks, the lock, the file, in this order."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tunegrad.db.check import salvaged_contents
from tunegrad.db.connection import (
    MOUNTS,
    DamagedStore,
    connect_memory,
    connect_reader,
    connect_writer,
    usable_path,
)
from tunegrad.db.contents import Contents
from tunegrad.db.database import Database, WriterLock
from tunegrad.db.records import Problem
from tunegrad.db.sql import replace_all
from tunegrad.db.store import Mode, Store
from tunegrad.errors import StoreError

MEMORY = ":memory:"

_log = logging.getLogger(__name__)


def open_store(
    path: str | os.PathLike[str],
    mode: Mode = "read",
    *,
    clock: Callable[[], float] = time.time,
    trace: Callable[[str], None] | None = None,
    mounts: Path = MOUNTS,
) -> Store:
    """Open the store at ``path``, or a fresh one in memory for ``:memory:``.

    "write" creates a missing file, migrates an old one and holds the writer's lock until closed.
    "read" never writes a row, needs no lock and works beside a writer; of a damaged file it gives
    what can be read, with a logged warning and the list from ``verify``. ``trace`` is called with
    every SQL statement. ``mounts`` is the system's mount table.

    Raises StoreError, in one line: a missing directory, a missing, unreadable, foreign, newer or
    damaged file, another writer, a network filesystem.
    """
    if mode not in ("read", "write"):
        raise StoreError(f"store {os.fspath(path)}: mode {mode!r} is neither 'read' nor 'write'")
    if os.fspath(path) == MEMORY:
        return Store(Database(MEMORY, connect_memory(trace), writable=mode == "write"), clock)
    resolved = usable_path(path, write=mode == "write", mounts=mounts)
    if mode == "write":
        return _open_writer(resolved, clock, trace)
    return _open_reader(resolved, clock, trace)


def check_store(path: str | os.PathLike[str]) -> None:
    """Raise StoreError, in one line, where a store can not be opened to write, as far as that is
    told without making it. Nothing is written, and no lock is taken.
    """
    if os.fspath(path) == MEMORY:
        return
    resolved = usable_path(path, write=True)
    if resolved.exists():
        open_store(resolved).close()


def _open_writer(
    path: Path, clock: Callable[[], float], trace: Callable[[str], None] | None
) -> Store:
    lock = WriterLock(path)
    try:
        connection = connect_writer(path, trace)
        return Store(Database(str(path), connection, writable=True, path=path, lock=lock), clock)
    except BaseException:
        lock.release()
        raise


def _open_reader(
    path: Path, clock: Callable[[], float], trace: Callable[[str], None] | None
) -> Store:
    try:
        connection = connect_reader(path, trace)
        return Store(Database(str(path), connection, writable=False, path=path), clock)
    except DamagedStore as error:
        _log.warning("%s; reading what is left", error)
    contents, problems = salvaged_contents(path)
    return store_of(contents, str(path), clock, problems)


def store_of(
    contents: Contents,
    label: str = MEMORY,
    clock: Callable[[], float] = time.time,
    problems: Sequence[Problem] = (),
) -> Store:
    """These contents as a store in memory that is only read; its ``verify`` lists ``problems``."""
    database = Database(label, connect_memory(), writable=True)
    replace_all(database, contents)
    database.writable = False
    return Store(database, clock, problems)
