"""What is left of a damaged store: its readable rows, as a store in memory that is only read."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tunegrad.db.connection import connect_salvager
from tunegrad.db.memory_store import MemoryStore
from tunegrad.db.records import Evidence, Problem, Session
from tunegrad.db.rows import (
    SESSION_COLUMNS,
    decode_evidence,
    decode_session,
    decode_trial,
    load_fingerprint,
)
from tunegrad.db.scan import scan
from tunegrad.db.verify import PROMOTION_SELECT, SPEND_SELECT, TRIAL_SELECT, WITHDRAWAL_SELECT, check_row, verify_store
from tunegrad.trial import Trial

__all__ = ["rescue"]


def rescue(path: Path, clock: Callable[[], float] = time.time) -> MemoryStore:
    """Every sound row of a damaged store, in memory and read-only; ``verify`` says what was lost.

    Ids are new. Raises StoreError when not even the schema can be read.
    """
    connection = connect_salvager(path)
    try:
        store = MemoryStore("write", label=str(path), clock=clock, problems=verify_store(connection))
        _fill(store, connection)
    finally:
        connection.close()
    store.freeze()
    return store


def _fill(store: MemoryStore, connection: sqlite3.Connection) -> None:
    for row in _rows(connection, "sessions", f"SELECT {SESSION_COLUMNS} FROM sessions", "rowid"):
        if isinstance(session := decode_session(row), Session):
            store.keep_session(session)
    ids: dict[int, int] = {}
    for row in _rows(connection, "trials", TRIAL_SELECT, "t.id"):
        if isinstance(trial := decode_trial(row), Trial):
            ids[row[0]] = store.add(trial)
    for row in _rows(connection, "promotions", PROMOTION_SELECT, "r.id"):
        evidence = decode_evidence(row[0], row[1])
        if check_row("promotions", row) is None and isinstance(evidence, Evidence) and row[2] in ids:
            store.promote(ids[row[2]], evidence)
    for row in _rows(connection, "withdrawals", WITHDRAWAL_SELECT, "w.id"):
        if row[1] in ids:  # whatever else is wrong with it: its trial does not win
            reason, said_by = (x if isinstance(x, str) else "damaged" for x in row[2:4])
            store.withdraw(ids[row[1]], reason, said_by)
    for row in _rows(connection, "kernels", "SELECT id, key, text, name FROM kernels", "id"):
        if check_row("kernels", row) is None and row[3]:
            store.name_kernel(row[2], row[3])
    for row in _rows(connection, "spend", SPEND_SELECT, "s.id"):
        if check_row("spend", row) is None:
            store.add_spend(row[1], load_fingerprint(row[2]), row[3], row[4])


def _rows(connection: sqlite3.Connection, table: str, select: str, row_id: str) -> Iterator[tuple[Any, ...]]:
    for row in scan(connection, table, select, row_id):
        if not isinstance(row, Problem):
            yield row
