"""A store as lines of JSON: a header, then one row a line.

Reading the lines into an empty store gives an equal one.

    {"format": "tunegrad-store", "version": 4, "rows": {"kernel": 2, ..., "latency": 1}}
    {"row": "kernel", "key": ..., "text": ..., "name": ...}                          by key
    {"row": "machine", "id": hash of the fields, "fields": [[name, value], ...]}     by id
    {"row": "session", ...}                                                          by start
    {"row": "trial", "kernel": key, "machine": id, "actions": ..., "policy": {...}, ...}
    {"row": "promotion", "kernel": key, "machine": id, "actions": ..., "policy": text, ...}
    {"row": "spend", ...}
    {"row": "withdrawal", "kernel": key, ..., "measured_s": ..., "reason": ..., ...}
    {"row": "decision", "kind": ..., "kernel": key, "choice": ..., "chosen": ..., ...}
    {"row": "latency", "model": ..., "samples_s": [...], "versions": {...}, ...}

Trials, promotions, decisions and latencies stand in the order of the store. The same contents give
the same bytes. What this store imported is not marked in what it exports: to a reader of the file,
every row is a claim of a stranger.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace

from tunegrad.db.contents import Contents, Promotion, Spend, Withdrawn
from tunegrad.db.identity import Identity
from tunegrad.db.records import IMPORTED, Decision, Evidence, Latency, Session
from tunegrad.db.rows import key_of, machine_id
from tunegrad.trial import Trial

__all__ = [
    "FORMAT",
    "FORMAT_VERSION",
    "KINDS",
    "decision_row",
    "export_lines",
    "latency_row",
    "promotion_row",
    "trial_row",
    "withdrawal_row",
]

FORMAT = "tunegrad-store"
FORMAT_VERSION = 4
"""The one that is read. Files of 1 to 3 are from before 0.1.0."""

KINDS = (
    "kernel",
    "machine",
    "session",
    "trial",
    "promotion",
    "spend",
    "withdrawal",
    "decision",
    "latency",
)
"""Kinds of rows in the order of the file: a row only names rows above it."""


def export_lines(contents: Contents) -> Iterator[str]:
    """The lines of a file, without their ends."""
    machines = {t.fingerprint for t in contents.trials} | {s.fingerprint for s in contents.spends}
    machines |= {d.fingerprint for d in contents.decisions} | {
        x.fingerprint for x in contents.latencies
    }
    rows: dict[str, list[dict[str, object]]] = {
        "kernel": [
            {"key": key_of(text), "text": text, "name": name} for text, name in contents.kernels
        ],
        "machine": sorted(
            ({"id": machine_id(f), "fields": list(f.fields)} for f in machines),
            key=lambda row: str(row["id"]),
        ),
        "session": [_session_row(s) for s in contents.sessions],
        "trial": [trial_row(t) for t in contents.trials],
        "promotion": [promotion_row(p) for p in contents.promotions],
        "spend": [_spend_row(s) for s in contents.spends],
        "withdrawal": [withdrawal_row(w) for w in contents.withdrawals],
        "decision": [decision_row(d) for d in contents.decisions],
        "latency": [latency_row(x) for x in contents.latencies],
    }
    counts = {kind: len(rows[kind]) for kind in KINDS}
    yield _line({"format": FORMAT, "version": FORMAT_VERSION, "rows": counts})
    for kind in KINDS:
        for row in rows[kind]:
            yield _line({"row": kind, **row})


def _line(row: Mapping[str, object]) -> str:
    return json.dumps(row, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def _session_row(session: Session) -> dict[str, object]:
    return {**asdict(session), "versions": dict(session.versions), "state": dict(session.state)}


def trial_row(trial: Trial) -> dict[str, object]:
    """A trial as a row."""
    m = trial.measurement
    return {
        "kernel": trial.kernel_key,
        "machine": machine_id(trial.fingerprint),
        "actions": trial.actions,
        "program_hash": trial.program_hash,
        "space_version": trial.space_version,
        "policy": {name: _number(value) for name, value in asdict(trial.policy).items()},
        "status": m.status.value,
        "samples_s": m.samples_s,
        "error": m.error,
        "lower_s": m.lower_s,
        "compile_s": m.compile_s,
        "verify_s": m.verify_s,
        "timing_s": m.timing_s,
        "max_error": _number(m.max_error),
        "attempts": m.attempts,
        "reference_samples_s": m.reference_samples_s,
        "reference_program": m.reference_program,
        "reference_s": m.reference_s,
        "facts": dict(m.facts),
        "state": dict(m.state),
        "session": trial.session,
        "origin": trial.origin.removeprefix(IMPORTED),
        "created_s": trial.created_s,
    }


def _number(value: object) -> object:
    """A number that is not finite as text: ``inf``, ``nan``."""
    return value if not isinstance(value, float) or math.isfinite(value) else str(value)


def promotion_row(promotion: Promotion) -> dict[str, object]:
    """A promotion as a row; all but its evidence and its own moment name its trial."""
    return {
        **_trial_named(promotion.trial),
        "evidence": _evidence(promotion.evidence),
        "created_s": promotion.created_s,
    }


def _evidence(evidence: Evidence) -> dict[str, object]:
    return asdict(replace(evidence, test=evidence.test.removeprefix(IMPORTED)))


def withdrawal_row(withdrawn: Withdrawn) -> dict[str, object]:
    """A withdrawal as a row; its trial is named as by a promotion."""
    return {
        **_trial_named(withdrawn.trial),
        "reason": withdrawn.reason.removeprefix(IMPORTED),
        "session": withdrawn.session,
        "created_s": withdrawn.created_s,
    }


def _trial_named(trial: Identity) -> dict[str, object]:
    """Fields that name a trial's row: what was measured, how, by which session, and when."""
    measured = trial.subject
    return {
        "kernel": measured.kernel_key,
        "machine": machine_id(measured.fingerprint),
        "actions": measured.actions,
        "policy": measured.policy,
        "space_version": measured.space_version,
        "measured_by": trial.session,
        "measured_s": trial.created_s,
    }


def decision_row(d: Decision) -> dict[str, object]:
    """A decision as a row; its text is that of a kernel row."""
    return {
        "kind": d.kind,
        "kernel": d.key,
        "machine": machine_id(d.fingerprint),
        "space_version": d.space_version,
        "choice": d.choice,
        "chosen": d.chosen,
        "evidence": _evidence(d.evidence),
        "status": d.status.value,
        "error": d.error,
        "policy": d.policy,
        "session": d.session,
        "created_s": d.created_s,
    }


def latency_row(x: Latency) -> dict[str, object]:
    """The latency of a whole model as a row."""
    return {
        "model": x.model,
        "model_key": x.model_key,
        "kind": x.kind,
        "machine": machine_id(x.fingerprint),
        "samples_s": x.samples_s,
        "default_samples_s": x.default_samples_s,
        "session": x.session,
        "created_s": x.created_s,
        "versions": dict(x.versions),
        "state": dict(x.state),
    }


def _spend_row(spend: Spend) -> dict[str, object]:
    return {
        "model": spend.model_key,
        "machine": machine_id(spend.fingerprint),
        "settings": spend.settings,
        "seconds": spend.seconds,
    }
