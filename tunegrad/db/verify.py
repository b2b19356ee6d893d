"""Every check on a store file: its structure, the links between rows, and the content of every row."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from math import isfinite
from typing import Any

from tunegrad.db.connection import damage_of
from tunegrad.db.records import Problem
from tunegrad.db.rows import (
    SESSION_COLUMNS,
    TRIAL_COLUMNS,
    TRIAL_FROM,
    RowFault,
    decode_evidence,
    decode_session,
    decode_trial,
    key_of,
    load_fingerprint,
    load_policy,
)
from tunegrad.db.scan import scan

__all__ = ["PROMOTION_SELECT", "SPEND_SELECT", "TRIAL_SELECT", "WITHDRAWAL_SELECT", "check_row", "verify_store"]

TRIAL_SELECT = f"SELECT {TRIAL_COLUMNS} FROM {TRIAL_FROM}"
PROMOTION_SELECT = (
    "SELECT r.id, r.evidence, r.trial, t.id, t.status, t.kernel = r.kernel AND t.fingerprint = r.fingerprint,"
    " r.created_s FROM promotions r LEFT JOIN trials t ON t.id = r.trial"
)
SPEND_SELECT = (
    "SELECT s.id, s.model_key, f.fields, s.settings, s.seconds"
    " FROM spend s LEFT JOIN fingerprints f ON f.id = s.fingerprint"
)
WITHDRAWAL_SELECT = (
    "SELECT w.id, w.trial, w.reason, w.session, w.created_s, t.id,"
    " t.kernel = w.kernel AND t.fingerprint = w.fingerprint"
    " FROM withdrawals w LEFT JOIN trials t ON t.id = w.trial"
)
_SELECTS = {
    "kernels": ("SELECT id, key, text, name FROM kernels", "id"),
    "fingerprints": ("SELECT id, fields FROM fingerprints", "id"),
    "policies": ("SELECT id, text, fields FROM policies", "id"),
    "sessions": (f"SELECT {SESSION_COLUMNS} FROM sessions", "rowid"),
    "trials": (TRIAL_SELECT, "t.id"),
    "promotions": (PROMOTION_SELECT, "r.id"),
    "spend": (SPEND_SELECT, "s.id"),
    "withdrawals": (WITHDRAWAL_SELECT, "w.id"),
}


def verify_store(connection: sqlite3.Connection) -> list[Problem]:
    """Everything wrong with a store, in the order: file, links, rows of each table."""
    problems = []
    if damage := damage_of(connection):
        problems.append(Problem("file", None, damage))
    problems.extend(_dangling_sessions(connection))
    for table, (select, row_id) in _SELECTS.items():
        for row in scan(connection, table, select, row_id):
            problem = row if isinstance(row, Problem) else check_row(table, row)
            if problem is not None:
                problems.append(problem)
    return problems


def check_row(table: str, row: tuple[Any, ...]) -> Problem | None:
    """What is wrong with one row of a table's select, or None."""
    if table == "trials":
        decoded: object = decode_trial(row)
    elif table == "sessions":
        decoded = decode_session(row)
    elif table == "promotions":
        decoded = _check_promotion(row)
    else:
        decoded = None
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
        return Problem("promotions", promotion, f"its kernel or fingerprint is not that of its trial {trial}")
    if status != "ok":
        return Problem("promotions", promotion, f"its trial {trial} has status {status!r}, not 'ok'")
    if not (isinstance(created_s, int | float) and isfinite(created_s)):
        return Problem("promotions", promotion, f"created_s is {created_s!r}, not a finite time")
    decoded = decode_evidence(promotion, evidence)
    return decoded if isinstance(decoded, Problem) else None


def _dangling_sessions(connection: sqlite3.Connection) -> Iterator[Problem]:
    """Trials whose session is unknown: readable, but nobody can say how they came about."""
    select = "SELECT t.id, t.session, s.id FROM trials t LEFT JOIN sessions s ON s.id = t.session"
    for row in scan(connection, "trials", select, "t.id"):
        if not isinstance(row, Problem) and row[2] is None:
            yield Problem("trials", row[0], f"orphan: its session {row[1]!r} is missing")
