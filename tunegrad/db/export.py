"""A store as lines of JSON: a header, then one row a line. Reading the lines into an empty store gives an equal one.

    {"format": "tunegrad-store", "version": 1, "rows": {"kernel": 2, "machine": 1, ..., "spend": 1}}
    {"row": "kernel", "key": ..., "text": ..., "name": ...}                          by key
    {"row": "machine", "id": hash of the fields, "fields": [[name, value], ...]}     by id
    {"row": "session", ...}                                                          by start
    {"row": "trial", "kernel": key, "machine": id, "actions": ..., "policy": {...}, "status": ..., ...}
    {"row": "promotion", "kernel": key, "machine": id, "actions": ..., "policy": text, "evidence": {...}, ...}
    {"row": "spend", ...}
    {"row": "withdrawal", "kernel": key, ..., "policy": text, "reason": ..., "session": ..., "created_s": ...}

Trials and promotions stand in the order of the store. The same contents give the same bytes. What this store imported
is not marked in what it exports: to whoever reads the file, every row is a claim of a stranger.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import lru_cache

from tunegrad.db.contents import Contents, Identity, Promotion, Spend, Withdrawn, winners
from tunegrad.db.records import IMPORTED
from tunegrad.db.rows import dump_fingerprint, identity, key_of
from tunegrad.trial import Fingerprint, Trial

__all__ = [
    "FORMAT",
    "FORMAT_VERSION",
    "KINDS",
    "export_lines",
    "machine_id",
    "promotion_row",
    "selected",
    "trial_row",
    "withdrawal_row",
]

FORMAT = "tunegrad-store"
FORMAT_VERSION = 2
"""Version 1 had no withdrawals, and no attempts of trials; it is still read."""

KINDS = ("kernel", "machine", "session", "trial", "promotion", "spend", "withdrawal")
"""Kinds of rows in the order of the file: a row only names rows above it."""


@lru_cache(maxsize=256)
def machine_id(fingerprint: Fingerprint) -> str:
    """What the rows of a file call a fingerprint: 16 hex digits of the SHA-256 of its fields."""
    return hashlib.sha256(dump_fingerprint(fingerprint).encode("ascii")).hexdigest()[:16]


def selected(contents: Contents, wanted: Callable[[str, str], bool], *, best: bool = False) -> Contents:
    """The part about kernels of which ``wanted(key, name)`` holds; ``best``: winners with their evidence only.

    Spent budget is of models, not of kernels, so a part has none.
    """
    kernels = tuple((text, name) for text, name in contents.kernels if wanted(key_of(text), name))
    keys = {key_of(text) for text, _ in kernels}
    trials = [t for t in contents.trials if t.kernel_key in keys]
    if best:
        winning = {identity(w.trial) for w in winners(contents).values()}
        trials = [t for t in trials if identity(t) in winning]
        keys = {t.kernel_key for t in trials}
    kept = {identity(t) for t in trials}
    withdrawals = tuple(w for w in contents.withdrawals if w.trial in kept)
    named = {t.session for t in trials} | {w.session for w in withdrawals}
    return Contents(
        kernels=tuple((text, name) for text, name in kernels if key_of(text) in keys),
        sessions=tuple(s for s in contents.sessions if s.id in named),
        trials=tuple(trials),
        promotions=tuple(p for p in contents.promotions if p.trial in kept),
        withdrawals=withdrawals,
    )


def export_lines(contents: Contents) -> Iterator[str]:
    """The lines of a file, without their ends."""
    machines = {t.fingerprint for t in contents.trials} | {s.fingerprint for s in contents.spends}
    rows: dict[str, list[dict[str, object]]] = {
        "kernel": [{"key": key_of(text), "text": text, "name": name} for text, name in contents.kernels],
        "machine": sorted(
            ({"id": machine_id(f), "fields": list(f.fields)} for f in machines), key=lambda row: str(row["id"])
        ),
        "session": [asdict(s) for s in contents.sessions],
        "trial": [trial_row(t) for t in contents.trials],
        "promotion": [promotion_row(p) for p in contents.promotions],
        "spend": [_spend_row(s) for s in contents.spends],
        "withdrawal": [withdrawal_row(w) for w in contents.withdrawals],
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
        "session": trial.session,
        "origin": trial.origin.removeprefix(IMPORTED),
        "created_s": trial.created_s,
    }


def _number(value: object) -> object:
    """A number that is not finite as text: ``inf``, ``nan``."""
    return value if not isinstance(value, float) or math.isfinite(value) else str(value)


def promotion_row(promotion: Promotion) -> dict[str, object]:
    """A promotion as a row; kernel, machine, actions, policy and space version name its trial."""
    evidence = replace(promotion.evidence, test=promotion.evidence.test.removeprefix(IMPORTED))
    return {
        **_trial_named(promotion.trial),
        "evidence": asdict(evidence),
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
    key, fingerprint, actions, policy, space_version = trial
    return {
        "kernel": key,
        "machine": machine_id(fingerprint),
        "actions": actions,
        "policy": policy,
        "space_version": space_version,
    }


def _spend_row(spend: Spend) -> dict[str, object]:
    return {
        "model": spend.model_key,
        "machine": machine_id(spend.fingerprint),
        "settings": spend.settings,
        "seconds": spend.seconds,
    }
