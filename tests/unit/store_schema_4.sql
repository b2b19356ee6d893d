-- A store of schema version 4, as `iterdump` wrote it. Frozen: a later schema must read it; never edit or regenerate it.
PRAGMA application_id = 1953853029;
PRAGMA user_version = 4;
BEGIN TRANSACTION;
CREATE TABLE decisions (
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
        );
INSERT INTO "decisions" VALUES(1,'cut',6,1,1,'rules',1,'{"test":"parts","p_value":1.0,"incumbent_samples":[],"challenger_samples":[0.005],"cold":false}','ok','','cache=warm statistic=median clock=monotonic_raw samples=3..50 tolerance=0.02 budget_s=0.1','s2',4003.0,3413900410);
INSERT INTO "decisions" VALUES(2,'cut',6,1,1,'keep_3',0,'{"test":"failed","p_value":1.0,"incumbent_samples":[],"challenger_samples":[],"cold":false}','crashed','in the whole model: crashed: signal 11','cache=warm statistic=median clock=monotonic_raw samples=3..50 tolerance=0.02 budget_s=0.1','s2',4004.0,1446283153);
INSERT INTO "decisions" VALUES(3,'cut',6,1,1,'keep_1',1,'{"test":"sign","p_value":0.001,"incumbent_samples":[0.005],"challenger_samples":[0.003],"cold":false}','ok','','cache=warm statistic=median clock=monotonic_raw samples=3..50 tolerance=0.02 budget_s=0.1','s2',4005.0,154188069);
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
INSERT INTO "kernels" VALUES(4,'2a30c4fe30f16db7c63f737cbc8fd1cc','kernel(fifth)','');
INSERT INTO "kernels" VALUES(5,'564f58802ab3e94fea2c5807f023c221','kernel(fourth)','');
INSERT INTO "kernels" VALUES(6,'4679d834a4bbf0d12fd0aeb7c9ee1a7a','region
kernel a','plan of a');
INSERT INTO "kernels" VALUES(7,'5a989b4e4cabb6f1dde56c3a4d90b5be','kernel(sixth)','');
CREATE TABLE latencies (
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
        );
INSERT INTO "latencies" VALUES(1,'mlp','ffffffffffffffffffffffffffffffff','tuned',1,'[0.001,0.003,0.002]','[0.002,0.003,0.004]','s2',4006.0,'{"compiler":"llvmlite 0.44","numpy":"2.1.0","python":"3.11.9","tunegrad":"0.1.0"}','{"governor":"performance","load_1m":0.25}',0,1260555625);
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
INSERT INTO "promotions" VALUES(4,5,1,11,'{"test":"mannwhitneyu","p_value":0.001,"incumbent_samples":[0.002],"challenger_samples":[0.001],"cold":true}',4000.0);
CREATE TABLE sessions (
            id TEXT PRIMARY KEY,
            started_s REAL NOT NULL,         -- since the epoch
            ended_s REAL,                    -- NULL: running, or killed
            command TEXT NOT NULL,           -- '': known only from its trials
            seed INTEGER NOT NULL,
            settings TEXT NOT NULL,          -- JSON object
            version TEXT NOT NULL            -- of tunegrad
        , versions TEXT NOT NULL DEFAULT '{}', state TEXT NOT NULL DEFAULT '{}');
INSERT INTO "sessions" VALUES('s1',2000.0,2002.0,'tune mlp',7,'{"threads": 2}','0.1.0','{}','{}');
INSERT INTO "sessions" VALUES('s2',4000.0,4000.0,'tune mlp',7,'{"threads": 2}','0.1.0','{"compiler":"llvmlite 0.44","numpy":"2.1.0","python":"3.11.9","tunegrad":"0.1.0"}','{"governor":"performance","load_1m":0.25}');
CREATE TABLE spend (
            id INTEGER PRIMARY KEY,
            model_key TEXT NOT NULL,
            fingerprint INTEGER NOT NULL REFERENCES fingerprints(id),
            settings TEXT NOT NULL,
            seconds REAL NOT NULL,
            UNIQUE (model_key, fingerprint, settings)
        );
INSERT INTO "spend" VALUES(1,'model',1,'beam',12.5);
CREATE TABLE "trials" (
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
            checksum INTEGER NOT NULL, facts TEXT NOT NULL DEFAULT '{}', state TEXT NOT NULL DEFAULT '{}',       -- CRC-32 of the row's content
            UNIQUE (kernel, fingerprint, actions, policy, space_version, repeat)
        );
INSERT INTO "trials" VALUES(1,1,1,1,'unroll(by=0)','00000000000000000000000000000000',1,0,10.0,'ok','[0.001,0.002,0.003]',0.002,'',0.0,0.0,0.0,0.0,0.0,'s1','beam',1000.0,1,'[]','',0.0,108610520,'{}','{}');
INSERT INTO "trials" VALUES(2,1,1,1,'unroll(by=1)','00000000000000000000000000000001',1,0,10.0,'ok','[0.002,0.003,0.004]',0.003,'',0.0,0.0,0.0,0.0,0.0,'s1','beam',1001.0,1,'[]','',0.0,3095668045,'{}','{}');
INSERT INTO "trials" VALUES(3,1,1,1,'unroll(by=2)','00000000000000000000000000000002',1,0,10.0,'ok','[0.003,0.004,0.005]',0.004,'',0.0,0.0,0.0,0.0,0.0,'s1','beam',1002.0,1,'[]','',0.0,1084641866,'{}','{}');
INSERT INTO "trials" VALUES(4,1,1,1,'unroll(by=3)','00000000000000000000000000000003',1,0,10.0,'wrong','[]',NULL,'off by
''one''',0.0,0.0,0.0,0.0,1e999,'s1','beam',1003.0,1,'[]','',0.0,1121139108,'{}','{}');
INSERT INTO "trials" VALUES(5,2,1,1,'unroll(by=0)','00000000000000000000000000000000',1,0,10.0,'ok','[0.001,0.002,0.003]',0.002,'',0.0,0.0,0.0,0.0,0.0,'s1','beam',1000.0,1,'[]','',0.0,2761361935,'{}','{}');
INSERT INTO "trials" VALUES(6,3,1,1,'unroll(by=4)','00000000000000000000000000000004',1,0,10.0,'crashed','[]',NULL,'',0.0,0.0,0.0,0.0,0.0,'s1','beam',1004.0,2,'[]','',0.0,3438397307,'{}','{}');
INSERT INTO "trials" VALUES(7,3,1,1,'unroll(by=5)','00000000000000000000000000000005',1,0,10.0,'ok','[0.006,0.007,0.008]',0.007,'',0.0,0.0,0.0,0.0,0.0,'s1','beam',1005.0,1,'[]','',0.0,2437249546,'{}','{}');
INSERT INTO "trials" VALUES(8,3,1,1,'unroll(by=6)','00000000000000000000000000000006',1,0,10.0,'ok','[0.007,0.008,0.009000000000000001]',0.008,'',0.0,0.0,0.0,0.0,0.0,'s1','beam',1006.0,1,'[]','',0.0,2605776034,'{}','{}');
INSERT INTO "trials" VALUES(9,4,1,1,'unroll(by=0)','00000000000000000000000000000000',1,0,10.0,'ok','[0.001,0.002,0.003]',0.002,'',0.0,0.0,0.0,0.0,0.0,'s1','beam',1000.0,1,'[]','',0.0,2003260541,'{}','{}');
INSERT INTO "trials" VALUES(10,4,1,1,'unroll(by=0)','00000000000000000000000000000000',1,1,10.0,'ok','[0.002,0.004]',0.003,'',0.0,0.0,0.0,0.0,0.0,'s2','beam',4001.0,1,'[0.004,0.004]','rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr',0.0,952884896,'{}','{}');
INSERT INTO "trials" VALUES(11,5,1,1,'unroll(by=7)','00000000000000000000000000000007',1,0,10.0,'ok','[0.008,0.009000000000000001,0.01]',9.00000000000000105471e-03,'',0.0,0.0,0.0,0.0,0.0,'s2','beam',1007.0,1,'[]','',0.0,2204768312,'{}','{}');
INSERT INTO "trials" VALUES(12,5,1,1,'unroll(by=7)','00000000000000000000000000000007',1,1,10.0,'wrong','[]',NULL,'off by 0.3',0.0,0.0,0.0,0.0,0.0,'s2','beam',4002.0,1,'[]','',0.0,3521653931,'{}','{}');
INSERT INTO "trials" VALUES(13,7,1,1,'unroll(by=0)','00000000000000000000000000000000',1,0,10.0,'ok','[0.001,0.002,0.003]',0.002,'',0.0,0.0,0.0,0.0,0.0,'s1','beam',1000.0,1,'[]','',0.0,317303501,'{"instructions":512.0,"registers":64.0,"shared_bytes":4096.0,"spills":0.0}','{"power_w":312.5,"sm_mhz":1755.0}');
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
INSERT INTO "withdrawals" VALUES(2,5,1,12,'measured again, it was wrong: off by 0.3','s2',4002.0);
CREATE INDEX promotions_by_kernel ON promotions (kernel, fingerprint);
CREATE INDEX promotions_by_trial ON promotions (trial);
CREATE INDEX withdrawals_by_kernel ON withdrawals (kernel, fingerprint);
CREATE INDEX trials_by_speed ON trials (kernel, fingerprint, space_version, policy, median_s)
            WHERE status = 'ok' AND median_s IS NOT NULL;
CREATE INDEX decisions_by_question ON decisions (kernel, fingerprint, space_version, kind);
CREATE INDEX latencies_by_model ON latencies (model, created_s);
CREATE VIEW winners AS
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
            WHERE r.place = 1;
COMMIT;
