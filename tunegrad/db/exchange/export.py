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
from collections.abc import Iterator, Mapping
from dataclasses import asdict

from tunegrad.db.contents import Contents, Identity, Promotion, Spend, Withdrawn
from tunegrad.db.records import IMPORTED, Decision, Latency
from tunegrad.db.rows import (
    DECISIONS,
    LATENCIES,
    SESSIONS,
    TRIALS,
    finite_json,
    json_evidence,
    key_of,
    machine_id,
)
from tunegrad.trial import Trial

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
        "session": [SESSIONS.json(s) for s in contents.sessions],
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


def trial_row(trial: Trial) -> dict[str, object]:
    """A trial as a row."""
    policy = {name: finite_json(value) for name, value in asdict(trial.policy).items()}
    named = {"kernel": trial.kernel_key, "machine": machine_id(trial.fingerprint)}
    return {**named, "policy": policy, **TRIALS.json(trial)}


def promotion_row(promotion: Promotion) -> dict[str, object]:
    """A promotion as a row; all but its evidence and its own moment name its trial."""
    return {
        **_trial_named(promotion.trial),
        "evidence": json_evidence(promotion.evidence),
        "created_s": promotion.created_s,
    }


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
    return {"kernel": d.key, "machine": machine_id(d.fingerprint), **DECISIONS.json(d)}


def latency_row(x: Latency) -> dict[str, object]:
    """The latency of a whole model as a row, which does not say whether it was imported."""
    found = {"machine": machine_id(x.fingerprint), **LATENCIES.json(x)}
    del found["imported"]
    return found


def _spend_row(spend: Spend) -> dict[str, object]:
    return {
        "model": spend.model_key,
        "machine": machine_id(spend.fingerprint),
        "settings": spend.settings,
        "seconds": spend.seconds,
    }
