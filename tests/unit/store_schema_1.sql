-- A store of schema version 1, as `iterdump` wrote it. Frozen: a later schema must read it; never edit or regenerate it.
PRAGMA application_id = 1953853029;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE fingerprints (
            id INTEGER PRIMARY KEY,
            fields TEXT NOT NULL UNIQUE      -- JSON list of [name, value], sorted
        );
INSERT INTO "fingerprints" VALUES(1,'[["arch","znver4"],["device","cpu"]]');
CREATE TABLE kernels (
            id INTEGER PRIMARY KEY,
            key TEXT NOT NULL UNIQUE,        -- hash of text
            text TEXT NOT NULL,              -- canonical
            name TEXT NOT NULL DEFAULT ''    -- for people only
        );
INSERT INTO "kernels" VALUES(1,'a0245a536824a4d9f821faaa2dd8971d','kernel(m 64, n 64, k 64)','matmul_64');
INSERT INTO "kernels" VALUES(2,'9fec3d146e5396fcc108ae5dac5af7cd','kernel(other)','');
CREATE TABLE policies (
            id INTEGER PRIMARY KEY,
            text TEXT NOT NULL UNIQUE,
            fields TEXT NOT NULL             -- JSON object, without timeout_s
        );
INSERT INTO "policies" VALUES(1,'cache=warm statistic=median clock=monotonic_raw samples=3..50 tolerance=0.02 budget_s=0.1','{"cache":"warm","statistic":"median","clock":"monotonic_raw","min_samples":3,"max_samples":50,"tolerance":0.02,"budget_s":0.1}');
CREATE TABLE promotions (
            id INTEGER PRIMARY KEY,
            kernel INTEGER NOT NULL REFERENCES kernels(id),
            fingerprint INTEGER NOT NULL REFERENCES fingerprints(id),
            trial INTEGER NOT NULL REFERENCES trials(id),
            evidence TEXT NOT NULL,          -- JSON object
            created_s REAL NOT NULL
        );
INSERT INTO "promotions" VALUES(1,1,1,2,'{"test":"mannwhitneyu","p_value":0.001,"incumbent_samples":[0.002],"challenger_samples":[0.001],"cold":true}',2001.0);
CREATE TABLE sessions (
            id TEXT PRIMARY KEY,
            started_s REAL NOT NULL,         -- since the epoch
            ended_s REAL,                    -- NULL: running, or killed
            command TEXT NOT NULL,           -- '': known only from its trials
            seed INTEGER NOT NULL,
            settings TEXT NOT NULL,          -- JSON object
            version TEXT NOT NULL            -- of tunegrad
        );
INSERT INTO "sessions" VALUES('s1',2000.0,2002.0,'tune mlp',7,'{"threads": 2}','0.1.0');
CREATE TABLE spend (
            id INTEGER PRIMARY KEY,
            model_key TEXT NOT NULL,
            fingerprint INTEGER NOT NULL REFERENCES fingerprints(id),
            settings TEXT NOT NULL,
            seconds REAL NOT NULL,
            UNIQUE (model_key, fingerprint, settings)
        );
INSERT INTO "spend" VALUES(1,'model',1,'beam',12.5);
CREATE TABLE trials (
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
        );
INSERT INTO "trials" VALUES(1,1,1,1,'unroll(by=0)','00000000000000000000000000000000',1,10.0,'ok','[0.001,0.002,0.003]',0.002,'',0.0,0.0,0.0,0.0,0.0,'s1','beam',1000.0,108610520);
INSERT INTO "trials" VALUES(2,1,1,1,'unroll(by=1)','00000000000000000000000000000001',1,10.0,'ok','[0.002,0.003,0.004]',0.003,'',0.0,0.0,0.0,0.0,0.0,'s1','beam',1001.0,3095668045);
INSERT INTO "trials" VALUES(3,1,1,1,'unroll(by=2)','00000000000000000000000000000002',1,10.0,'ok','[0.003,0.004,0.005]',0.004,'',0.0,0.0,0.0,0.0,0.0,'s1','beam',1002.0,1084641866);
INSERT INTO "trials" VALUES(4,1,1,1,'unroll(by=3)','00000000000000000000000000000003',1,10.0,'wrong','[]',NULL,'off by
''one''',0.0,0.0,0.0,0.0,9e999,'s1','beam',1003.0,1121139108);
INSERT INTO "trials" VALUES(5,2,1,1,'unroll(by=0)','00000000000000000000000000000000',1,10.0,'ok','[0.001,0.002,0.003]',0.002,'',0.0,0.0,0.0,0.0,0.0,'s1','beam',1000.0,2761361935);
CREATE INDEX trials_by_speed ON trials (kernel, fingerprint, space_version, policy, median_s)
            WHERE status = 'ok' AND median_s IS NOT NULL;
CREATE INDEX promotions_by_kernel ON promotions (kernel, fingerprint);
CREATE INDEX promotions_by_trial ON promotions (trial);
CREATE VIEW winners AS
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
            WHERE r.place = 1;
COMMIT;
