"""Every check on a store file: its structure, the links between rows, and the content of every
row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from math import isfinite
from typing import Any

from tunegrad.db.check.scan import scan
from tunegrad.db.file import damage_of
from tunegrad.db.records import Problem
from tunegrad.db.rows import (
    DECISION_COLUMNS,
    DECISION_FROM,
    LATENCY_COLUMNS,
    LATENCY_FROM,
    SESSION_COLUMNS,
    TRIAL_COLUMNS,
    TRIAL_FROM,
    RowFault,
    decode_decision,
    decode_evidence,
    decode_latency,
    decode_session,
    decode_trial,
    key_of,
    load_fingerprint,
    load_policy,
)

__all__ = ["SELECTS", "check_row", "verify_store"]

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
SELECTS = {
    "kernels": ("SELECT id, key, text, name FROM kernels", "id"),
    "fingerprints": ("SELECT id, fields FROM fingerprints", "id"),
    "policies": ("SELECT id, text, fields FROM policies", "id"),
    "sessions": (f"SELECT {SESSION_COLUMNS} FROM sessions", "rowid"),
    "trials": (f"SELECT {TRIAL_COLUMNS} FROM {TRIAL_FROM}", "t.id"),
    "promotions": (_PROMOTIONS, "r.id"),
    "spend": (_SPENDS, "s.id"),
    "withdrawals": (_WITHDRAWALS, "w.id"),
    "decisions": (f"SELECT {DECISION_COLUMNS} FROM {DECISION_FROM}", "d.id"),
    "latencies": (f"SELECT {LATENCY_COLUMNS} FROM {LATENCY_FROM}", "l.id"),
}
"""The select that reads each table in full, without WHERE, and its first column."""

_DECODERS: dict[str, Callable[[tuple[Any, ...]], object]] = {
    "trials": decode_trial,
    "sessions": decode_session,
    "decisions": decode_decision,
    "latencies": decode_latency,
}


def verify_store(connection: sqlite3.Connection) -> list[Problem]:
    """Everything wrong with a store, in the order: file, links, rows of each table."""
    problems = []
    if damage := damage_of(connection):
        problems.append(Problem("file", None, damage))
    problems.extend(_dangling_sessions(connection))
    for table, (select, row_id) in SELECTS.items():
        for row in scan(connection, table, select, row_id):
            problem = row if isinstance(row, Problem) else check_row(table, row)
            if problem is not None:
                problems.append(problem)
    return problems


def check_row(table: str, row: tuple[Any, ...]) -> Problem | None:
    """Fault of one row of a table's select, or None."""
    decoded: object = None
    if table in _DECODERS:
        decoded = _DECODERS[table](row)
    elif table == "promotions":
        decoded = _check_promotion(row)
    else:
        try:
            _CHECKS[table](row)
        except RowFault as error:
            decoded = Problem(table, row[0], str(error))
    return decoded if isinstance(decoded, Problem) else None


def _check_kernel(row: tuple[Any, ...]) -> None:
    _, key, text, name = row
    if not (isinstance(text, str) and isinstance(name, str)):
        raise RowFault(f"text or name of kernel {key!r} is not text")
    if key_of(text) != key:
        raise RowFault(f"kernel key {key!r} is not the hash {key_of(text)} of its text")


def _check_withdrawal(row: tuple[Any, ...]) -> None:
    _, named, reason, session, created_s, trial, agrees = row
    if trial is None:
        raise RowFault(f"orphan: its trial {named!r} is missing")
    if not agrees:
        raise RowFault(f"its kernel or fingerprint is not that of its trial {trial}")
    if not (isinstance(reason, str) and isinstance(session, str)):
        raise RowFault(f"reason {reason!r} or session {session!r} is not text")
    if not (isinstance(created_s, int | float) and isfinite(created_s)):
        raise RowFault(f"created_s is {created_s!r}, not a finite time")


def _check_spend(row: tuple[Any, ...]) -> None:
    _, _, fields, _, seconds = row
    if fields is None:
        raise RowFault("orphan: its fingerprint row is missing")
    if not (isinstance(seconds, int | float) and 0 <= seconds < float("inf")):
        raise RowFault(f"seconds is {seconds!r}, not a finite time >= 0")


_CHECKS = {
    "kernels": _check_kernel,
    "fingerprints": lambda row: load_fingerprint(row[1]),
    "policies": lambda row: load_policy(row[1], row[2]),
    "spend": _check_spend,
    "withdrawals": _check_withdrawal,
}


def _check_promotion(row: tuple[Any, ...]) -> Problem | None:
    promotion, evidence, named, trial, status, agrees, created_s = row
    if trial is None:
        return Problem("promotions", promotion, f"orphan: its trial {named!r} is missing")
    if not agrees:
        return Problem(
            "promotions", promotion, f"its kernel or fingerprint is not that of its trial {trial}"
        )
    if status != "ok":
        return Problem(
            "promotions", promotion, f"its trial {trial} has status {status!r}, not 'ok'"
        )
    if not (isinstance(created_s, int | float) and isfinite(created_s)):
        return Problem("promotions", promotion, f"created_s is {created_s!r}, not a finite time")
    decoded = decode_evidence(promotion, evidence)
    return decoded if isinstance(decoded, Problem) else None


def _dangling_sessions(connection: sqlite3.Connection) -> Iterator[Problem]:
    """Rows whose session is unknown: readable, but of unknown origin."""
    for table in ("trials", "decisions", "latencies"):
        select = (
            f"SELECT t.id, t.session, s.id FROM {table} t LEFT JOIN sessions s ON s.id = t.session"
        )
        for row in scan(connection, table, select, "t.id"):
            if not isinstance(row, Problem) and row[2] is None:
                yield Problem(table, row[0], f"orphan: its session {row[1]!r} is missing")
