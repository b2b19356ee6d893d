"""The contents of a store file, sound or damaged: every row that can be read, and what is wrong
with the rest.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tunegrad.db.check.verify import every_row, faults_of_file, rows_of
from tunegrad.db.contents import Contents, Promotion, Withdrawn
from tunegrad.db.file import DamagedStore, check_location, connect_reader, connect_salvager
from tunegrad.db.identity import identity
from tunegrad.db.records import Problem
from tunegrad.db.rows import decode_withdrawal
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
        return _contents(connection)
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


def _contents(connection: sqlite3.Connection) -> tuple[Contents, tuple[Problem, ...]]:
    """Everything that can be read, and what ``verify_store`` finds, by reading each row once."""
    problems = [*faults_of_file(connection)]

    def rows(table: str) -> list[tuple[tuple[Any, ...], Any]]:
        return list(rows_of(connection, table, problems))

    kernels = sorted((row for row, _ in rows("kernels")), key=lambda row: str(row[1]))
    rows("fingerprints"), rows("policies")
    sessions = [s for _, s in rows("sessions")]
    trials: dict[int, Trial] = {row[0]: trial for row, trial in rows("trials")}
    promotions = [
        Promotion(identity(trials[row[2]]), evidence, float(row[-1]))
        for row, evidence in rows("promotions")
        if row[2] in trials
    ]
    spends = [s for _, s in rows("spend")]
    rows("withdrawals")
    found = Contents(
        kernels=tuple((text, name) for _, _, text, name in kernels),
        sessions=tuple(sorted(sessions, key=lambda s: (s.started_s, s.id))),
        trials=tuple(trials.values()),
        promotions=tuple(promotions),
        spends=tuple(sorted(spends, key=lambda s: (s.model_key, s.fingerprint.fields, s.settings))),
        withdrawals=tuple(_withdrawals(connection, trials)),
        decisions=tuple(d for _, d in rows("decisions")),
        latencies=tuple(x for _, x in rows("latencies")),
    )
    return found.with_sound_promotions(), tuple(problems)


def _withdrawals(connection: sqlite3.Connection, trials: dict[int, Trial]) -> Iterator[Withdrawn]:
    """Whatever else is wrong with a withdrawal, its trial does not win."""
    for row in every_row(connection, "withdrawals"):
        if not isinstance(row, Problem) and row[1] in trials:
            row_id, named, reason, session, created_s, *_ = row
            w = decode_withdrawal(row_id, trials[named], reason, session, created_s)
            yield Withdrawn(identity(w.trial), w.reason, w.session, w.created_s)
