"""Reading a table past its damaged pages: in order where that works, row by row where it does not."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

from tunegrad.db.records import Problem

__all__ = ["scan"]

_PROBES = 50_000


def scan(connection: sqlite3.Connection, table: str, select: str, row_id: str) -> Iterator[tuple[Any, ...] | Problem]:
    """Rows of ``select`` in order, and a Problem for each unreadable gap.

    ``select`` has no WHERE, and its first column is ``row_id``, the table's integer key.
    """
    last = 0
    while True:
        try:
            for row in connection.execute(f"{select} WHERE {row_id} > ? ORDER BY {row_id}", (last,)):
                yield row
                last = row[0]
        except sqlite3.DatabaseError as error:
            reason = str(error)
        else:
            return
        found = _next_readable(connection, table, f"{select} WHERE {row_id} = ?", last)
        if found is None:
            yield Problem(table, None, f"rows after {last} can not be read: {reason}")
            return
        if found > last + 1:
            yield Problem(table, None, f"rows {last + 1} to {found - 1} can not be read: {reason}")
        yield from connection.execute(f"{select} WHERE {row_id} = ?", (found,))
        last = found


def _next_readable(connection: sqlite3.Connection, table: str, select_one: str, last: int) -> int | None:
    """The next id after ``last`` whose row can be read alone, within a bounded number of probes."""
    try:
        (highest,) = connection.execute(f"SELECT MAX(rowid) FROM {table}").fetchone()
    except sqlite3.DatabaseError:
        highest = None
    stop = last + _PROBES if highest is None else min(highest, last + _PROBES)
    for candidate in range(last + 1, stop + 1):
        try:
            if connection.execute(select_one, (candidate,)).fetchone() is not None:
                return candidate
        except sqlite3.DatabaseError:
            continue
    return None
