"""Old stores are taken to the newest schema in one step or not at all. Those from before the first
release are refused. A store of each released schema is kept as a dump from its release on.
"""

import sqlite3

import pytest
from store_trials import EVIDENCE, HERE, KEY, numbered, start

from tunegrad.db import SCHEMA_VERSION, open_store
from tunegrad.db import connection as connections
from tunegrad.db.schema import FIRST_VERSION, STEPS, migrate
from tunegrad.errors import StoreError

NEXT = (
    "ALTER TABLE trials ADD COLUMN note TEXT NOT NULL DEFAULT ''",
    "CREATE TABLE extra (id INTEGER PRIMARY KEY)",
)


@pytest.fixture
def old(tmp_path):
    """A store of the first version."""
    path = tmp_path / "old.db"
    with open_store(path, "write") as store:
        rows = [store.add(numbered(n)) for n in range(3)]
        store.promote(rows[1], EVIDENCE)
    return path


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
