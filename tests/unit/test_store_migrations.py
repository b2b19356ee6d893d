"""Old stores are taken to the newest schema in one step or not at all; every released schema is
kept here as a dump.
"""

import math
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from store_trials import EVIDENCE, HERE, KERNEL, KEY, numbered, start

from tunegrad.db import (
    SCHEMA_VERSION,
    Evidence,
    Session,
    export_store,
    import_store,
    key_of,
    merge_stores,
    open_store,
)
from tunegrad.db import connection as connections
from tunegrad.db.migrations import STEPS, migrate
from tunegrad.db.separating import named_decision
from tunegrad.errors import StoreError
from tunegrad.trial import Fingerprint, Status

FROZEN = sorted(Path(__file__).parent.glob("store_schema_*.sql"))
NEXT = (
    "ALTER TABLE trials ADD COLUMN note TEXT NOT NULL DEFAULT ''",
    "CREATE TABLE extra (id INTEGER PRIMARY KEY)",
)


@pytest.fixture
def old(tmp_path):
    """A file made from the frozen dump of version 1."""
    path = tmp_path / "old.db"
    build(FROZEN[0], path)
    return path


def build(dump, path):
    raw = sqlite3.connect(path)
    raw.executescript(dump.read_text(encoding="utf-8"))
    raw.close()


def version_of(path):
    raw = sqlite3.connect(path)
    (version,) = raw.execute("PRAGMA user_version").fetchone()
    raw.close()
    return version


def upgrade(monkeypatch, *steps):
    """Pretend that this tunegrad has more steps."""
    longer = (*STEPS, *steps)
    monkeypatch.setattr(connections, "SCHEMA_VERSION", len(longer))
    monkeypatch.setattr(connections, "migrate", lambda connection: migrate(connection, longer))


def test_store_dumps_cover_every_released_schema():
    assert [p.stem for p in FROZEN] == [f"store_schema_{n}" for n in range(1, SCHEMA_VERSION + 1)]


@pytest.mark.parametrize("mode", ["read", "write"])
@pytest.mark.parametrize("dump", FROZEN, ids=lambda p: p.stem)
def test_store_of_a_released_schema_is_read_in_full(tmp_path, dump, mode):
    path = tmp_path / "old.db"
    build(dump, path)
    wrong = numbered(3, status=Status.WRONG)
    wrong = replace(
        wrong, measurement=replace(wrong.measurement, error="off by\n'one'", max_error=math.inf)
    )
    with open_store(path, mode) as store:
        assert store.verify() == []
        assert store.trials(KEY) == [numbered(0), numbered(1), numbered(2), wrong]
        assert store.trials(key_of("kernel(other)")) == [numbered(0, "kernel(other)")]
        assert store.winner(KEY, HERE, 1) == numbered(1)
        assert store.promotions(KEY, HERE) == [(numbered(1), EVIDENCE)]
        assert store.spent("model", HERE, "beam") == 12.5
        assert store.kernel_name(KEY) == "matmul_64"
        first = Session("s1", 2000.0, 2002.0, "tune mlp", 7, '{"threads": 2}', "0.1.0")
        assert [s for s in store.sessions() if s.id == "s1"] == [first]
        assert store.stats().schema_version == SCHEMA_VERSION


@pytest.mark.parametrize("dump", FROZEN, ids=lambda p: p.stem)
def test_store_of_a_released_schema_is_exported_and_merged_in_full(tmp_path, dump):
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    build(dump, old)
    before = old.read_bytes()
    report = merge_stores(new, [old])
    expected = {
        "store_schema_1": (5, 1, 2),
        "store_schema_2": (8, 3, 3),
        "store_schema_3": (12, 4, 4),
        "store_schema_4": (13, 4, 5),
    }
    assert (report.trials, report.promotions, report.winners) == expected[dump.stem]
    assert export_store(new).trials == export_store(old).trials == report.trials
    assert old.read_bytes() == before
    with open_store(new) as store:
        assert store.winner(KEY, HERE, 1) == numbered(1)
        assert store.stats().schema_version == SCHEMA_VERSION


@pytest.mark.parametrize("mode", ["read", "write"])
def test_store_of_schema_2_is_read_with_its_attempts_and_withdrawals(tmp_path, mode):
    build(FROZEN[1], tmp_path / "old.db")
    key = key_of("kernel(third)")
    with open_store(tmp_path / "old.db", mode) as store:
        assert [(t.measurement.status.value,
            t.measurement.attempts) for t in store.trials(key)] == [
            ("crashed", 2), ("wrong", 1), ("ok", 1),
        ]  # fmt: skip
        assert store.winner(key, HERE, 1) == numbered(6, "kernel(third)")
        assert [str(w) for w in store.withdrawals(key, HERE)] == [
            "withdrawn by session s1: outputs differ by 0.3"
        ]


@pytest.mark.parametrize("mode", ["read", "write"])
def test_store_of_schema_3_is_read_with_its_history_decisions_and_latencies(tmp_path, mode):
    build(FROZEN[2], tmp_path / "old.db")
    versions = (
        ("compiler", "llvmlite 0.44"),
        ("numpy", "2.1.0"),
        ("python", "3.11.9"),
        ("tunegrad", "0.1.0"),
    )
    state = (("governor", "performance"), ("load_1m", 0.25))
    with open_store(tmp_path / "old.db", mode) as store:
        first, again = store.history(key_of("kernel(fifth)"))
        assert (first, again.session) == (numbered(0, "kernel(fifth)"), "s2")
        assert (again.measurement.reference_program, again.measurement.ratio) == ("r" * 32, 0.5)
        (withdrawn,) = store.withdrawals(key_of("kernel(fourth)"), HERE)
        assert withdrawn.reason == "measured again, it was wrong: off by 0.3"
        assert store.winner(key_of("kernel(fourth)"), HERE, 1) is None
        rows = store.decisions(key_of("region\nkernel a"))
        assert [(d.choice, d.chosen, d.status) for d in rows] == [
            ("rules", True, Status.OK), ("keep_3", False, Status.CRASHED),
            ("keep_1", True, Status.OK),
        ]  # fmt: skip
        assert store.decision("cut", rows[0].key, HERE, 1) == rows[2]
        (latency,) = store.latencies("mlp", HERE)
        assert (latency.seconds, latency.gain, latency.versions, latency.state) == (
            2e-3,
            2.0,
            versions,
            state,
        )
        assert [(s.versions, s.state) for s in store.sessions()] == [((), ()), (versions, state)]


@pytest.mark.parametrize("mode", ["read", "write"])
def test_store_of_schema_4_is_read_with_facts_of_programs_and_states_of_devices(tmp_path, mode):
    build(FROZEN[3], tmp_path / "old.db")
    key = key_of("kernel(sixth)")
    with open_store(tmp_path / "old.db", mode) as store:
        (found,) = store.trials(key)
        assert found.measurement.facts == (
            ("instructions", 512.0), ("registers", 64.0), ("shared_bytes", 4096.0), ("spills", 0.0),
        )  # fmt: skip
        assert found.measurement.state == (("power_w", 312.5), ("sm_mhz", 1755.0))
        assert {t.measurement.facts for t in store.trials(KEY)} == {()}


@pytest.mark.parametrize("dump", FROZEN[:3], ids=lambda p: p.stem)
def test_trials_of_an_older_store_can_be_described(tmp_path, dump):
    build(dump, tmp_path / "old.db")
    with open_store(tmp_path / "old.db", "write") as store:
        store.describe(store.id_of(numbered(1)), (("spills", 2.0),))
    with open_store(tmp_path / "old.db") as store:
        assert store.verify() == []
        assert store.winner(KEY, HERE, 1).measurement.facts == (("spills", 2.0),)


# ---- decisions, which were trials before schema 3

DECISIONS = Path(__file__).parent / "store_decisions_2.sql"
STOOD = {
    ("images", "images\nlaunch (0, 1) aa"): ["last", "blocked16"],
    ("images", "images\nlaunch (0, 1) bb"): ["last"],
    ("cut", "region\nkernel a\nkernel b"): ["rules", "keep_1"],
    ("cut", "region\nkernel c"): ["keep_2"],
    ("cut", "region\nkernel d"): ["rules"],
    ("variant", "kernel(winograd wins)"): ["winograd2"],
    ("variant", "kernel(direct stays)"): [],
    ("variant", "kernel(only im2col)"): ["im2col"],
    ("variant", "kernel(direct again)"): ["im2col", "direct"],
    ("variant", "kernel(by speed)"): ["im2col"],
    ("variant", "kernel(withdrawn variant)"): [],
}
"""What the code of schema 2 said of each question, the last choice being what stood."""

SCHEDULES = {
    "kernel(winograd wins)": "tile(axis=m, size=3)",
    "kernel(direct stays)": "tile(axis=m, size=4)",
    "kernel(direct again)": "tile(axis=m, size=5)",
    "kernel(withdrawn variant)": "tile(axis=m, size=6)",
    "kernel(withdrawn schedule)": "tile(axis=m, size=7)",
}
"""The schedules that win in it: where a variant won over one, that which it won over."""


def check_decisions(store):
    for (kind, text), chosen in STOOD.items():
        key = key_of(text)
        assert [d.choice for d in store.decisions(key, HERE, kind) if d.chosen] == chosen
        found = store.decision(kind, key, HERE, 1)
        assert (found.choice if found else None) == (chosen[-1] if chosen else None)
    for text, actions in SCHEDULES.items():
        assert store.winner(key_of(text), HERE, 1).actions == actions
    assert {text for _, text in store.kernels()} == SCHEDULES.keys()
    assert not any(
        named_decision(t.actions) for key, _ in store.kernels() for t in store.history(key)
    )


@pytest.mark.parametrize("mode", ["read", "write"])
def test_store_of_schema_2_has_every_winner_and_every_decision(tmp_path, mode):
    build(DECISIONS, tmp_path / "old.db")
    with open_store(tmp_path / "old.db", mode) as store:
        assert store.verify() == []
        check_decisions(store)
        there = Fingerprint((("arch", "skylake"), ("device", "cpu")))
        assert store.decision("cut", key_of("region\nkernel d"), there, 1).choice == "keep_4"
        assert store.kernel_name(key_of("region\nkernel a\nkernel b")) == "plan of a, b"


def test_store_of_schema_2_keeps_the_evidence_of_its_decisions(tmp_path):
    build(DECISIONS, tmp_path / "old.db")
    with open_store(tmp_path / "old.db") as store:
        rules, won = [d for d in store.decisions(key_of("region\nkernel a\nkernel b")) if d.chosen]
        assert (rules.evidence.test, rules.evidence.incumbent_samples_s) == ("parts", ())
        assert won.evidence == Evidence("sign", 0.001, (5e-3,), (3e-3,), cold=False)
        assert (won.session, won.imported) == ("s2", False)
        assert store.decision("cut", key_of("region\nkernel c"), HERE, 1).imported
        (failed,) = [d for d in store.decisions() if d.choice == "keep_3"]
        assert (failed.status, failed.chosen) == (Status.CRASHED, False)
        assert failed.error == "in the whole model: crashed: signal 11"
        (tried,) = store.decisions(key_of("images\nlaunch (0, 1) bb"))[:1]
        assert (tried.choice, tried.chosen, tried.evidence.challenger_samples_s) == (
            "rows",
            False,
            (1.2e-3,),
        )
        (bad,) = store.decisions(key_of("kernel(withdrawn variant)"))
        assert (bad.choice, bad.chosen, bad.status) == ("winograd2", False, Status.WRONG)
        assert bad.error == "withdrawn by session s2: outputs differ by 0.3"
        assert store.withdrawals(key_of("kernel(withdrawn variant)"), HERE) == []
        assert len(store.withdrawals(key_of("kernel(withdrawn schedule)"), HERE)) == 1


def test_store_of_schema_2_that_is_damaged_gives_its_decisions_from_what_is_left(tmp_path):
    path = tmp_path / "old.db"
    build(DECISIONS, path)
    raw = sqlite3.connect(path)
    for n in range(400):
        raw.execute(
            f"INSERT INTO sessions VALUES ('more {n}', 1.0, NULL, '{'x' * 200}', 0, '{{}}', '')"
        )
    raw.commit()
    raw.close()
    path.write_bytes(path.read_bytes()[:-8192])
    with open_store(path) as store:
        assert store.verify() != []
        check_decisions(store)


def test_store_decision_that_is_damaged_before_schema_3_is_reported_and_not_used(tmp_path):
    path = tmp_path / "old.db"
    build(DECISIONS, path)
    raw = sqlite3.connect(path)
    with raw:
        raw.execute("UPDATE trials SET samples_s = '[1e-9]' WHERE actions = 'plan(keep_1)'")
    raw.close()
    with open_store(path, "write") as store:
        assert (
            store.decision("cut", key_of("region\nkernel a\nkernel b"), HERE, 1).choice == "rules"
        )
        assert any("trials row" in str(p) for p in store.verify())


def test_import_of_version_2_has_every_winner_and_every_decision_as_a_claim(tmp_path):
    path = tmp_path / "new.db"
    with DECISIONS.with_suffix(".jsonl").open("rb") as file:
        report = import_store(path, file, "old.jsonl")
    assert report.refused == ()
    with open_store(path) as store:
        check_decisions(store)
        assert all(d.imported for d in store.decisions())
        assert all(e.imported for key, _ in store.kernels() for _, e in store.promotions(key, HERE))


MIGRATE = """
import sys
from tunegrad.db import connection, open_store
from tunegrad.db.migrations import CONVERSIONS, STEPS, migrate
def wait(connection):
    print("converted", flush=True)
    sys.stdin.readline()
connection.migrate = lambda c: migrate(c, STEPS, (*CONVERSIONS, (len(STEPS), wait)))
open_store(sys.argv[1], "write")
"""


def test_store_whose_migration_was_killed_is_as_it_was(tmp_path):
    path = tmp_path / "old.db"
    build(DECISIONS, path)
    before = dump_of(path)
    child = start(MIGRATE, path)
    assert child.stdout.readline() == "converted\n"
    child.kill()
    child.wait()
    assert (version_of(path), dump_of(path)) == (2, before)
    with open_store(path, "write") as store:
        check_decisions(store)
    assert version_of(path) == SCHEMA_VERSION


def dump_of(path):
    raw = sqlite3.connect(path)
    lines = list(raw.iterdump())
    raw.close()
    return lines


def test_store_winners_view_of_schema_2_leaves_out_the_withdrawn(tmp_path):
    build(FROZEN[1], tmp_path / "old.db")
    with open_store(tmp_path / "old.db") as store:
        rows = store._select(
            "SELECT kernel_key, actions FROM winners WHERE policy LIKE 'cache=warm%' ORDER BY trial"
        )
    assert (key_of("kernel(third)"), "unroll(by=6)") in rows
    assert "unroll(by=5)" not in [actions for _, actions in rows]


def test_store_schema_of_a_new_file_is_that_of_a_migrated_one(tmp_path, old):
    open_store(old, "write").close()
    open_store(tmp_path / "new.db", "write").close()
    query = "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"
    schemas = [
        sqlite3.connect(path).execute(query).fetchall() for path in (old, tmp_path / "new.db")
    ]
    assert schemas[0] == schemas[1]


def test_store_opened_for_writing_is_migrated(old, monkeypatch):
    upgrade(monkeypatch, NEXT)
    with open_store(old, "write") as store:
        assert store.add(numbered(9)) == 6
        assert store.trials(KEY)[-1] == numbered(9)
    assert version_of(old) == SCHEMA_VERSION + 1


def test_store_opened_for_reading_is_migrated_in_memory_only(old, monkeypatch):
    upgrade(monkeypatch, NEXT)
    before = old.read_bytes()
    with open_store(old) as store:
        assert store.winner(KEY, HERE, 1) == numbered(1)
        assert store._select("SELECT note FROM trials WHERE id = 1") == [("",)]
        with pytest.raises(StoreError, match="is open for reading"):
            store.add(numbered(9))
    assert old.read_bytes() == before


def test_store_migration_that_fails_changes_nothing(old, monkeypatch):
    upgrade(monkeypatch, NEXT, ("CREATE TABLE later (x)", "INSERT INTO nowhere VALUES (1)"))
    with pytest.raises(StoreError, match="can not be opened for writing: no such table: nowhere"):
        open_store(old, "write")
    monkeypatch.undo()
    assert version_of(old) == 1
    with open_store(old, "write") as store:
        assert store.verify() == []
        assert (
            store._select("SELECT name FROM sqlite_master WHERE name IN ('extra', 'later')") == []
        )


def test_store_migrations_run_in_order_from_where_the_store_is():
    raw = sqlite3.connect(":memory:", isolation_level=None)
    steps = (("CREATE TABLE a (x)",), ("INSERT INTO a VALUES (1)",), ("UPDATE a SET x = x + 1",))
    for count in (1, 1, 2, 3, 3):
        migrate(raw, steps[:count], ())
    assert raw.execute("SELECT x FROM a").fetchall() == [(2,)]


def test_store_dump_is_of_the_kernel_that_the_tests_use():
    assert KERNEL in FROZEN[0].read_text(encoding="utf-8")
