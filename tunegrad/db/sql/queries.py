"""The SQL of a store's questions.

Parameters are named: kernel, fingerprint, policy, actions, space.
"""

from __future__ import annotations

from collections.abc import Mapping

from tunegrad.db.rows import DECISIONS as DECISION_FORM
from tunegrad.db.rows import LATENCIES as LATENCY_FORM
from tunegrad.db.rows import SESSIONS as SESSION_FORM
from tunegrad.db.rows import TRIALS

__all__ = [
    "BARE",
    "BY_SPEED",
    "DECISIONS",
    "FILL_SESSION",
    "FINGERPRINT",
    "INSERT_TRIAL",
    "KERNEL",
    "LATENCIES",
    "MEASURED",
    "NAME_KERNEL",
    "OF_DECISIONS",
    "OF_LATENCIES",
    "OF_TRIALS",
    "PLACES",
    "POLICY",
    "PROMOTED",
    "REPLACE",
    "SAME",
    "SELECT",
    "SESSIONS",
    "SET_SPEND",
    "STRUCK",
    "WITHDRAW",
    "WITHDRAWALS",
    "conditions",
]

KERNEL = "(SELECT id FROM kernels WHERE key = :kernel)"
FINGERPRINT = "(SELECT id FROM fingerprints WHERE fields = :fingerprint)"
POLICY = "(SELECT id FROM policies WHERE text = :policy)"
_TIMED = "t.status = 'ok' AND t.median_s IS NOT NULL"
SAME = (
    f"t.kernel = {KERNEL} AND t.fingerprint = {FINGERPRINT} AND t.policy = {POLICY}"
    " AND t.actions = :actions AND t.space_version = :space"
)
# Of the same subject as t.
_LIKE_T = (
    "x.kernel = t.kernel AND x.fingerprint = t.fingerprint AND x.actions = t.actions"
    " AND x.policy = t.policy AND x.space_version = t.space_version"
)
_REPEATED = f"EXISTS (SELECT 1 FROM trials x WHERE {_LIKE_T} AND x.id <> t.id)"
# The first withdrawal of what t measured; found by way of rows like t, which are few.
STRUCK = (
    f"SELECT MIN(v.id) FROM trials x CROSS JOIN withdrawals v ON v.trial = x.id WHERE {_LIKE_T}"
)
INSERT_TRIAL = (
    f"INSERT INTO trials (kernel, fingerprint, policy, repeat, {', '.join(TRIALS.names)})"
    f" VALUES ({', '.join('?' * (4 + len(TRIALS.names)))})"
    " ON CONFLICT (kernel, fingerprint, actions, policy, space_version, repeat) DO NOTHING"
)
REPLACE = f"UPDATE trials SET {', '.join(f'{name} = ?' for name in TRIALS.names)} WHERE id = ?"
SELECT = (
    f"SELECT {TRIALS.select}, w.reason, w.session FROM {TRIALS.source} LEFT JOIN withdrawals "
    f"w ON w.id = ({STRUCK})"
)
BARE = f"SELECT {TRIALS.select} FROM {TRIALS.source}"
MEASURED = f"SELECT {TRIALS.select}, t.repeat FROM {TRIALS.source} WHERE {SAME} ORDER BY t.repeat"
BY_SPEED = (
    f"SELECT t.id, {_REPEATED} FROM trials t WHERE t.kernel = {KERNEL} AND t.fingerprint "
    f"= {FINGERPRINT}"
    f" AND t.space_version = :space AND {_TIMED} AND NOT EXISTS ("
    "SELECT 1 FROM withdrawals w CROSS JOIN trials x ON x.id = w.trial"
    f" WHERE w.kernel = {KERNEL} AND w.fingerprint = {FINGERPRINT} AND x.space_version = :space)"
    " ORDER BY MAX(t.id) OVER (PARTITION BY t.policy) DESC, t.median_s, t.id"
)
PROMOTED = (
    f"SELECT {TRIALS.select}, r.id, r.evidence, {_REPEATED} FROM promotions r JOIN {TRIALS.source}"
    f" WHERE t.id = r.trial AND t.kernel = r.kernel AND t.fingerprint = r.fingerprint"
    f" AND r.kernel = {KERNEL} AND r.fingerprint = {FINGERPRINT} AND ({STRUCK}) IS NULL"
)
WITHDRAWALS = (
    f"SELECT {TRIALS.select}, w.reason, w.session, w.created_s, w.id FROM withdrawals w "
    f"JOIN {TRIALS.source}"
    f" WHERE t.id = w.trial AND w.kernel = {KERNEL} AND w.fingerprint = {FINGERPRINT} ORDER BY w.id"
)
WITHDRAW = (
    "INSERT INTO withdrawals (kernel, fingerprint, trial, reason, session, created_s)"
    " SELECT kernel, fingerprint, id, ?, ?, ? FROM trials WHERE id = ? ON CONFLICT "
    "(trial) DO NOTHING"
)
PLACES = (
    "SELECT f.id, f.fields, t.space_version FROM trials t JOIN fingerprints f ON f.id = "
    "t.fingerprint"
    f" WHERE t.kernel = {KERNEL} AND {_TIMED} GROUP BY t.fingerprint, t.space_version "
    "ORDER BY MAX(t.id) DESC"
)


DECISIONS = f"SELECT {DECISION_FORM.select} FROM {DECISION_FORM.source}"
LATENCIES = f"SELECT {LATENCY_FORM.select} FROM {LATENCY_FORM.source}"
SESSIONS = f"SELECT {SESSION_FORM.select} FROM {SESSION_FORM.source}"
_KNOWN = ", ".join(f"{name} = excluded.{name}" for name in SESSION_FORM.names if name != "id")
FILL_SESSION = f"ON CONFLICT (id) DO UPDATE SET {_KNOWN} WHERE command = ''"
SET_SPEND = (
    "INSERT INTO spend (model_key, fingerprint, settings, seconds) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (model_key, fingerprint, settings) DO UPDATE SET seconds = excluded.seconds"
)
NAME_KERNEL = (
    "INSERT INTO kernels (key, text, name) VALUES (?, ?, ?)"
    " ON CONFLICT (key) DO UPDATE SET name = excluded.name"
)

OF_TRIALS = {
    "kernel": f"t.kernel = {KERNEL}",
    "fingerprint": f"t.fingerprint = {FINGERPRINT}",
    "policy": f"t.policy = {POLICY}",
}
OF_DECISIONS = {
    "kernel": f"d.kernel = {KERNEL}",
    "fingerprint": f"d.fingerprint = {FINGERPRINT}",
    "space": "d.space_version = :space",
    "kind": "d.kind = :kind",
    "chosen": "d.chosen = :chosen",
}
OF_LATENCIES = {
    "model": "l.model = :model",
    "fingerprint": f"l.fingerprint = {FINGERPRINT}",
    "since": "l.created_s >= :since",
}


def conditions(known: Mapping[str, str], **given: object) -> tuple[str, dict[str, object]]:
    """A WHERE clause with the known conditions for which a value is given, and these values."""
    wanted = {name: value for name, value in given.items() if value is not None}
    return " AND ".join(["1", *(known[name] for name in wanted)]), wanted
