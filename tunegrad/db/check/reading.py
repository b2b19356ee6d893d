"""The contents of a store file, sound or damaged: every row that can be read, and what is wrong
with the rest.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tunegrad.db.check.scan import scan
from tunegrad.db.check.verify import SELECTS, check_row, verify_store
from tunegrad.db.contents import Contents, Promotion, Spend, Withdrawn
from tunegrad.db.file import DamagedStore, check_location, connect_reader, connect_salvager
from tunegrad.db.identity import Identity, identity
from tunegrad.db.records import Decision, Evidence, Latency, Problem, Session
from tunegrad.db.rows import (
    decode_decision,
    decode_evidence,
    decode_latency,
    decode_session,
    decode_trial,
    decode_withdrawal,
    load_fingerprint,
)
from tunegrad.errors import StoreError
from tunegrad.trial import Trial

__all__ = ["read_contents", "salvaged_contents", "sound_contents"]


def read_contents(path: str | os.PathLike[str]) -> tuple[Contents, tuple[Problem, ...]]:
    """Contents of the store at ``path``, and every problem that kept a row out.

    Raises StoreError; writes nothing.
    """
    try:
        resolved = Path(path).expanduser().resolve()
        check_location(resolved, write=False)
    except (OSError, RuntimeError, ValueError) as error:
        raise StoreError(f"store {os.fspath(path)!r}: no usable path: {error}") from error
    try:
        connection = connect_reader(resolved)
    except DamagedStore:
        return salvaged_contents(resolved)
    return _read(connection, resolved)


def salvaged_contents(path: Path) -> tuple[Contents, tuple[Problem, ...]]:
    """Readable contents of a damaged store, and every problem.

    Raises StoreError.
    """
    return _read(connect_salvager(path), path)


def _read(connection: sqlite3.Connection, path: Path) -> tuple[Contents, tuple[Problem, ...]]:
    try:
        return _contents(connection), tuple(verify_store(connection))
    except sqlite3.Error as error:
        raise StoreError(f"store {path}: damaged beyond reading: {error}") from error
    finally:
        connection.close()


def sound_contents(path: str | os.PathLike[str]) -> Contents:
    """Contents of a store that is to be rewritten.

    Raises StoreError when any of it is damaged: that would be lost.
    """
    contents, problems = read_contents(path)
    if problems:
        more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise StoreError(
            f"store {os.fspath(path)}: is damaged ({problems[0]}{more}), so it is not "
            "rewritten; copy what is sound "
            "with `tunegrad store verify --salvage NEW` and use that"
        )
    return contents


def _contents(connection: sqlite3.Connection) -> Contents:
    trials: dict[int, Trial] = {}
    for row in _rows(connection, "trials"):
        if isinstance(trial := decode_trial(row), Trial):
            trials[row[0]] = trial
    sessions = (
        s for row in _rows(connection, "sessions") if isinstance(s := decode_session(row), Session)
    )
    decisions = (
        d
        for row in _rows(connection, "decisions")
        if isinstance(d := decode_decision(row), Decision)
    )
    latencies = (
        x for row in _rows(connection, "latencies") if isinstance(x := decode_latency(row), Latency)
    )
    kernels = [row for row in _rows(connection, "kernels") if check_row("kernels", row) is None]
    spends = [
        Spend(row[1], load_fingerprint(row[2]), row[3], float(row[4]))
        for row in _rows(connection, "spend")
        if check_row("spend", row) is None and isinstance(row[1], str) and isinstance(row[3], str)
    ]
    return Contents(
        kernels=tuple((row[2], row[3]) for row in sorted(kernels, key=lambda row: str(row[1]))),
        sessions=tuple(sorted(sessions, key=lambda s: (s.started_s, s.id))),
        trials=tuple(trials.values()),
        promotions=tuple(_promotions(connection, {row: identity(t) for row, t in trials.items()})),
        spends=tuple(sorted(spends, key=lambda s: (s.model_key, s.fingerprint.fields, s.settings))),
        withdrawals=tuple(_withdrawals(connection, trials)),
        decisions=tuple(decisions),
        latencies=tuple(latencies),
    ).with_sound_promotions()


def _promotions(
    connection: sqlite3.Connection, identities: dict[int, Identity]
) -> Iterator[Promotion]:
    for row in _rows(connection, "promotions"):
        evidence = decode_evidence(row[0], row[1])
        if (
            check_row("promotions", row) is None
            and isinstance(evidence, Evidence)
            and row[2] in identities
        ):
            yield Promotion(identities[row[2]], evidence, float(row[-1]))


def _withdrawals(connection: sqlite3.Connection, trials: dict[int, Trial]) -> Iterator[Withdrawn]:
    """Whatever else is wrong with a withdrawal, its trial does not win."""
    for row_id, trial, reason, session, created_s, *_ in _rows(connection, "withdrawals"):
        if trial in trials:
            found = decode_withdrawal(row_id, trials[trial], reason, session, created_s)
            yield Withdrawn(identity(trials[trial]), found.reason, found.session, found.created_s)


def _rows(connection: sqlite3.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    for row in scan(connection, table, *SELECTS[table]):
        if not isinstance(row, Problem):
            yield row
