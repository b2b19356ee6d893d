-- A store of schema version 2 with decisions, as `iterdump` wrote it. Frozen: a later schema must read it; never edit or regenerate it.
PRAGMA application_id = 1953853029;
PRAGMA user_version = 2;
BEGIN TRANSACTION;
CREATE TABLE fingerprints (
            id INTEGER PRIMARY KEY,
            fields TEXT NOT NULL UNIQUE      -- JSON list of [name, value], sorted
        );
INSERT INTO "fingerprints" VALUES(1,'[["arch","znver4"],["device","cpu"]]');
INSERT INTO "fingerprints" VALUES(2,'[["arch","skylake"],["device","cpu"]]');
CREATE TABLE kernels (
            id INTEGER PRIMARY KEY,
            key TEXT NOT NULL UNIQUE,        -- hash of text
            text TEXT NOT NULL,              -- canonical
            name TEXT NOT NULL DEFAULT ''    -- for people only
        );
INSERT INTO "kernels" VALUES(1,'863e1e4846b47b42401d67bf6c124356','images
launch (0, 1) aa','images of 1 kernels');
INSERT INTO "kernels" VALUES(2,'49767cffe410cc79dbc39ccf8b3246bc','images
launch (0, 1) bb','');
INSERT INTO "kernels" VALUES(3,'2ff34acbda20e3900f127f390439e66f','region
kernel a
kernel b','plan of a, b');
INSERT INTO "kernels" VALUES(4,'032f24f832c088fc92f8bfcdd59ffbca','region
kernel c','');
INSERT INTO "kernels" VALUES(5,'b7dd4d13cf9efd8cfc8695d5ef71eaf7','region
kernel d','');
INSERT INTO "kernels" VALUES(6,'b68afe3348fc021f27bf8141a982af8b','kernel(winograd wins)','');
INSERT INTO "kernels" VALUES(7,'515fedfb66faa2e475319446b7687f3e','kernel(direct stays)','');
INSERT INTO "kernels" VALUES(8,'09e7324dbde8d9a084147b529caa89e9','kernel(only im2col)','');
INSERT INTO "kernels" VALUES(9,'8aee10974fd1d6eb43163f1b7a86d621','kernel(direct again)','');
INSERT INTO "kernels" VALUES(10,'e90ed9b421a2f61677dc48af31d30c39','kernel(by speed)','');
INSERT INTO "kernels" VALUES(11,'fc57f5d18ec85b458eba4b53daeb1010','kernel(withdrawn variant)','');
INSERT INTO "kernels" VALUES(12,'2946ea268b11a53877294994508b527c','kernel(withdrawn schedule)','');
CREATE TABLE policies (
            id INTEGER PRIMARY KEY,
            text TEXT NOT NULL UNIQUE,
            fields TEXT NOT NULL             -- JSON object, without timeout_s
        );
INSERT INTO "policies" VALUES(1,'cache=warm statistic=median clock=monotonic_raw samples=12..12 tolerance=0.02 budget_s=0.1','{"cache":"warm","statistic":"median","clock":"monotonic_raw","min_samples":12,"max_samples":12,"tolerance":0.02,"budget_s":0.1}');
INSERT INTO "policies" VALUES(2,'cache=warm statistic=median clock=monotonic_raw samples=1..1 tolerance=0.02 budget_s=0.1','{"cache":"warm","statistic":"median","clock":"monotonic_raw","min_samples":1,"max_samples":1,"tolerance":0.02,"budget_s":0.1}');
INSERT INTO "policies" VALUES(3,'cache=warm statistic=median clock=monotonic_raw samples=3..50 tolerance=0.02 budget_s=0.1','{"cache":"warm","statistic":"median","clock":"monotonic_raw","min_samples":3,"max_samples":50,"tolerance":0.02,"budget_s":0.1}');
CREATE TABLE promotions (
            id INTEGER PRIMARY KEY,
            kernel INTEGER NOT NULL REFERENCES kernels(id),
            fingerprint INTEGER NOT NULL REFERENCES fingerprints(id),
            trial INTEGER NOT NULL REFERENCES trials(id),
            evidence TEXT NOT NULL,          -- JSON object
            created_s REAL NOT NULL
        );
INSERT INTO "promotions" VALUES(1,1,1,1,'{"test":"standing","p_value":1.0,"incumbent_samples":[],"challenger_samples":[0.002,0.0021],"cold":false}',3003.0);
INSERT INTO "promotions" VALUES(2,1,1,2,'{"test":"sign","p_value":0.001,"incumbent_samples":[0.002,0.0021],"challenger_samples":[0.001,0.0011],"cold":false}',3005.0);
INSERT INTO "promotions" VALUES(3,2,1,3,'{"test":"standing","p_value":1.0,"incumbent_samples":[],"challenger_samples":[0.001],"cold":false}',3007.0);
INSERT INTO "promotions" VALUES(4,3,1,5,'{"test":"parts","p_value":1.0,"incumbent_samples":[],"challenger_samples":[0.005],"cold":false}',3010.0);
INSERT INTO "promotions" VALUES(5,3,1,7,'{"test":"sign","p_value":0.001,"incumbent_samples":[0.005],"challenger_samples":[0.003],"cold":false}',3013.0);
INSERT INTO "promotions" VALUES(6,4,1,8,'{"test":"imported:sign","p_value":0.01,"incumbent_samples":[0.005],"challenger_samples":[0.003],"cold":false}',3015.0);
INSERT INTO "promotions" VALUES(7,5,1,9,'{"test":"parts","p_value":1.0,"incumbent_samples":[],"challenger_samples":[0.004],"cold":false}',3017.0);
INSERT INTO "promotions" VALUES(8,5,2,10,'{"test":"sign","p_value":0.001,"incumbent_samples":[0.004],"challenger_samples":[0.002],"cold":false}',3019.0);
INSERT INTO "promotions" VALUES(9,6,1,11,'{"test":"mannwhitneyu","p_value":0.001,"incumbent_samples":[0.002],"challenger_samples":[0.001],"cold":true}',3021.0);
INSERT INTO "promotions" VALUES(10,6,1,13,'{"test":"sign","p_value":0.001,"incumbent_samples":[0.001],"challenger_samples":[0.0008],"cold":false}',3024.0);
INSERT INTO "promotions" VALUES(11,7,1,14,'{"test":"mannwhitneyu","p_value":0.001,"incumbent_samples":[0.002],"challenger_samples":[0.001],"cold":true}',3026.0);
INSERT INTO "promotions" VALUES(12,8,1,16,'{"test":"alone","p_value":1.0,"incumbent_samples":[],"challenger_samples":[0.009],"cold":false}',3029.0);
INSERT INTO "promotions" VALUES(13,9,1,17,'{"test":"alone","p_value":1.0,"incumbent_samples":[],"challenger_samples":[0.009],"cold":false}',3031.0);
INSERT INTO "promotions" VALUES(14,9,1,18,'{"test":"mannwhitneyu","p_value":0.001,"incumbent_samples":[0.002],"challenger_samples":[0.001],"cold":true}',3033.0);
INSERT INTO "promotions" VALUES(15,11,1,20,'{"test":"mannwhitneyu","p_value":0.001,"incumbent_samples":[0.002],"challenger_samples":[0.001],"cold":true}',3036.0);
INSERT INTO "promotions" VALUES(16,11,1,21,'{"test":"sign","p_value":0.001,"incumbent_samples":[0.004],"challenger_samples":[0.001],"cold":false}',3038.0);
INSERT INTO "promotions" VALUES(17,12,1,22,'{"test":"mannwhitneyu","p_value":0.001,"incumbent_samples":[0.002],"challenger_samples":[0.001],"cold":true}',3041.0);
INSERT INTO "promotions" VALUES(18,12,1,23,'{"test":"mannwhitneyu","p_value":0.001,"incumbent_samples":[0.002],"challenger_samples":[0.001],"cold":true}',3043.0);
CREATE TABLE sessions (
            id TEXT PRIMARY KEY,
            started_s REAL NOT NULL,         -- since the epoch
            ended_s REAL,                    -- NULL: running, or killed
            command TEXT NOT NULL,           -- '': known only from its trials
            seed INTEGER NOT NULL,
            settings TEXT NOT NULL,          -- JSON object
            version TEXT NOT NULL            -- of tunegrad
        );
INSERT INTO "sessions" VALUES('s2',3001.0,3045.0,'tune resnet',3,'{"model": "resnet"}','0.1.0');
CREATE TABLE spend (
            id INTEGER PRIMARY KEY,
            model_key TEXT NOT NULL,
            fingerprint INTEGER NOT NULL REFERENCES fingerprints(id),
            settings TEXT NOT NULL,
            seconds REAL NOT NULL,
            UNIQUE (model_key, fingerprint, settings)
        );
INSERT INTO "spend" VALUES(1,'resnet',1,'beam',60.0);
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
INSERT INTO "trials" VALUES(1,1,1,1,'images(last)','',1,10.0,'ok','[0.002,0.0021]',2.04999999999999973909e-03,'',0.0,0.0,0.0,0.0,0.0,'s2','plan',3002.0,3787220826,1);
INSERT INTO "trials" VALUES(2,1,1,1,'images(blocked16)','',1,10.0,'ok','[0.001,0.0011]',1.05000000000000015196e-03,'',0.0,0.0,0.0,0.0,0.0,'s2','plan',3004.0,2905978766,1);
INSERT INTO "trials" VALUES(3,2,1,1,'images(last)','',1,10.0,'ok','[0.001]',0.001,'',0.0,0.0,0.0,0.0,0.0,'s2','plan',3006.0,2869845842,1);
INSERT INTO "trials" VALUES(4,2,1,1,'images(rows)','',1,10.0,'ok','[0.0012]',0.0012,'',0.0,0.0,0.0,0.0,0.0,'s2','plan',3008.0,3581109690,1);
INSERT INTO "trials" VALUES(5,3,1,2,'plan(rules)','',1,10.0,'ok','[0.005]',0.005,'',0.0,0.0,0.0,0.0,0.0,'s2','plan',3009.0,3457873161,1);
INSERT INTO "trials" VALUES(6,3,1,1,'plan(keep_3)','',1,10.0,'crashed','[]',NULL,'in the whole model: crashed: signal 11',0.0,0.0,0.0,0.0,0.0,'s2','plan',3011.0,190734081,2);
INSERT INTO "trials" VALUES(7,3,1,1,'plan(keep_1)','',1,10.0,'ok','[0.003]',0.003,'',0.0,0.0,0.0,0.0,0.0,'s2','plan',3012.0,110395093,1);
INSERT INTO "trials" VALUES(8,4,1,1,'plan(keep_2)','',1,10.0,'ok','[0.003]',0.003,'',0.0,0.0,0.0,0.0,0.0,'s2','imported:plan',3014.0,1464780336,1);
INSERT INTO "trials" VALUES(9,5,1,2,'plan(rules)','',1,10.0,'ok','[0.004]',0.004,'',0.0,0.0,0.0,0.0,0.0,'s2','plan',3016.0,563559463,1);
INSERT INTO "trials" VALUES(10,5,2,1,'plan(keep_4)','',1,10.0,'ok','[0.002]',0.002,'',0.0,0.0,0.0,0.0,0.0,'s2','plan',3018.0,1044924645,1);
INSERT INTO "trials" VALUES(11,6,1,3,'tile(axis=m, size=3)','00000000000000000000000000000001',1,10.0,'ok','[0.002,0.003,0.004]',0.003,'',0.0,0.0,0.0,0.0,0.0,'s2','beam',3020.0,3179513286,1);
INSERT INTO "trials" VALUES(12,6,1,3,'tile(axis=m, size=2)','00000000000000000000000000000000',1,10.0,'ok','[0.001,0.002,0.003]',0.002,'',0.0,0.0,0.0,0.0,0.0,'s2','beam',3022.0,298536125,1);
INSERT INTO "trials" VALUES(13,6,1,1,'variant(winograd2)','',1,10.0,'ok','[0.0008]',0.0008,'',0.0,0.0,0.0,0.0,0.0,'s2','variant',3023.0,2498280278,1);
INSERT INTO "trials" VALUES(14,7,1,3,'tile(axis=m, size=4)','00000000000000000000000000000002',1,10.0,'ok','[0.003,0.004,0.005]',0.004,'',0.0,0.0,0.0,0.0,0.0,'s2','beam',3025.0,2337138008,1);
INSERT INTO "trials" VALUES(15,7,1,1,'variant(im2col)','',1,10.0,'ok','[0.009]',0.009,'',0.0,0.0,0.0,0.0,0.0,'s2','variant',3027.0,2346659322,1);
INSERT INTO "trials" VALUES(16,8,1,1,'variant(im2col)','',1,10.0,'ok','[0.009]',0.009,'',0.0,0.0,0.0,0.0,0.0,'s2','variant',3028.0,912002006,1);
INSERT INTO "trials" VALUES(17,9,1,1,'variant(im2col)','',1,10.0,'ok','[0.009]',0.009,'',0.0,0.0,0.0,0.0,0.0,'s2','variant',3030.0,820379963,1);
INSERT INTO "trials" VALUES(18,9,1,3,'tile(axis=m, size=5)','00000000000000000000000000000003',1,10.0,'ok','[0.004,0.005,0.006]',0.005,'',0.0,0.0,0.0,0.0,0.0,'s2','beam',3032.0,2935800110,1);
INSERT INTO "trials" VALUES(19,10,1,1,'variant(im2col)','',1,10.0,'ok','[0.009]',0.009,'',0.0,0.0,0.0,0.0,0.0,'s2','variant',3034.0,508396222,1);
INSERT INTO "trials" VALUES(20,11,1,3,'tile(axis=m, size=6)','00000000000000000000000000000004',1,10.0,'ok','[0.005,0.006,0.007]',0.006,'',0.0,0.0,0.0,0.0,0.0,'s2','beam',3035.0,867369155,1);
INSERT INTO "trials" VALUES(21,11,1,1,'variant(winograd2)','',1,10.0,'ok','[0.001]',0.001,'',0.0,0.0,0.0,0.0,0.0,'s2','variant',3037.0,1224114790,1);
INSERT INTO "trials" VALUES(22,12,1,3,'tile(axis=m, size=7)','00000000000000000000000000000005',1,10.0,'ok','[0.006,0.007,0.008]',0.007,'',0.0,0.0,0.0,0.0,0.0,'s2','beam',3040.0,952313196,1);
INSERT INTO "trials" VALUES(23,12,1,3,'tile(axis=m, size=8)','00000000000000000000000000000006',1,10.0,'ok','[0.007,0.008,0.009000000000000001]',0.008,'',0.0,0.0,0.0,0.0,0.0,'s2','beam',3042.0,2943895058,1);
CREATE TABLE withdrawals (
            id INTEGER PRIMARY KEY,
            kernel INTEGER NOT NULL REFERENCES kernels(id),
            fingerprint INTEGER NOT NULL REFERENCES fingerprints(id),
            trial INTEGER NOT NULL UNIQUE REFERENCES trials(id),
            reason TEXT NOT NULL,
            session TEXT NOT NULL REFERENCES sessions(id),
            created_s REAL NOT NULL
        );
INSERT INTO "withdrawals" VALUES(1,11,1,21,'outputs differ by 0.3','s2',3039.0);
INSERT INTO "withdrawals" VALUES(2,12,1,23,'outputs differ by 0.2','s2',3044.0);
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
