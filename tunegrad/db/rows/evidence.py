"""Evidence of promotions and decisions, and withdrawals, as values of rows and back."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from tunegrad.db.records import Evidence, Problem, Withdrawal
from tunegrad.db.rows.values import (
    RowFault,
    clean_text,
    dump,
    is_utf8,
    sample_faults,
    take_json,
    take_real,
    take_samples,
    take_text,
)
from tunegrad.errors import InternalError
from tunegrad.trial import Trial

__all__ = [
    "admit_evidence",
    "decode_evidence",
    "decode_withdrawal",
    "dump_evidence",
    "evidence_faults",
    "load_evidence",
]

_FIELDS = ("test", "p_value", "incumbent_samples", "challenger_samples", "cold")


def admit_evidence(evidence: Evidence) -> Evidence:
    """The evidence with plain floats.

    Raises InternalError for a p-value outside [0, 1] or a sample that is no time.
    """
    evidence = replace(
        evidence,
        p_value=float(evidence.p_value),
        incumbent_samples_s=tuple(float(s) for s in evidence.incumbent_samples_s),
        challenger_samples_s=tuple(float(s) for s in evidence.challenger_samples_s),
    )
    if faults := list(evidence_faults(evidence)):
        raise InternalError(f"evidence by {evidence.test!r}: {'; '.join(faults)}")
    return evidence


def evidence_faults(evidence: Evidence) -> Iterator[str]:
    """Every rule that evidence breaks."""
    if not 0 <= evidence.p_value <= 1:
        yield f"p_value is {evidence.p_value!r}, not in [0, 1]"
    if not is_utf8(evidence.test):
        yield f"test is not valid Unicode: {evidence.test!r}"
    yield from sample_faults("incumbent_samples", evidence.incumbent_samples_s)
    yield from sample_faults("challenger_samples", evidence.challenger_samples_s)


def dump_evidence(evidence: Evidence) -> str:
    """Evidence as one JSON object."""
    e = evidence
    values = (e.test, e.p_value, e.incumbent_samples_s, e.challenger_samples_s, e.cold)
    return dump(dict(zip(_FIELDS, values, strict=True)))


def load_evidence(text: object) -> Evidence:
    """The inverse of ``dump_evidence``. Raises RowFault."""
    value = take_json("evidence", text)
    if not isinstance(value, dict) or value.keys() != set(_FIELDS):
        raise RowFault(f"evidence does not have the fields {', '.join(sorted(_FIELDS))}")
    if not isinstance(value["cold"], bool):
        raise RowFault(f"cold is {value['cold']!r}, not true or false")
    evidence = Evidence(
        take_text("test", value["test"]),
        take_real("p_value", value["p_value"]),
        take_samples("incumbent_samples", value["incumbent_samples"]),
        take_samples("challenger_samples", value["challenger_samples"]),
        value["cold"],
    )
    if faults := list(evidence_faults(evidence)):
        raise RowFault("; ".join(faults))
    return evidence


def decode_evidence(row: int, text: object) -> Evidence | Problem:
    """The evidence of promotion ``row``, or what is wrong with it."""
    try:
        return load_evidence(text)
    except (RowFault, OverflowError) as error:
        return Problem("promotions", row, str(error))


def decode_withdrawal(
    row: int, trial: Trial, reason: object, session: object, created_s: object
) -> Withdrawal:
    """The withdrawal of row ``row``.

    What can not be read of it reads as unknown: the trial stays withdrawn.
    """
    damaged = f"the reason in withdrawal {row} is damaged"
    said = clean_text(reason) if isinstance(reason, str) else damaged
    by = session if isinstance(session, str) else "unknown"
    moment = (
        float(created_s) if isinstance(created_s, int | float) and math.isfinite(created_s) else 0.0
    )
    return Withdrawal(trial, said, by, moment)
