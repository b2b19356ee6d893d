"""Checks of a store file, sound or damaged: structure, links between rows, every readable row."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tunegrad.db.connection import (
    DamagedStore,
    connect_reader,
    connect_salvager,
    damage_of,
    usable_path,
)
from tunegrad.db.contents import Contents, Promotion, Spend, Withdrawn, identity
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
    decode_withdrawal,
    key_of,
    load_fingerprint,
    load_policy,
    take_text,
)
from tunegrad.errors import KernelTextError, StoreError
from tunegrad.lazy import dataclass
from tunegrad.trial import Trial

if TYPE_CHECKING:
    from tunegrad.db.store import Store

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
    """The largest id, from the tree's right edge; the largest possible where that is damaged."""
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
    """Faults of the file's structure, and rows of unknown sessions: readable, of unknown origin."""
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


def read_contents(path: str | os.PathLike[str]) -> tuple[Contents, tuple[Problem, ...]]:
    """Contents of the store at ``path``, and every problem that kept a row out.

    Raises StoreError; writes nothing.
    """
    resolved = usable_path(path, write=False)
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


@dataclass(frozen=True, slots=True)
class UnreadText:
    """A kernel that can not be read back, and why."""

    key: str
    name: str
    reason: str

    def __str__(self) -> str:
        return f"kernel {f'{self.key} {self.name}'.strip()}: {self.reason}"


def unread_texts(store: Store) -> Iterator[UnreadText]:
    """Every kernel with trials whose text does not parse, by key.

    No damage: of another version, or by hand.
    """
    from tunegrad.ir.parse_kernel import parse_kernel

    for key, text in store.kernels():
        try:
            parse_kernel(text)
        except KernelTextError as error:
            yield UnreadText(key, store.kernel_name(key), str(error))
