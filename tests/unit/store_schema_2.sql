-- A store of schema version 2, as `iterdump` wrote it. Frozen: a later schema must read it; never edit or regenerate it.
PRAGMA application_id = 1953853029;
PRAGMA user_version = 2;
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
INSERT INTO "kernels" VALUES(3,'c5b00da278c0d40910213994ec0e290f','kernel(third)','');
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
INSERT INTO "promotions" VALUES(2,3,1,8,'{"test":"mannwhitneyu","p_value":0.001,"incumbent_samples":[0.002],"challenger_samples":[0.001],"cold":true}',2003.0);
INSERT INTO "promotions" VALUES(3,3,1,7,'{"test":"mannwhitneyu","p_value":0.001,"incumbent_samples":[0.002],"challenger_samples":[0.001],"cold":true}',2003.0);
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
            checksum INTEGER NOT NULL, attempts INTEGER NOT NULL DEFAULT 1,       -- CRC-32 of the row's content
            UNIQUE (kernel, fingerprint, actions, policy, space_version)
        );
INSERT INTO "trials" VALUES(1,1,1,1,'unroll(by=0)','00000000000000000000000000000000',1,10.0,'ok','[0.001,0.002,0.003]',0.002,'',0.0,0.0,0.0,0.0,0.0,'s1','beam',1000.0,108610520,1);
INSERT INTO "trials" VALUES(2,1,1,1,'unroll(by=1)','00000000000000000000000000000001',1,10.0,'ok','[0.002,0.003,0.004]',0.003,'',0.0,0.0,0.0,0.0,0.0,'s1','beam',1001.0,3095668045,1);
INSERT INTO "trials" VALUES(3,1,1,1,'unroll(by=2)','00000000000000000000000000000002',1,10.0,'ok','[0.003,0.004,0.005]',0.004,'',0.0,0.0,0.0,0.0,0.0,'s1','beam',1002.0,1084641866,1);
INSERT INTO "trials" VALUES(4,1,1,1,'unroll(by=3)','00000000000000000000000000000003',1,10.0,'wrong','[]',NULL,'off by
''one''',0.0,0.0,0.0,0.0,9e999,'s1','beam',1003.0,1121139108,1);
INSERT INTO "trials" VALUES(5,2,1,1,'unroll(by=0)','00000000000000000000000000000000',1,10.0,'ok','[0.001,0.002,0.003]',0.002,'',0.0,0.0,0.0,0.0,0.0,'s1','beam',1000.0,2761361935,1);
INSERT INTO "trials" VALUES(6,3,1,1,'unroll(by=4)','00000000000000000000000000000004',1,10.0,'crashed','[]',NULL,'',0.0,0.0,0.0,0.0,0.0,'s1','beam',1004.0,3438397307,2);
INSERT INTO "trials" VALUES(7,3,1,1,'unroll(by=5)','00000000000000000000000000000005',1,10.0,'ok','[0.006,0.007,0.008]',0.007,'',0.0,0.0,0.0,0.0,0.0,'s1','beam',1005.0,2437249546,1);
INSERT INTO "trials" VALUES(8,3,1,1,'unroll(by=6)','00000000000000000000000000000006',1,10.0,'ok','[0.007,0.008,0.009000000000000001]',0.008,'',0.0,0.0,0.0,0.0,0.0,'s1','beam',1006.0,2605776034,1);
CREATE TABLE withdrawals (
            id INTEGER PRIMARY KEY,
            kernel INTEGER NOT NULL REFERENCES kernels(id),
            fingerprint INTEGER NOT NULL REFERENCES fingerprints(id),
            trial INTEGER NOT NULL UNIQUE REFERENCES trials(id),
            reason TEXT NOT NULL,
            session TEXT NOT NULL REFERENCES sessions(id),
            created_s REAL NOT NULL
        );
INSERT INTO "withdrawals" VALUES(1,3,1,7,'outputs differ by 0.3','s1',2003.0);
CREATE INDEX trials_by_speed ON trials (kernel, fingerprint, space_version, policy, median_s)
            WHERE status = 'ok' AND median_s IS NOT NULL;
CREATE INDEX promotions_by_kernel ON promotions (kernel, fingerprint);
CREATE INDEX promotions_by_trial ON promotions (trial);
CREATE INDEX withdrawals_by_kernel ON withdrawals (kernel, fingerprint);
CREATE VIEW winners AS
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
            WHERE r.place = 1;
COMMIT;
