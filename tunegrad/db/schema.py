"""The schema, as the ordered steps that made it.

    version 0    a new file
    version 4    0.1.0, the first released one: ``STEPS[0]``
    version N    N - 4 further steps

A released step is never edited: a change is a new step. All missing steps run in one transaction
(``PRAGMA user_version`` says which), so a store is at one version or at another, never between.
Stores of versions 1 to 3, from before 0.1.0, are refused and left as they are.
"""

from __future__ import annotations

import sqlite3

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
            version TEXT NOT NULL,           -- of tunegrad
            versions TEXT NOT NULL,          -- JSON object
            state TEXT NOT NULL              -- JSON object: of the machine
        )""",
        """CREATE TABLE trials (
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
            facts TEXT NOT NULL,             -- JSON object: what the compiler made of the program
            state TEXT NOT NULL,             -- JSON object: of the device while it was timed
            UNIQUE (kernel, fingerprint, actions, policy, space_version, repeat)
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
)

FIRST_VERSION = 4
"""Of stores that are read; what the first step makes."""

SCHEMA_VERSION = FIRST_VERSION + len(STEPS) - 1


def migrate(connection: sqlite3.Connection, steps: tuple[tuple[str, ...], ...] = STEPS) -> None:
    """Run the steps that the store has not seen, all or none.

    A new file gets all steps and the application id.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        for step in steps[max(0, version - FIRST_VERSION + 1) :]:
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        newest = FIRST_VERSION + len(steps) - 1
        connection.execute(f"PRAGMA user_version = {max(version, newest)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
