"""Decisions as rows of the store, and back: checked like trials (``rows``)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from tunegrad.db.records import QUESTIONS, Decision, Problem, Question
from tunegrad.db.rows.evidence import admit_evidence, dump_evidence, evidence_faults, load_evidence
from tunegrad.db.rows.trials import ERROR_CHARACTERS, key_of, load_fingerprint
from tunegrad.db.rows.values import (
    RowFault,
    checksum,
    clean_text,
    is_utf8,
    real,
    take_choice,
    take_flag,
    take_integer,
    take_real,
    take_text,
)
from tunegrad.errors import InternalError
from tunegrad.trial import Status

__all__ = [
    "DECISION_COLUMNS",
    "DECISION_FROM",
    "DECISION_VALUES",
    "admit_decision",
    "decode_decision",
    "encode_decision",
]

DECISION_VALUES = (
    "kind", "space_version", "choice", "chosen", "evidence", "status", "error", "policy", "session",
    "created_s", "checksum",
)  # fmt: skip
"""The values of encode_decision, in order; after kernel and fingerprint, which are ids of rows."""

DECISION_COLUMNS = ", ".join(
    ("d.id", "k.key", "k.text", "f.fields", *(f"d.{n}" for n in DECISION_VALUES))
)
"""The columns that decode_decision reads."""

DECISION_FROM = (
    "decisions d LEFT JOIN kernels k ON k.id = d.kernel LEFT JOIN fingerprints f "
    "ON f.id = d.fingerprint"
)


def admit_decision(decision: Decision) -> Decision:
    """The decision as it will be read back. Raises InternalError when it breaks a rule."""
    decision = replace(
        decision,
        evidence=admit_evidence(decision.evidence),
        error=clean_text(decision.error, ERROR_CHARACTERS),
        created_s=real(decision.created_s),
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
            d.kind, d.key, d.fingerprint.fields, d.space_version, d.choice, d.chosen, d.status,
            d.error,
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
