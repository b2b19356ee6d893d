"""The schema, as the ordered steps that made it.

A released step is never edited: a change is a new step.

Step N takes a store from version N to version N + 1 (``PRAGMA user_version``). All missing steps
run in one transaction, so a store is at one version or at another, never between. What no SQL can
convert is done by Python after all steps, in the same transaction (``CONVERSIONS``).
``tests/unit/store_schema_N.sql`` is a frozen store of version N.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from tunegrad.db.separating import separate_decisions

__all__ = ["APPLICATION_ID", "CONVERSIONS", "SALVAGED", "SCHEMA_VERSION", "STEPS", "migrate"]

APPLICATION_ID = 0x74756E65
"""'tune' in ASCII: how a store is told from any other SQLite file."""

STEPS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE kernels (
            id INTEGER PRIMARY KEY,
            key TEXT NOT NULL UNIQUE,        -- hash of text
            text TEXT NOT NULL,              -- canonical
            name TEXT NOT NULL DEFAULT ''    -- for people only
        )""",
        """CREATE TABLE fingerprints (
            id INTEGER PRIMARY KEY,
            fields TEXT NOT NULL UNIQUE      -- JSON list of [name, value], sorted
        )""",
        """CREATE TABLE policies (
            id INTEGER PRIMARY KEY,
            text TEXT NOT NULL UNIQUE,
            fields TEXT NOT NULL             -- JSON object, without timeout_s
        )""",
        """CREATE TABLE sessions (
            id TEXT PRIMARY KEY,
            started_s REAL NOT NULL,         -- since the epoch
            ended_s REAL,                    -- NULL: running, or killed
            command TEXT NOT NULL,           -- '': known only from its trials
            seed INTEGER NOT NULL,
            settings TEXT NOT NULL,          -- JSON object
            version TEXT NOT NULL            -- of tunegrad
        )""",
        """CREATE TABLE trials (
            id INTEGER PRIMARY KEY,
            kernel INTEGER NOT NULL REFERENCES kernels(id),
            fingerprint INTEGER NOT NULL REFERENCES fingerprints(id),
            policy INTEGER NOT NULL REFERENCES policies(id),
            actions TEXT NOT NULL,
            program_hash TEXT NOT NULL,
            space_version INTEGER NOT NULL,
            timeout_s REAL NOT NULL,
            status TEXT NOT NULL,
            samples_s TEXT NOT NULL,         -- JSON list of seconds
            median_s REAL,                   -- NULL: no samples
            error TEXT NOT NULL,
            lower_s REAL NOT NULL,
            compile_s REAL NOT NULL,
            verify_s REAL NOT NULL,
            timing_s REAL NOT NULL,
            max_error REAL,                  -- NULL: not a number
            session TEXT NOT NULL REFERENCES sessions(id),
            origin TEXT NOT NULL,
            created_s REAL NOT NULL,
            checksum INTEGER NOT NULL,       -- CRC-32 of the row's content
            UNIQUE (kernel, fingerprint, actions, policy, space_version)
        )""",
        """CREATE INDEX trials_by_speed ON trials (kernel, fingerprint, space_version, policy, median_s)
            WHERE status = 'ok' AND median_s IS NOT NULL""",
        """CREATE TABLE promotions (
            id INTEGER PRIMARY KEY,
            kernel INTEGER NOT NULL REFERENCES kernels(id),
            fingerprint INTEGER NOT NULL REFERENCES fingerprints(id),
            trial INTEGER NOT NULL REFERENCES trials(id),
            evidence TEXT NOT NULL,          -- JSON object
            created_s REAL NOT NULL
        )""",
        "CREATE INDEX promotions_by_kernel ON promotions (kernel, fingerprint)",
        "CREATE INDEX promotions_by_trial ON promotions (trial)",
        """CREATE TABLE spend (
            id INTEGER PRIMARY KEY,
            model_key TEXT NOT NULL,
            fingerprint INTEGER NOT NULL REFERENCES fingerprints(id),
            settings TEXT NOT NULL,
            seconds REAL NOT NULL,
            UNIQUE (model_key, fingerprint, settings)
        )""",
        """CREATE VIEW winners AS
            WITH ranked AS (
                SELECT t.*, p.id AS promotion,
                    MAX(t.id) OVER (PARTITION BY t.kernel, t.fingerprint, t.space_version, t.policy) AS newest_trial,
                    ROW_NUMBER() OVER (
                        PARTITION BY t.kernel, t.fingerprint, t.space_version, t.policy
                        ORDER BY p.id IS NULL, p.id DESC, t.median_s, t.id
                    ) AS place
                FROM trials t
                LEFT JOIN (SELECT trial, MAX(id) AS id FROM promotions GROUP BY trial) p ON p.trial = t.id
                WHERE t.status = 'ok' AND t.median_s IS NOT NULL
            )
            SELECT k.key AS kernel_key, k.name AS name, f.fields AS fingerprint, p.text AS policy, r.space_version,
                r.id AS trial, r.actions, r.median_s, r.promotion, r.newest_trial
            FROM ranked r JOIN kernels k ON k.id = r.kernel JOIN fingerprints f ON f.id = r.fingerprint
                JOIN policies p ON p.id = r.policy
            WHERE r.place = 1""",
    ),
    (
        # How many fresh workers a candidate was run in: what crashed is tried once more.
        "ALTER TABLE trials ADD COLUMN attempts INTEGER NOT NULL DEFAULT 1",
        """CREATE TABLE withdrawals (
            id INTEGER PRIMARY KEY,
            kernel INTEGER NOT NULL REFERENCES kernels(id),
            fingerprint INTEGER NOT NULL REFERENCES fingerprints(id),
            trial INTEGER NOT NULL UNIQUE REFERENCES trials(id),
            reason TEXT NOT NULL,
            session TEXT NOT NULL REFERENCES sessions(id),
            created_s REAL NOT NULL
        )""",
        "CREATE INDEX withdrawals_by_kernel ON withdrawals (kernel, fingerprint)",
        "DROP VIEW winners",
        """CREATE VIEW winners AS
            WITH sound AS (
                SELECT t.*, p.id AS promotion,
                    MAX(w.id IS NOT NULL) OVER place AS withdrawn,
                    w.id IS NULL AS stands
                FROM trials t
                LEFT JOIN (SELECT trial, MAX(id) AS id FROM promotions GROUP BY trial) p ON p.trial = t.id
                LEFT JOIN withdrawals w ON w.trial = t.id
                WHERE t.status = 'ok' AND t.median_s IS NOT NULL
                WINDOW place AS (PARTITION BY t.kernel, t.fingerprint, t.space_version)
            ),
            ranked AS (
                SELECT s.*,
                    MAX(s.id) OVER (PARTITION BY s.kernel, s.fingerprint, s.space_version, s.policy) AS newest_trial,
                    ROW_NUMBER() OVER (
                        PARTITION BY s.kernel, s.fingerprint, s.space_version, s.policy
                        ORDER BY s.promotion IS NULL, s.promotion DESC, s.median_s, s.id
                    ) AS place
                FROM sound s
                -- where a winner was withdrawn, the fastest is no winner until it is promoted
                WHERE s.stands AND (s.promotion IS NOT NULL OR NOT s.withdrawn)
            )
            SELECT k.key AS kernel_key, k.name AS name, f.fields AS fingerprint, p.text AS policy, r.space_version,
                r.id AS trial, r.actions, r.median_s, r.promotion, r.newest_trial
            FROM ranked r JOIN kernels k ON k.id = r.kernel JOIN fingerprints f ON f.id = r.fingerprint
                JOIN policies p ON p.id = r.policy
            WHERE r.place = 1""",
    ),
    (
        # The same may be measured again: history is only added to. What it was timed beside is
        # kept.
        "DROP VIEW winners",
        """CREATE TABLE trials_3 (
            id INTEGER PRIMARY KEY,
            kernel INTEGER NOT NULL REFERENCES kernels(id),
            fingerprint INTEGER NOT NULL REFERENCES fingerprints(id),
            policy INTEGER NOT NULL REFERENCES policies(id),
            actions TEXT NOT NULL,
            program_hash TEXT NOT NULL,
            space_version INTEGER NOT NULL,
            repeat INTEGER NOT NULL,         -- 0: first measured; 1, 2, ...: the same measured again
            timeout_s REAL NOT NULL,
            status TEXT NOT NULL,
            samples_s TEXT NOT NULL,         -- JSON list of seconds
            median_s REAL,                   -- what rows are ranked by, NULL: no samples
            error TEXT NOT NULL,
            lower_s REAL NOT NULL,
            compile_s REAL NOT NULL,
            verify_s REAL NOT NULL,
            timing_s REAL NOT NULL,
            max_error REAL,                  -- NULL: not a number
            session TEXT NOT NULL REFERENCES sessions(id),
            origin TEXT NOT NULL,
            created_s REAL NOT NULL,
            attempts INTEGER NOT NULL,
            reference_samples_s TEXT NOT NULL,   -- JSON list of seconds: what ran in the same turns
            reference_program TEXT NOT NULL,     -- hash of that program, '' where there is none
            reference_s REAL NOT NULL,           -- seconds that it stands for, 0 where there is none
            checksum INTEGER NOT NULL,       -- CRC-32 of the row's content
            UNIQUE (kernel, fingerprint, actions, policy, space_version, repeat)
        )""",
        """INSERT INTO trials_3 SELECT id, kernel, fingerprint, policy, actions, program_hash, space_version, 0,
            timeout_s, status, samples_s, median_s, error, lower_s, compile_s, verify_s, timing_s, max_error,
            session, origin, created_s, attempts, '[]', '', 0.0, checksum FROM trials ORDER BY id""",
        "DROP TABLE trials",
        "ALTER TABLE trials_3 RENAME TO trials",
        """CREATE INDEX trials_by_speed ON trials (kernel, fingerprint, space_version, policy, median_s)
            WHERE status = 'ok' AND median_s IS NOT NULL""",
        """CREATE TABLE decisions (
            id INTEGER PRIMARY KEY,
            kind TEXT NOT NULL,              -- images, cut, variant
            kernel INTEGER NOT NULL REFERENCES kernels(id),  -- the text that it is about
            fingerprint INTEGER NOT NULL REFERENCES fingerprints(id),
            space_version INTEGER NOT NULL,
            choice TEXT NOT NULL,
            chosen INTEGER NOT NULL,         -- 1: it stands from then on
            evidence TEXT NOT NULL,          -- JSON object
            status TEXT NOT NULL,            -- ok, or how the alternative failed
            error TEXT NOT NULL,
            policy TEXT NOT NULL,            -- how its samples were taken
            session TEXT NOT NULL REFERENCES sessions(id),
            created_s REAL NOT NULL,
            checksum INTEGER NOT NULL
        )""",
        (
            "CREATE INDEX decisions_by_question ON decisions (kernel, fingerprint, "
            "space_version, kind)"
        ),
        """CREATE TABLE latencies (
            id INTEGER PRIMARY KEY,
            model TEXT NOT NULL,
            model_key TEXT NOT NULL,         -- hash of the graph
            kind TEXT NOT NULL,              -- tuned, default
            fingerprint INTEGER NOT NULL REFERENCES fingerprints(id),
            samples_s TEXT NOT NULL,         -- JSON list of seconds
            default_samples_s TEXT NOT NULL,     -- the same turns with the default schedules, or []
            session TEXT NOT NULL REFERENCES sessions(id),
            created_s REAL NOT NULL,
            versions TEXT NOT NULL,          -- JSON object
            state TEXT NOT NULL,             -- JSON object: of the machine
            imported INTEGER NOT NULL,       -- 1: a file claims it
            checksum INTEGER NOT NULL
        )""",
        "CREATE INDEX latencies_by_model ON latencies (model, created_s)",
        "ALTER TABLE sessions ADD COLUMN versions TEXT NOT NULL DEFAULT '{}'",
        "ALTER TABLE sessions ADD COLUMN state TEXT NOT NULL DEFAULT '{}'",
        """CREATE VIEW winners AS
            WITH measured AS (
                SELECT t.*,
                    -- of what was measured several times one counts; a wrong one has a withdrawal
                    ROW_NUMBER() OVER (
                        PARTITION BY t.kernel, t.fingerprint, t.actions, t.policy, t.space_version
                        ORDER BY substr(t.origin, 1, 9) = 'imported:',
                            t.status = 'crashed' AND t.attempts < 2, t.id DESC
                    ) AS age,
                    MAX(w.id IS NOT NULL) OVER (
                        PARTITION BY t.kernel, t.fingerprint, t.actions, t.policy, t.space_version
                    ) AS withdrawn,
                    MAX(w.id IS NOT NULL) OVER (
                        PARTITION BY t.kernel, t.fingerprint, t.space_version
                    ) AS void,
                    MAX(p.id) OVER (
                        PARTITION BY t.kernel, t.fingerprint, t.actions, t.policy, t.space_version
                    ) AS promotion,
                    MAX(CASE WHEN t.status = 'ok' AND t.median_s IS NOT NULL THEN t.id END) OVER (
                        PARTITION BY t.kernel, t.fingerprint, t.space_version, t.policy
                    ) AS newest_trial
                FROM trials t
                LEFT JOIN (SELECT trial, MAX(id) AS id FROM promotions GROUP BY trial) p ON p.trial = t.id
                LEFT JOIN withdrawals w ON w.trial = t.id
            ),
            ranked AS (
                SELECT m.*,
                    ROW_NUMBER() OVER (
                        PARTITION BY m.kernel, m.fingerprint, m.space_version, m.policy
                        ORDER BY m.promotion IS NULL, m.promotion DESC, m.age, m.median_s, m.id
                    ) AS place
                FROM measured m
                -- where a winner was withdrawn, the fastest is no winner until it is promoted
                WHERE m.status = 'ok' AND m.median_s IS NOT NULL AND NOT m.withdrawn
                    AND (m.promotion IS NOT NULL OR (m.age = 1 AND NOT m.void))
            )
            SELECT k.key AS kernel_key, k.name AS name, f.fields AS fingerprint, p.text AS policy, r.space_version,
                r.id AS trial, r.actions, r.median_s, r.promotion, r.newest_trial
            FROM ranked r JOIN kernels k ON k.id = r.kernel JOIN fingerprints f ON f.id = r.fingerprint
                JOIN policies p ON p.id = r.policy
            WHERE r.place = 1""",
    ),
    (
        # What the compiler made of the program, and the device while it was timed; JSON objects.
        "ALTER TABLE trials ADD COLUMN facts TEXT NOT NULL DEFAULT '{}'",
        "ALTER TABLE trials ADD COLUMN state TEXT NOT NULL DEFAULT '{}'",
    ),
)

SCHEMA_VERSION = len(STEPS)

CONVERSIONS: tuple[tuple[int, Callable[[sqlite3.Connection], None]], ...] = (
    (3, separate_decisions),
)
"""What a store of an older schema than this needs after all steps, by code that knows the
newest schema only.
"""

_NO_WITHDRAWALS = """CREATE TEMP TABLE withdrawals (
    id INTEGER PRIMARY KEY, kernel, fingerprint, trial, reason, session, created_s
)"""
_BEFORE_4 = "CREATE TEMP VIEW trials AS SELECT *, id AS rowid, '{}' AS facts, '{}' AS state"
_TRIALS = f"{_BEFORE_4}, '[]' AS reference_samples_s, '' AS reference_program, 0.0 AS reference_s"
_BEFORE_3 = (
    (
        "CREATE TEMP VIEW sessions AS SELECT rowid, *, '{}' AS versions, '{}' AS state FROM "
        "main.sessions"
    ),
    """CREATE TEMP TABLE decisions (
        id INTEGER PRIMARY KEY, kernel, fingerprint, kind, space_version, choice, chosen, evidence, status, error,
        policy, session, created_s, checksum
    )""",
    """CREATE TEMP TABLE latencies (
        id INTEGER PRIMARY KEY, fingerprint, model, model_key, kind, samples_s, default_samples_s, session, created_s,
        versions, state, imported, checksum
    )""",
)

SALVAGED: tuple[tuple[str, ...], ...] = (
    (),
    (f"{_TRIALS}, 1 AS attempts FROM main.trials", _NO_WITHDRAWALS, *_BEFORE_3),
    (f"{_TRIALS} FROM main.trials", *_BEFORE_3),
    (f"{_BEFORE_4} FROM main.trials",),
    (),
)
"""What makes a damaged file, which can not be migrated, look like one of the newest version to a
connection that reads it, by the file's version. Temporary names come before those of the file.
"""


def migrate(
    connection: sqlite3.Connection,
    steps: tuple[tuple[str, ...], ...] = STEPS,
    conversions: tuple[tuple[int, Callable[[sqlite3.Connection], None]], ...] = CONVERSIONS,
) -> None:
    """Run the steps that the store has not seen, then the conversions, all or none.

    A new file gets all steps and the application id.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        for step in steps[version:]:
            for statement in step:
                connection.execute(statement)
        for needed, convert in conversions:
            if 0 < version < needed:
                convert(connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {max(version, len(steps))}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
