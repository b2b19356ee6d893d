"""Old stores are taken to the newest schema in one step or not at all; every released schema is
kept here as a dump. Those from before the first release are refused.
"""

import math
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from store_trials import EVIDENCE, HERE, KERNEL, KEY, numbered, start

from tunegrad.db import (
    SCHEMA_VERSION,
    Session,
    export_store,
    key_of,
    merge_stores,
    open_store,
)
from tunegrad.db import connection as connections
from tunegrad.db.schema import FIRST_VERSION, STEPS, migrate
from tunegrad.errors import StoreError
from tunegrad.trial import Status

FROZEN = sorted(Path(__file__).parent.glob("store_schema_*.sql"))
NEXT = (
    "ALTER TABLE trials ADD COLUMN note TEXT NOT NULL DEFAULT ''",
    "CREATE TABLE extra (id INTEGER PRIMARY KEY)",
)


@pytest.fixture
def old(tmp_path):
    """A file made from the frozen dump of the first version."""
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
    monkeypatch.setattr(connections, "SCHEMA_VERSION", SCHEMA_VERSION + len(steps))
    monkeypatch.setattr(connections, "migrate", lambda connection: migrate(connection, longer))


def test_store_dumps_cover_every_released_schema():
    assert [p.stem for p in FROZEN] == [
        f"store_schema_{n}" for n in range(FIRST_VERSION, SCHEMA_VERSION + 1)
    ]


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
        "store_schema_4": (13, 4, 5),
    }
    assert (report.trials, report.promotions, report.winners) == expected[dump.stem]
    assert export_store(new).trials == export_store(old).trials == report.trials
    assert old.read_bytes() == before
    with open_store(new) as store:
        assert store.winner(KEY, HERE, 1) == numbered(1)
        assert store.stats().schema_version == SCHEMA_VERSION


@pytest.mark.parametrize("mode", ["read", "write"])
def test_store_is_read_with_its_history_decisions_and_latencies(tmp_path, mode):
    build(FROZEN[0], tmp_path / "old.db")
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
def test_store_is_read_with_facts_of_programs_and_states_of_devices(tmp_path, mode):
    build(FROZEN[0], tmp_path / "old.db")
    key = key_of("kernel(sixth)")
    with open_store(tmp_path / "old.db", mode) as store:
        (found,) = store.trials(key)
        assert found.measurement.facts == (
            ("instructions", 512.0), ("registers", 64.0), ("shared_bytes", 4096.0), ("spills", 0.0),
        )  # fmt: skip
        assert found.measurement.state == (("power_w", 312.5), ("sm_mhz", 1755.0))
        assert {t.measurement.facts for t in store.trials(KEY)} == {()}


MIGRATE = """
import sys
from tunegrad.db import open_store
from tunegrad.db import connection
from tunegrad.db.schema import SCHEMA_VERSION, STEPS, migrate
def wait():
    print("converted", flush=True)
    sys.stdin.readline()
def waiting(c):
    c.create_function("wait", 0, wait)
    migrate(c, (*STEPS, ("CREATE TABLE extra (x)", "SELECT wait()")))
connection.SCHEMA_VERSION, connection.migrate = SCHEMA_VERSION + 1, waiting
open_store(sys.argv[1], "write")
"""


def test_store_whose_migration_was_killed_is_as_it_was(old):
    before = dump_of(old)
    child = start(MIGRATE, old)
    assert child.stdout.readline() == "converted\n"
    child.kill()
    child.wait()
    assert (version_of(old), dump_of(old)) == (SCHEMA_VERSION, before)
    with open_store(old, "write") as store:
        assert store.verify() == []


def columns_of(raw, table):
    """Name, type and whether it may be NULL of each column, in order."""
    return [column[1:4] for column in raw.execute(f"PRAGMA table_info({table})")]


def dump_of(path):
    raw = sqlite3.connect(path)
    lines = list(raw.iterdump())
    raw.close()
    return lines


@pytest.mark.parametrize("mode", ["read", "write"])
@pytest.mark.parametrize("version", range(1, FIRST_VERSION))
def test_store_from_before_the_first_release_is_refused_and_left_as_it_is(old, mode, version):
    raw = sqlite3.connect(old)
    raw.execute(f"PRAGMA user_version = {version}")
    raw.close()
    before = old.read_bytes()
    told = f"schema version {version} is from before tunegrad 0.1.0, .* use another file"
    with pytest.raises(StoreError, match=told) as error:
        open_store(old, mode)
    assert "\n" not in str(error.value)
    assert old.read_bytes() == before


def test_store_winners_view_leaves_out_the_withdrawn(old):
    with open_store(old) as store:
        rows = store._db.select(
            "SELECT kernel_key, actions FROM winners WHERE policy LIKE 'cache=warm%' ORDER BY trial"
        )
    assert (key_of("kernel(third)"), "unroll(by=6)") in rows
    assert "unroll(by=5)" not in [actions for _, actions in rows]


def test_store_schema_of_a_new_file_is_that_of_the_frozen_one(tmp_path, old):
    """Tables by their columns: those of development versions were altered until they had them."""
    open_store(tmp_path / "new.db", "write").close()
    seen = []
    for path in (old, tmp_path / "new.db"):
        raw = sqlite3.connect(path)
        rows = raw.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name")
        seen.append(
            [
                (kind, name, columns_of(raw, name) if kind == "table" else sql)
                for kind, name, sql in rows.fetchall()
            ]
        )
        raw.close()
    assert seen[0] == seen[1]


def test_store_opened_for_writing_is_migrated(old, monkeypatch):
    upgrade(monkeypatch, NEXT)
    with open_store(old, "write") as store:
        count = len(store.history(KEY))
        store.add(numbered(9))
        assert len(store.history(KEY)) == count + 1
        assert store.trials(KEY)[-1] == numbered(9)
    assert version_of(old) == SCHEMA_VERSION + 1


def test_store_opened_for_reading_is_migrated_in_memory_only(old, monkeypatch):
    upgrade(monkeypatch, NEXT)
    before = old.read_bytes()
    with open_store(old) as store:
        assert store.winner(KEY, HERE, 1) == numbered(1)
        assert store._db.select("SELECT note FROM trials WHERE id = 1") == [("",)]
        with pytest.raises(StoreError, match="is open for reading"):
            store.add(numbered(9))
    assert old.read_bytes() == before


def test_store_migration_that_fails_changes_nothing(old, monkeypatch):
    upgrade(monkeypatch, NEXT, ("CREATE TABLE later (x)", "INSERT INTO nowhere VALUES (1)"))
    with pytest.raises(StoreError, match="can not be opened for writing: no such table: nowhere"):
        open_store(old, "write")
    monkeypatch.undo()
    assert version_of(old) == FIRST_VERSION
    with open_store(old, "write") as store:
        assert store.verify() == []
        assert (
            store._db.select("SELECT name FROM sqlite_master WHERE name IN ('extra', 'later')")
            == []
        )


def test_store_migrations_run_in_order_from_where_the_store_is():
    raw = sqlite3.connect(":memory:", isolation_level=None)
    steps = (("CREATE TABLE a (x)",), ("INSERT INTO a VALUES (1)",), ("UPDATE a SET x = x + 1",))
    for count in (1, 1, 2, 3, 3):
        migrate(raw, steps[:count])
    assert raw.execute("SELECT x FROM a").fetchall() == [(2,)]


def test_store_dump_is_of_the_kernel_that_the_tests_use():
    assert KERNEL in FROZEN[0].read_text(encoding="utf-8")
