"""The contents of a store file, sound or damaged: every row that can be read, and what is wrong with the rest."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tunegrad.db.connection import DamagedStore, connect_reader, connect_salvager
from tunegrad.db.contents import Contents, Identity, Promotion, Spend, Withdrawn
from tunegrad.db.location import check_location
from tunegrad.db.records import Evidence, Problem, Session
from tunegrad.db.rows import SESSION_COLUMNS, decode_evidence, decode_session, decode_trial, identity, load_fingerprint
from tunegrad.db.scan import scan
from tunegrad.db.verify import PROMOTION_SELECT, SPEND_SELECT, TRIAL_SELECT, WITHDRAWAL_SELECT, check_row, verify_store
from tunegrad.errors import StoreError
from tunegrad.trial import Trial

__all__ = ["read_contents", "sound_contents"]


def read_contents(path: str | os.PathLike[str]) -> tuple[Contents, tuple[Problem, ...]]:
    """What the store at ``path`` holds, and every problem that kept a row out. Raises StoreError; writes nothing."""
    try:
        resolved = Path(path).expanduser().resolve()
        check_location(resolved, write=False)
    except (OSError, RuntimeError, ValueError) as error:
        raise StoreError(f"store {os.fspath(path)!r}: no usable path: {error}") from error
    try:
        connection = connect_reader(resolved)
    except DamagedStore:
        connection = connect_salvager(resolved)
    try:
        return _contents(connection), tuple(verify_store(connection))
    except sqlite3.Error as error:
        raise StoreError(f"store {resolved}: damaged beyond reading: {error}") from error
    finally:
        connection.close()


def sound_contents(path: str | os.PathLike[str]) -> Contents:
    """What a store holds that is to be rewritten. Raises StoreError when any of it is damaged: that would be lost."""
    contents, problems = read_contents(path)
    if problems:
        more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise StoreError(
            f"store {os.fspath(path)}: is damaged ({problems[0]}{more}), so it is not rewritten; copy what is sound "
            "with `tunegrad store verify --salvage NEW` and use that"
        )
    return contents


def _contents(connection: sqlite3.Connection) -> Contents:
    sessions = [
        s for row in _rows(connection, "sessions", f"SELECT {SESSION_COLUMNS} FROM sessions", "rowid")
        if isinstance(s := decode_session(row), Session)
    ]  # fmt: skip
    trials: dict[int, Trial] = {}
    for row in _rows(connection, "trials", TRIAL_SELECT, "t.id"):
        if isinstance(trial := decode_trial(row), Trial):
            trials[row[0]] = trial
    identities = {row: identity(t) for row, t in trials.items()}
    kernels = _rows(connection, "kernels", "SELECT id, key, text, name FROM kernels", "id")
    spends = [
        Spend(row[1], load_fingerprint(row[2]), row[3], float(row[4]))
        for row in _rows(connection, "spend", SPEND_SELECT, "s.id")
        if check_row("spend", row) is None and isinstance(row[1], str) and isinstance(row[3], str)
    ]
    return Contents(
        kernels=tuple((row[2], row[3]) for row in sorted(_sound(kernels, "kernels"), key=lambda row: str(row[1]))),
        sessions=tuple(sorted(sessions, key=lambda s: (s.started_s, s.id))),
        trials=tuple(trials.values()),
        promotions=tuple(_promotions(connection, identities)),
        spends=tuple(sorted(spends, key=lambda s: (s.model_key, s.fingerprint.fields, s.settings))),
        withdrawals=tuple(
            Withdrawn(identities[row[1]], row[2], row[3], float(row[4]))
            for row in _rows(connection, "withdrawals", WITHDRAWAL_SELECT, "w.id")
            if check_row("withdrawals", row) is None and row[1] in identities
        ),
    ).with_sound_promotions()


def _promotions(connection: sqlite3.Connection, identities: dict[int, Identity]) -> Iterator[Promotion]:
    for row in _rows(connection, "promotions", PROMOTION_SELECT, "r.id"):
        evidence = decode_evidence(row[0], row[1])
        if check_row("promotions", row) is None and isinstance(evidence, Evidence) and row[2] in identities:
            yield Promotion(identities[row[2]], evidence, float(row[-1]))


def _sound(rows: Iterator[tuple[Any, ...]], table: str) -> Iterator[tuple[Any, ...]]:
    return (row for row in rows if check_row(table, row) is None)


def _rows(connection: sqlite3.Connection, table: str, select: str, row_id: str) -> Iterator[tuple[Any, ...]]:
    for row in scan(connection, table, select, row_id):
        if not isinstance(row, Problem):
            yield row
