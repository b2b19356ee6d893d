"""Every check on a store file: its structure, the links between rows, and the content of every
row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from math import inf, isfinite
from typing import Any, NamedTuple

from tunegrad.db.check.scan import scan
from tunegrad.db.contents import Spend
from tunegrad.db.file import damage_of
from tunegrad.db.records import Problem
from tunegrad.db.rows import (
    DECISIONS,
    LATENCIES,
    SESSIONS,
    TRIALS,
    Form,
    RowFault,
    decode_decision,
    decode_evidence,
    decode_latency,
    decode_session,
    decode_trial,
    key_of,
    load_fingerprint,
    load_policy,
    take_text,
)

__all__ = ["every_row", "faults_of_file", "rows_of", "verify_store"]

Row = tuple[Any, ...]


class _Table(NamedTuple):
    """A table: the select that reads it in full, without WHERE, the name of its first column, and
    the content of such a row, or its fault as a Problem or RowFault.
    """

    select: str
    row_id: str
    content: Callable[[Row], object]


def every_row(connection: sqlite3.Connection, table: str) -> Iterator[Row | Problem]:
    """Every row of a table, sound or not, and a Problem for each gap that can not be read."""
    return scan(connection, table, _TABLES[table].select, _TABLES[table].row_id)


def rows_of(
    connection: sqlite3.Connection, table: str, problems: list[Problem]
) -> Iterator[tuple[Row, Any]]:
    """Every sound row of a table and its content; what is wrong with the others joins ``problems``.

    The content of a kernel and of a withdrawal is None: the row says it.
    """
    for row in every_row(connection, table):
        if isinstance(row, Problem):
            problems.append(row)
            continue
        try:
            content = _TABLES[table].content(row)
        except RowFault as error:
            content = Problem(table, row[0], str(error))
        if isinstance(content, Problem):
            problems.append(content)
        else:
            yield row, content


def verify_store(connection: sqlite3.Connection) -> list[Problem]:
    """Everything wrong with a store, in the order: file, links, rows of each table."""
    problems = [*faults_of_file(connection)]
    for table in _TABLES:
        for _ in rows_of(connection, table, problems):
            pass
    return problems


def faults_of_file(connection: sqlite3.Connection) -> Iterator[Problem]:
    """Faults of the file's structure, and rows whose session is unknown: they are
    readable, but of unknown origin.
    """
    if damage := damage_of(connection):
        yield Problem("file", None, damage)
    for table in ("trials", "decisions", "latencies"):
        select = (
            f"SELECT t.id, t.session, s.id FROM {table} t LEFT JOIN sessions s ON s.id = t.session"
        )
        for row in scan(connection, table, select, "t.id"):
            if not isinstance(row, Problem) and row[2] is None:
                yield Problem(table, row[0], f"orphan: its session {row[1]!r} is missing")


def _kernel(row: Row) -> None:
    _, key, text, name = row
    if not (isinstance(text, str) and isinstance(name, str)):
        raise RowFault(f"text or name of kernel {key!r} is not text")
    if key_of(text) != key:
        raise RowFault(f"kernel key {key!r} is not the hash {key_of(text)} of its text")


def _promotion(row: Row) -> object:
    promotion, evidence, named, trial, status, agrees, created_s = row
    _check_named(named, trial, agrees)
    if status != "ok":
        raise RowFault(f"its trial {trial} has status {status!r}, not 'ok'")
    _check_moment(created_s)
    return decode_evidence(promotion, evidence)


def _withdrawal(row: Row) -> None:
    _, named, reason, session, created_s, trial, agrees = row
    _check_named(named, trial, agrees)
    if not (isinstance(reason, str) and isinstance(session, str)):
        raise RowFault(f"reason {reason!r} or session {session!r} is not text")
    _check_moment(created_s)


def _check_named(named: object, trial: object, agrees: object) -> None:
    if trial is None:
        raise RowFault(f"orphan: its trial {named!r} is missing")
    if not agrees:
        raise RowFault(f"its kernel or fingerprint is not that of its trial {trial}")


def _check_moment(created_s: object) -> None:
    if not (isinstance(created_s, int | float) and isfinite(created_s)):
        raise RowFault(f"created_s is {created_s!r}, not a finite time")


def _spend(row: Row) -> Spend:
    _, model_key, fields, settings, seconds = row
    if fields is None:
        raise RowFault("orphan: its fingerprint row is missing")
    if not (isinstance(seconds, int | float) and 0 <= seconds < inf):
        raise RowFault(f"seconds is {seconds!r}, not a finite time >= 0")
    return Spend(
        take_text("model_key", model_key),
        load_fingerprint(fields),
        take_text("settings", settings),
        float(seconds),
    )


def _of(form: Form, row_id: str, content: Callable[[Row], object]) -> _Table:
    return _Table(f"SELECT {form.select} FROM {form.source}", row_id, content)


_PROMOTIONS = (
    "SELECT r.id, r.evidence, r.trial, t.id, t.status, t.kernel = r.kernel AND "
    "t.fingerprint = r.fingerprint,"
    " r.created_s FROM promotions r LEFT JOIN trials t ON t.id = r.trial"
)
_SPENDS = (
    "SELECT s.id, s.model_key, f.fields, s.settings, s.seconds"
    " FROM spend s LEFT JOIN fingerprints f ON f.id = s.fingerprint"
)
_WITHDRAWALS = (
    "SELECT w.id, w.trial, w.reason, w.session, w.created_s, t.id,"
    " t.kernel = w.kernel AND t.fingerprint = w.fingerprint"
    " FROM withdrawals w LEFT JOIN trials t ON t.id = w.trial"
)
_TABLES = {
    "kernels": _Table("SELECT id, key, text, name FROM kernels", "id", _kernel),
    "fingerprints": _Table(
        "SELECT id, fields FROM fingerprints", "id", lambda row: load_fingerprint(row[1])
    ),
    "policies": _Table(
        "SELECT id, text, fields FROM policies", "id", lambda row: load_policy(row[1], row[2])
    ),
    "sessions": _of(SESSIONS, "rowid", decode_session),
    "trials": _of(TRIALS, "t.id", decode_trial),
    "promotions": _Table(_PROMOTIONS, "r.id", _promotion),
    "spend": _Table(_SPENDS, "s.id", _spend),
    "withdrawals": _Table(_WITHDRAWALS, "w.id", _withdrawal),
    "decisions": _of(DECISIONS, "d.id", decode_decision),
    "latencies": _of(LATENCIES, "l.id", decode_latency),
}
