"""Old stores are taken to the newest schema in one step or not at all; every released schema is kept here as a dump."""

import math
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from store_trials import EVIDENCE, HERE, KERNEL, KEY, numbered

from tunegrad.db import SCHEMA_VERSION, Session, export_store, key_of, merge_stores, open_store
from tunegrad.db import connection as connections
from tunegrad.db.migrations import STEPS, migrate
from tunegrad.errors import StoreError
from tunegrad.trial import Status

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
    wrong = replace(wrong, measurement=replace(wrong.measurement, error="off by\n'one'", max_error=math.inf))
    with open_store(path, mode) as store:
        assert store.verify() == []
        assert store.trials(KEY) == [numbered(0), numbered(1), numbered(2), wrong]
        assert store.trials(key_of("kernel(other)")) == [numbered(0, "kernel(other)")]
        assert store.winner(KEY, HERE, 1) == numbered(1)
        assert store.promotions(KEY, HERE) == [(numbered(1), EVIDENCE)]
        assert store.spent("model", HERE, "beam") == 12.5
        assert store.kernel_name(KEY) == "matmul_64"
        assert store.sessions() == [Session("s1", 2000.0, 2002.0, "tune mlp", 7, '{"threads": 2}', "0.1.0")]
        assert store.stats().schema_version == SCHEMA_VERSION


@pytest.mark.parametrize("dump", FROZEN, ids=lambda p: p.stem)
def test_store_of_a_released_schema_is_exported_and_merged_in_full(tmp_path, dump):
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    build(dump, old)
    before = old.read_bytes()
    report = merge_stores(new, [old])
    assert (report.trials, report.promotions, report.winners) == ((5, 1, 2) if dump.stem.endswith("_1") else (8, 3, 3))
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
        assert [(t.measurement.status.value, t.measurement.attempts) for t in store.trials(key)] == [
            ("crashed", 2), ("wrong", 1), ("ok", 1),
        ]  # fmt: skip
        assert store.winner(key, HERE, 1) == numbered(6, "kernel(third)")
        assert [str(w) for w in store.withdrawals(key, HERE)] == ["withdrawn by session s1: outputs differ by 0.3"]


def test_store_winners_view_of_schema_2_leaves_out_the_withdrawn(tmp_path):
    build(FROZEN[1], tmp_path / "old.db")
    with open_store(tmp_path / "old.db") as store:
        rows = store._select("SELECT kernel_key, actions FROM winners WHERE policy LIKE 'cache=warm%' ORDER BY trial")
    assert (key_of("kernel(third)"), "unroll(by=6)") in rows
    assert "unroll(by=5)" not in [actions for _, actions in rows]


def test_store_schema_of_a_new_file_is_that_of_a_migrated_one(tmp_path, old):
    open_store(old, "write").close()
    open_store(tmp_path / "new.db", "write").close()
    query = "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"
    schemas = [sqlite3.connect(path).execute(query).fetchall() for path in (old, tmp_path / "new.db")]
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
        assert store._select("SELECT name FROM sqlite_master WHERE name IN ('extra', 'later')") == []


def test_store_migrations_run_in_order_from_where_the_store_is():
    raw = sqlite3.connect(":memory:", isolation_level=None)
    steps = (("CREATE TABLE a (x)",), ("INSERT INTO a VALUES (1)",), ("UPDATE a SET x = x + 1",))
    for count in (1, 1, 2, 3, 3):
        migrate(raw, steps[:count])
    assert raw.execute("SELECT x FROM a").fetchall() == [(2,)]


def test_store_dump_is_of_the_kernel_that_the_tests_use():
    assert KERNEL in FROZEN[0].read_text(encoding="utf-8")
