"""Sessions as rows of the store, and back: checked like trials (``rows``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tunegrad.db.records import Problem, Session
from tunegrad.db.rows.values import (
    RowFault,
    dump_properties,
    take_integer,
    take_json,
    take_properties,
    take_real,
    take_text,
)

__all__ = ["SESSION_COLUMNS", "SESSION_VALUES", "decode_session", "encode_session"]

SESSION_VALUES = (
    "id", "started_s", "ended_s", "command", "seed", "settings", "version", "versions", "state",
)  # fmt: skip
SESSION_COLUMNS = ", ".join(("rowid", *SESSION_VALUES))
"""The columns that decode_session reads."""


def encode_session(session: Session) -> tuple[object, ...]:
    """Values of a session for the columns SESSION_VALUES."""
    return (
        session.id,
        session.started_s,
        session.ended_s,
        session.command,
        session.seed,
        session.settings,
        session.version,
        dump_properties(session.versions),
        dump_properties(session.state),
    )


def decode_session(row: Sequence[Any]) -> Session | Problem:
    """The session of a row of SESSION_COLUMNS, or what is wrong with it."""
    rowid, session_id, started_s, ended_s, command, seed, settings, version, versions, state = row
    try:
        if not isinstance(take_json("settings", settings), dict):
            raise RowFault("settings is not a JSON object")
        if not all(
            math.isfinite(take_real("time", t)) for t in (started_s, ended_s) if t is not None
        ):
            raise RowFault(f"started_s {started_s!r} or ended_s {ended_s!r} is not a finite time")
        return Session(
            take_text("id", session_id),
            take_real("started_s", started_s),
            None if ended_s is None else take_real("ended_s", ended_s),
            take_text("command", command),
            take_integer("seed", seed),
            settings,
            take_text("version", version),
            take_properties("versions", versions),
            take_properties("state", state),
        )
    except (RowFault, OverflowError) as error:
        return Problem("sessions", rowid, str(error))
