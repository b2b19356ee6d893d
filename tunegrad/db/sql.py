"""The SQL of a store: its questions, and the insertion of records with the rows that they name.

Parameters of questions are named: kernel, fingerprint, policy, actions, space.
"""

from __future__ import annotations

from collections.abc import Mapping

from tunegrad.db.contents import Contents, Identity, Subject, identity
from tunegrad.db.database import Database, Run
from tunegrad.db.records import Decision, Evidence, Latency, Session
from tunegrad.db.rows import (
    DECISIONS,
    LATENCIES,
    SESSIONS,
    TRIALS,
    admit,
    admit_decision,
    admit_evidence,
    admit_latency,
    clean_text,
    dump_evidence,
    dump_fingerprint,
    dump_policy,
    encode_decision,
    encode_latency,
    encode_session,
    encode_trial,
    key_of,
)
from tunegrad.errors import InternalError
from tunegrad.trial import Fingerprint, Trial

KERNEL = "(SELECT id FROM kernels WHERE key = :kernel)"

FINGERPRINT = "(SELECT id FROM fingerprints WHERE fields = :fingerprint)"

POLICY = "(SELECT id FROM policies WHERE text = :policy)"


def _insert(table: str, *columns: str) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


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
    f"{_insert('trials', 'kernel', 'fingerprint', 'policy', 'repeat', *TRIALS.names)}"
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

ALL_DECISIONS = f"SELECT {DECISIONS.select} FROM {DECISIONS.source}"
ALL_LATENCIES = f"SELECT {LATENCIES.select} FROM {LATENCIES.source}"
ALL_SESSIONS = f"SELECT {SESSIONS.select} FROM {SESSIONS.source}"


_SPEND = (
    f"{_insert('spend', 'model_key', 'fingerprint', 'settings', 'seconds')}"
    " ON CONFLICT (model_key, fingerprint, settings) DO UPDATE SET seconds ="
)

SET_SPEND = f"{_SPEND} excluded.seconds"

_ADD_SPEND = f"{_SPEND} seconds + excluded.seconds"

NAME_KERNEL = (
    f"{_insert('kernels', 'key', 'text', 'name')}"
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


_REASON_CHARACTERS = 4000


INSERT_SESSION = _insert("sessions", *SESSIONS.names)

_INSERT_DECISION = _insert("decisions", "kernel", "fingerprint", *DECISIONS.names)

_INSERT_LATENCY = _insert("latencies", "fingerprint", *LATENCIES.names)

_INSERT_PROMOTION = (
    "INSERT INTO promotions (kernel, fingerprint, trial, evidence, created_s)"
    " SELECT kernel, fingerprint, id, ?, ? FROM trials WHERE id = ?"
)

# Those that others refer to come last.
_TABLES = (
    "spend", "withdrawals", "promotions", "decisions", "latencies", "trials", "sessions",
    "policies", "fingerprints", "kernels",
)  # fmt: skip


def machine_row(database: Database, run: Run, fingerprint: Fingerprint) -> int:
    """Id of a fingerprint's row."""
    return database.id_of(run, "fingerprints", "fields", dump_fingerprint(fingerprint))


def _kernel_row(database: Database, run: Run, key: str, text: str) -> int:
    return database.id_of(run, "kernels", "key", key, lambda: {"text": text})


def name_session(database: Database, run: Run, session: str, started_s: float) -> None:
    """Make a row for a session that only other rows name."""
    if not database.has("sessions", session):
        bare = Session(session, started_s, None, "", 0, "{}", "")
        run(f"{INSERT_SESSION} ON CONFLICT (id) DO NOTHING", encode_session(bare))


def owners_of(database: Database, run: Run, trial: Trial) -> tuple[int, int, int]:
    """Ids of a trial's kernel, fingerprint and policy; its session has a row, too."""
    name_session(database, run, trial.session, trial.created_s)
    policy = trial.policy.text
    return (
        _kernel_row(database, run, trial.kernel_key, trial.kernel_text),
        machine_row(database, run, trial.fingerprint),
        database.id_of(
            run, "policies", "text", policy, lambda: {"fields": dump_policy(trial.policy)}
        ),
    )


def insert_promotion(run: Run, trial_id: int, evidence: Evidence, created_s: float) -> int:
    """Id of a new promotion of a trial."""
    values = (dump_evidence(admit_evidence(evidence)), created_s, trial_id)
    return int(run(_INSERT_PROMOTION, values).lastrowid or 0)


def insert_decision(database: Database, run: Run, decision: Decision) -> int:
    """Id of a new decision. Raises InternalError for one that breaks its rules."""
    d = admit_decision(decision)
    name_session(database, run, d.session, d.created_s)
    owners = (_kernel_row(database, run, d.key, d.text), machine_row(database, run, d.fingerprint))
    return int(run(_INSERT_DECISION, (*owners, *encode_decision(d))).lastrowid or 0)


def insert_latency(database: Database, run: Run, latency: Latency) -> int:
    """Id of a new latency. Raises InternalError for one that breaks its rules."""
    latency = admit_latency(latency)
    name_session(database, run, latency.session, latency.created_s)
    machine = machine_row(database, run, latency.fingerprint)
    return int(run(_INSERT_LATENCY, (machine, *encode_latency(latency))).lastrowid or 0)


def clean_reason(reason: str) -> str:
    """The reason of a withdrawal as it is kept: valid Unicode of a bounded length."""
    return clean_text(reason, _REASON_CHARACTERS)


def replace_all(database: Database, contents: Contents) -> None:
    """Hold exactly these contents: all of it is committed, or nothing changes. Ids are new.

    Of a damaged store they may say one thing twice: then it is one row.
    """
    with database.transaction() as run:
        database.forget()
        for table in _TABLES:
            run(f"DELETE FROM {table}")
        for session in contents.sessions:
            if not database.has("sessions", session.id):
                run(INSERT_SESSION, encode_session(session))
        for text, name in contents.kernels:
            values = (key_of(text), text, clean_text(name))
            run(NAME_KERNEL, values)
        _insert_trials(database, run, contents)
        for decision in contents.decisions:
            insert_decision(database, run, decision)
        for latency in contents.latencies:
            insert_latency(database, run, latency)
        for s in contents.spends:
            machine = machine_row(database, run, s.fingerprint)
            run(_ADD_SPEND, (s.model_key, machine, s.settings, s.seconds))


def _insert_trials(database: Database, run: Run, contents: Contents) -> None:
    """Insert trials, and the promotions and withdrawals that name them."""
    ids: dict[Identity, int] = {}
    repeats: dict[Subject, int] = {}
    for trial in map(admit, contents.trials):
        own = identity(trial)
        if own in ids:
            continue
        owners = owners_of(database, run, trial)
        repeat = repeats[own.subject] = repeats.get(own.subject, -1) + 1
        cursor = run(INSERT_TRIAL, (*owners, repeat, *encode_trial(trial)))
        ids[own] = int(cursor.lastrowid or 0)

    def named(what: str, trial: Identity) -> int:
        if trial not in ids:
            actions = trial.subject.actions
            raise InternalError(
                f"store {database.label}: a {what} names a trial that does not exist: {actions!r}"
            )
        return ids[trial]

    for p in contents.promotions:
        insert_promotion(run, named("promotion", p.trial), p.evidence, p.created_s)
    for w in contents.withdrawals:
        number = named("withdrawal", w.trial)
        name_session(database, run, w.session, w.created_s)
        run(WITHDRAW, (clean_reason(w.reason), w.session, w.created_s, number))
