"""Sessions, decisions and latencies as rows of the store, and back: checked like trials (``rows``)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from tunegrad.db.evidence_rows import admit_evidence, dump_evidence, evidence_faults, load_evidence
from tunegrad.db.records import (
    LATENCY_KINDS,
    QUESTIONS,
    Decision,
    Latency,
    LatencyKind,
    Problem,
    Properties,
    Question,
    Session,
)
from tunegrad.db.rows import key_of, load_fingerprint
from tunegrad.db.values import (
    RowFault,
    checksum,
    clean_text,
    dump,
    dump_properties,
    is_utf8,
    properties_faults,
    sample_faults,
    take_choice,
    take_flag,
    take_integer,
    take_json,
    take_properties,
    take_real,
    take_samples,
    take_text,
)
from tunegrad.errors import InternalError
from tunegrad.trial import Status

__all__ = [
    "DECISION_COLUMNS",
    "DECISION_FROM",
    "DECISION_VALUES",
    "LATENCY_COLUMNS",
    "LATENCY_FROM",
    "LATENCY_VALUES",
    "SESSION_COLUMNS",
    "SESSION_VALUES",
    "admit_decision",
    "admit_latency",
    "decode_decision",
    "decode_latency",
    "decode_session",
    "encode_decision",
    "encode_latency",
    "encode_session",
]

_ERROR_CHARACTERS = 16_000

# ---- sessions

SESSION_VALUES = (
    "id", "started_s", "ended_s", "command", "seed", "settings", "version", "versions", "state",
)  # fmt: skip
SESSION_COLUMNS = ", ".join(("rowid", *SESSION_VALUES))
"""What decode_session reads."""


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
        if not all(math.isfinite(take_real("time", t)) for t in (started_s, ended_s) if t is not None):
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


# ---- decisions

DECISION_VALUES = (
    "kind", "space_version", "choice", "chosen", "evidence", "status", "error", "policy", "session",
    "created_s", "checksum",
)  # fmt: skip
"""What encode_decision returns, in order; after kernel and fingerprint, which are ids of rows."""

DECISION_COLUMNS = ", ".join(("d.id", "k.key", "k.text", "f.fields", *(f"d.{n}" for n in DECISION_VALUES)))
"""What decode_decision reads."""

DECISION_FROM = "decisions d LEFT JOIN kernels k ON k.id = d.kernel LEFT JOIN fingerprints f ON f.id = d.fingerprint"


def admit_decision(decision: Decision) -> Decision:
    """The decision as it will be read back. Raises InternalError when it breaks a rule of the store."""
    decision = replace(
        decision,
        evidence=admit_evidence(decision.evidence),
        error=clean_text(decision.error, _ERROR_CHARACTERS),
        created_s=float(decision.created_s),
    )
    if faults := list(_decision_faults(decision)):
        raise InternalError(f"decision {decision.kind} {decision.choice!r}: {'; '.join(faults)}")
    return decision


def _decision_faults(d: Decision) -> Iterator[str]:
    if d.kind not in QUESTIONS:
        yield f"kind {d.kind!r} is none of {', '.join(QUESTIONS)}"
    if d.chosen and d.status is not Status.OK:
        yield f"chosen, and its status is {d.status}"
    if not math.isfinite(d.created_s):
        yield f"created_s is {d.created_s!r}, not finite"
    for name in ("text", "choice", "policy", "session"):
        if not is_utf8(getattr(d, name)):
            yield f"{name} is not valid Unicode: {getattr(d, name)!r}"
    yield from evidence_faults(d.evidence)
    names = [name for name, _ in d.fingerprint.fields]
    if names != sorted(set(names)):
        yield f"fingerprint fields are not sorted and distinct: {names}"


def _decision_checksum(d: Decision) -> int:
    e = d.evidence
    return checksum(
        (
            d.kind, d.key, d.fingerprint.fields, d.space_version, d.choice, d.chosen, d.status, d.error,
            d.policy, d.session, d.created_s, e.test, e.p_value, e.incumbent_samples_s,
            e.challenger_samples_s, e.cold,
        )
    )  # fmt: skip


def encode_decision(d: Decision) -> tuple[object, ...]:
    """Values of an admitted decision for the columns DECISION_VALUES."""
    return (
        d.kind, d.space_version, d.choice, int(d.chosen), dump_evidence(d.evidence), d.status.value,
        d.error, d.policy, d.session, d.created_s, _decision_checksum(d),
    )  # fmt: skip


def decode_decision(row: Sequence[Any]) -> Decision | Problem:
    """The decision of a row of DECISION_COLUMNS, or what is wrong with it."""
    try:
        return _decision(row)
    except (RowFault, OverflowError) as error:
        return Problem("decisions", row[0] if isinstance(row[0], int) else None, str(error))


def _decision(row: Sequence[Any]) -> Decision:
    key, text, fields = row[1:4]
    for name, given in (("kernel", key), ("fingerprint", fields)):
        if given is None:
            raise RowFault(f"orphan: its {name} row is missing")
    value = dict(zip(DECISION_VALUES, row[4:], strict=True))
    if key_of(take_text("kernel text", text)) != key:
        raise RowFault(f"kernel key {key!r} is not the hash {key_of(text)} of its text")
    decision = Decision(
        kind=cast("Question", take_choice("kind", value["kind"], QUESTIONS)),
        text=text,
        choice=take_text("choice", value["choice"]),
        chosen=take_flag("chosen", value["chosen"]),
        evidence=load_evidence(value["evidence"]),
        fingerprint=load_fingerprint(take_text("fingerprint", fields)),
        space_version=take_integer("space_version", value["space_version"]),
        session=take_text("session", value["session"]),
        created_s=take_real("created_s", value["created_s"]),
        status=Status(take_choice("status", value["status"], Status)),
        error=take_text("error", value["error"]),
        policy=take_text("policy", value["policy"]),
    )
    if faults := list(_decision_faults(decision)):
        raise RowFault("; ".join(faults))
    if value["checksum"] != _decision_checksum(decision):
        raise RowFault(f"checksum {value['checksum']!r} does not match the row's content")
    return decision


# ---- latencies

LATENCY_VALUES = (
    "model", "model_key", "kind", "samples_s", "default_samples_s", "session", "created_s", "versions",
    "state", "imported", "checksum",
)  # fmt: skip
"""What encode_latency returns, in order; after fingerprint, which is the id of a row."""

LATENCY_COLUMNS = ", ".join(("l.id", "f.fields", *(f"l.{n}" for n in LATENCY_VALUES)))
"""What decode_latency reads."""

LATENCY_FROM = "latencies l LEFT JOIN fingerprints f ON f.id = l.fingerprint"


def admit_latency(latency: Latency) -> Latency:
    """The latency as it will be read back. Raises InternalError when it breaks a rule of the store."""
    latency = replace(
        latency,
        model=clean_text(latency.model),
        samples_s=tuple(float(s) for s in latency.samples_s),
        default_samples_s=tuple(float(s) for s in latency.default_samples_s),
        created_s=float(latency.created_s),
        versions=_plain(latency.versions),
        state=_plain(latency.state),
    )
    if faults := list(_latency_faults(latency)):
        raise InternalError(f"latency of model {latency.model!r}: {'; '.join(faults)}")
    return latency


def _plain(properties: Properties) -> Properties:
    return tuple((name, v if isinstance(v, str) else float(v)) for name, v in properties)


def _latency_faults(x: Latency) -> Iterator[str]:
    if x.kind not in LATENCY_KINDS:
        yield f"kind {x.kind!r} is none of {', '.join(LATENCY_KINDS)}"
    if not x.samples_s:
        yield "it has no samples"
    yield from sample_faults("samples_s", x.samples_s)
    yield from sample_faults("default_samples_s", x.default_samples_s)
    if x.default_samples_s and len(x.default_samples_s) != len(x.samples_s):
        yield f"{len(x.default_samples_s)} default_samples_s stand beside {len(x.samples_s)} samples_s"
    if not math.isfinite(x.created_s):
        yield f"created_s is {x.created_s!r}, not finite"
    for name in ("model", "model_key", "session"):
        if not is_utf8(getattr(x, name)):
            yield f"{name} is not valid Unicode: {getattr(x, name)!r}"
    yield from properties_faults("versions", x.versions)
    yield from properties_faults("state", x.state)


def _latency_checksum(x: Latency) -> int:
    return checksum(
        (
            x.model, x.model_key, x.kind, x.fingerprint.fields, x.samples_s, x.default_samples_s,
            x.session, x.created_s, x.versions, x.state, x.imported,
        )
    )  # fmt: skip


def encode_latency(x: Latency) -> tuple[object, ...]:
    """Values of an admitted latency for the columns LATENCY_VALUES."""
    return (
        x.model, x.model_key, x.kind, dump(x.samples_s), dump(x.default_samples_s), x.session, x.created_s,
        dump_properties(x.versions), dump_properties(x.state), int(x.imported), _latency_checksum(x),
    )  # fmt: skip


def decode_latency(row: Sequence[Any]) -> Latency | Problem:
    """The latency of a row of LATENCY_COLUMNS, or what is wrong with it."""
    try:
        return _latency(row)
    except (RowFault, OverflowError) as error:
        return Problem("latencies", row[0] if isinstance(row[0], int) else None, str(error))


def _latency(row: Sequence[Any]) -> Latency:
    if row[1] is None:
        raise RowFault("orphan: its fingerprint row is missing")
    value = dict(zip(LATENCY_VALUES, row[2:], strict=True))
    default_s = take_json("default_samples_s", value["default_samples_s"])
    latency = Latency(
        model=take_text("model", value["model"]),
        model_key=take_text("model_key", value["model_key"]),
        kind=cast("LatencyKind", take_choice("kind", value["kind"], LATENCY_KINDS)),
        fingerprint=load_fingerprint(take_text("fingerprint", row[1])),
        samples_s=take_samples("samples_s", take_json("samples_s", value["samples_s"])),
        default_samples_s=take_samples("default_samples_s", default_s),
        session=take_text("session", value["session"]),
        created_s=take_real("created_s", value["created_s"]),
        versions=take_properties("versions", value["versions"]),
        state=take_properties("state", value["state"]),
        imported=take_flag("imported", value["imported"]),
    )
    if faults := list(_latency_faults(latency)):
        raise RowFault("; ".join(faults))
    if value["checksum"] != _latency_checksum(latency):
        raise RowFault(f"checksum {value['checksum']!r} does not match the row's content")
    return latency
