"""Reading a table past its damaged pages: in order where that works, row by row where it does
not.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

from tunegrad.db.records import Problem

__all__ = ["scan"]

_PROBES = 10_000
_LARGEST = 2**63 - 1


def scan(
    connection: sqlite3.Connection, table: str, select: str, row_id: str
) -> Iterator[tuple[Any, ...] | Problem]:
    """Rows of ``select`` in order, and a Problem for each unreadable gap.

    ``select`` has no WHERE, and its first column is ``row_id``, the table's integer key. In a
    damaged tree a page may point back to its ancestors: ids that do not rise, or exceed the
    largest, end the walk like an error does.
    """
    last = 0
    highest = _highest(connection, table)
    while True:
        reason = ""
        try:
            for row in connection.execute(
                f"{select} WHERE {row_id} > ? ORDER BY {row_id}", (last,)
            ):
                if not last < row[0] <= highest:
                    reason = f"row {row[0]} follows row {last}"
                    break
                yield row
                last = row[0]
        except sqlite3.DatabaseError as error:
            reason = str(error)
        if not reason:
            return
        found = _next_readable(
            connection, f"{select} WHERE {row_id} = ?", last, min(highest, last + _PROBES)
        )
        if found is None:
            yield Problem(table, None, f"rows after {last} can not be read: {reason}")
            return
        if found[0] > last + 1:
            yield Problem(
                table, None, f"rows {last + 1} to {found[0] - 1} can not be read: {reason}"
            )
        yield found
        last = found[0]


def _highest(connection: sqlite3.Connection, table: str) -> int:
    """The largest id, from the tree's right edge; the largest possible one where that edge is
    damaged.
    """
    try:
        (highest,) = connection.execute(f"SELECT MAX(rowid) FROM {table}").fetchone()
    except sqlite3.DatabaseError:
        return _LARGEST
    return highest if isinstance(highest, int) else 0


def _next_readable(
    connection: sqlite3.Connection, select_one: str, last: int, stop: int
) -> tuple[Any, ...] | None:
    """The first row after ``last``, up to ``stop``, that can be read alone."""
    for candidate in range(last + 1, stop + 1):
        try:
            row: tuple[Any, ...] | None = connection.execute(select_one, (candidate,)).fetchone()
        except sqlite3.DatabaseError:
            continue
        if row is not None and row[0] == candidate:
            return row
    return None
