"""Whatever is wrong with a store's file or place is one StoreError of one line, and nothing is left
half-made.
"""

import contextlib
import errno
import os
import re
import sqlite3
import struct

import pytest
from store_trials import KEY, numbered

from tests.cover import each_once
from tunegrad.db import APPLICATION_ID, SCHEMA_VERSION, open_store
from tunegrad.db.connection import Mount, filesystem_of, is_network
from tunegrad.errors import StoreError


def refused(path, mode, message, **options):
    with pytest.raises(StoreError, match=message) as caught:
        open_store(path, mode, **options)
    assert "\n" not in str(caught.value)
    assert os.fspath(path) in str(caught.value)


def names(folder):
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.parametrize("mode", ["read", "write"])
def test_store_in_a_missing_directory_is_refused(tmp_path, mode):
    refused(
        tmp_path / "none" / "t.db",
        mode,
        f"directory {re.escape(str(tmp_path / 'none'))} does not exist",
    )
    assert names(tmp_path) == []


def test_store_that_does_not_exist_is_not_read(tmp_path):
    refused(tmp_path / "t.db", "read", "does not exist; `tunegrad tune --store .*` makes one")
    assert names(tmp_path) == []


@pytest.mark.parametrize("mode", ["read", "write"])
def test_store_that_is_a_directory_is_refused(tmp_path, mode):
    refused(tmp_path, mode, "is a directory; a store is one file")


def test_store_that_is_a_pipe_is_refused_without_waiting_for_it(tmp_path):
    os.mkfifo(tmp_path / "t.db")
    refused(tmp_path / "t.db", "read", "is not a regular file")


@pytest.mark.parametrize("mode", ["read", "write"])
def test_store_that_is_no_sqlite_file_is_refused_and_untouched(tmp_path, mode):
    path = tmp_path / "notes.txt"
    path.write_text("tile(axis=m, size=6)\n" * 100)
    before = path.read_bytes()
    refused(path, mode, "is not a SQLite file")
    assert path.read_bytes() == before
    assert names(tmp_path) == ["notes.txt"]


@pytest.mark.parametrize("mode", ["read", "write"])
def test_store_of_another_program_is_refused_and_untouched(tmp_path, mode):
    path = tmp_path / "optuna.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE studies (id INTEGER)")
    other.close()
    before = path.read_bytes()
    refused(path, mode, "is the SQLite file of another program")
    assert path.read_bytes() == before
    assert names(tmp_path) == ["optuna.db"]


@pytest.mark.parametrize("mode", ["read", "write"])
def test_store_of_a_newer_schema_is_refused_and_untouched(tmp_path, mode):
    path = tmp_path / "t.db"
    newer = sqlite3.connect(path)
    newer.executescript(
        f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = "
        f"{SCHEMA_VERSION + 1}; CREATE TABLE t (x);"
    )
    newer.close()
    before = path.read_bytes()
    refused(
        path,
        mode,
        rf"schema version {SCHEMA_VERSION + 1} is newer than {SCHEMA_VERSION}, .*upgrade",
    )
    assert path.read_bytes() == before


def test_store_that_is_an_empty_file_is_made_by_writing_only(tmp_path):
    path = tmp_path / "t.db"
    path.touch()
    refused(path, "read", "is empty, not a store")
    with open_store(path, "write") as store:
        store.add(numbered(1))
    with open_store(path) as store:
        assert store.trials(KEY) == [numbered(1)]


def test_store_whose_creation_was_killed_before_its_schema_is_made_again(tmp_path):
    path = tmp_path / "t.db"
    begun = sqlite3.connect(path)
    begun.execute("PRAGMA journal_mode = WAL")
    begun.close()
    assert path.stat().st_size > 0
    refused(path, "read", "is an empty SQLite file, not a store")
    with open_store(path, "write") as store:
        assert store.add(numbered(1)) == 1


def test_store_whose_creation_fails_leaves_nothing_behind(tmp_path, monkeypatch):
    def fail(connection, steps=()):
        connection.execute("CREATE TABLE half (made)")
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("tunegrad.db.connection.migrate", fail)
    refused(tmp_path / "t.db", "write", "can not be opened for writing: database or disk is full")
    assert names(tmp_path) == []


@pytest.mark.parametrize("mode", ["append", "w", ""])
def test_store_mode_is_read_or_write(tmp_path, mode):
    refused(tmp_path / "t.db", mode, f"mode '{mode}' is neither 'read' nor 'write'")


def test_store_path_with_a_null_character_is_refused(tmp_path):
    with pytest.raises(StoreError, match="no usable path"):
        open_store(f"{tmp_path}/a\0b", "write")


@pytest.mark.parametrize(
    ("code", "words"), [(errno.EROFS, "Read-only file system"), (errno.EACCES, "Permission denied")]
)
def test_store_in_a_read_only_place_is_refused_for_writing(tmp_path, monkeypatch, code, words):
    def refuse(path, *_):
        raise OSError(code, os.strerror(code), path)

    monkeypatch.setattr("tunegrad.db.database.os.open", refuse)
    refused(tmp_path / "t.db", "write", f"can not be written: .*: {words}")
    assert names(tmp_path) == []


def test_store_whose_file_may_not_be_written_is_refused_for_writing(tmp_path):
    path = tmp_path / "t.db"
    open_store(path, "write").close()
    path.chmod(0o444)
    if os.access(path, os.W_OK):
        pytest.skip("this user may write every file")
    refused(path, "write", "the file can not be written by this user")
    open_store(path).close()


def test_store_whose_side_file_can_not_be_made_is_refused_for_writing(tmp_path):
    (tmp_path / "t.db.lock").mkdir()
    refused(tmp_path / "t.db", "write", r"can not be written: .*t\.db\.lock: Is a directory")
    assert names(tmp_path) == ["t.db.lock"]


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "smb3", "fuse.sshfs"])
def test_store_on_a_network_filesystem_is_read_but_not_written(tmp_path, kind):
    folder = tmp_path / "far away"
    folder.mkdir()
    open_store(folder / "t.db", "write").close()
    mounts = tmp_path / "mounts"
    point = str(folder).replace(" ", r"\040")
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/x {point} {kind} rw 0 0\n")
    refused(
        folder / "t.db", "write", rf"is a network filesystem \({re.escape(kind)}\)", mounts=mounts
    )
    assert names(folder) == ["t.db"]
    with open_store(folder / "t.db", "read", mounts=mounts) as store:
        assert store.stats().trials == 0


def test_store_with_two_names_is_read_but_not_written(tmp_path):
    open_store(tmp_path / "t.db", "write").close()
    (tmp_path / "other.db").hardlink_to(tmp_path / "t.db")
    refused(tmp_path / "other.db", "write", r"the file has 2 names \(hard links\)")
    open_store(tmp_path / "other.db").close()


def test_store_that_is_a_mount_itself_is_read_but_not_written(tmp_path):
    path = tmp_path / "t.db"
    open_store(path, "write").close()
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\n/dev/vda {path} ext4 rw 0 0\n")
    refused(path, "write", "the file itself is mounted there", mounts=mounts)
    open_store(path, mounts=mounts).close()


HIDDEN = "CREATE /**/ VIRTUAL TABLE w USING fts5(a)"


@pytest.mark.parametrize("mode", ["read", "write"])
@pytest.mark.parametrize(
    ("kind", "statements"),
    [
        (
            "view",
            (
                "ALTER TABLE kernels RENAME TO k2",
                (
                    "CREATE VIEW kernels AS WITH RECURSIVE r(x) AS "
                    "(SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT k2.* FROM k2, r"
                ),
            ),
        ),
        ("trigger", ("CREATE TRIGGER t AFTER INSERT ON kernels BEGIN DELETE FROM trials; END",)),
        ("table", ("CREATE VIRTUAL TABLE words USING fts5(a)",)),
        ("table", ("CREATE TABLE slow (a, b AS (instr(zeroblob(a), zeroblob(a / 2) || 'x')))",)),
        ("table", ("CREATE TABLE slow (a CHECK (a > instr(zeroblob(a), 'x')))",)),
        ("table", ("CREATE TABLE slow (a DEFAULT (instr(zeroblob(99), 'x')))",)),
        ("index", ("CREATE INDEX slow ON trials (instr(zeroblob(created_s), 'x'))",)),
        ("index", ("CREATE INDEX slow ON trials (session) WHERE instr(session, 'x')",)),
        (
            "table",
            (
                "PRAGMA writable_schema = ON",
                "CREATE TABLE w (a)",
                f"UPDATE sqlite_master SET sql = '{HIDDEN}' WHERE name = 'w'",
            ),
        ),
    ],
)
def test_store_with_code_in_its_schema_is_refused(tmp_path, mode, kind, statements):
    path = tmp_path / "t.db"
    open_store(path, "write").close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    refused(path, mode, f"{kind} '.*' does not belong to schema {SCHEMA_VERSION} of a store")


@pytest.mark.parametrize("mode", ["read", "write"])
@pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm"])
def test_store_beside_a_pipe_is_refused_without_waiting_for_it(tmp_path, mode, suffix):
    path = tmp_path / "t.db"
    open_store(path, "write").close()
    os.mkfifo(f"{path}{suffix}")
    refused(path, mode, f"t.db{suffix} beside it is not a regular file")


def test_store_whose_journal_names_another_file_leaves_that_alone(tmp_path):
    """SQLite removes it, as the journal of a transaction over several files that has ended."""
    path, other = tmp_path / "t.db", tmp_path / "other"
    other.write_bytes(b"precious\0")
    open_store(path, "write").close()
    journal = path.with_name("t.db-journal")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN")
        for i in range(500):
            connection.execute("INSERT INTO kernels VALUES (?, ?, ?, '')", (i, f"{i}", "x" * 900))
        held, image = journal.read_bytes(), path.read_bytes()
    name = bytes(other)
    last = (
        struct.pack(">I", (1 << 30) // 4096 + 1) + name + struct.pack(">II", len(name), sum(name))
    )
    path.write_bytes(image)
    journal.write_bytes(held + last + bytes.fromhex("d9d505f920a163d7"))
    for mode in ("read", "write"):
        refused(path, mode, "t.db-journal names a file outside of the store")
    assert other.read_bytes() == b"precious\0"


def test_store_does_not_read_a_value_of_endless_length(tmp_path):
    path = tmp_path / "t.db"
    open_store(path, "write").close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO kernels VALUES (1, 'k', hex(zeroblob(20000000)), '')")
        connection.commit()
    with open_store(path) as store:
        (problem,) = store.verify()
    assert "string or blob too big" in str(problem)


def test_store_keeps_an_index_and_a_table_of_its_user(tmp_path):
    path = tmp_path / "t.db"
    open_store(path, "write").close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE notes (text)")
        connection.execute("CREATE INDEX mine ON trials (created_s)")
        connection.execute("ANALYZE")
        connection.commit()
    for mode in ("read", "write"):
        open_store(path, mode).close()


@pytest.mark.parametrize(
    ("statement", "offset"),
    each_once([b"CREATE TABLE", b"CREATE INDEX", b"CREATE VIEW"], [7, 14, 16, 30]),
)
def test_store_with_a_damaged_byte_in_its_schema_is_one_error(tmp_path, statement, offset):
    path = tmp_path / "t.db"
    open_store(path, "write").close()
    data = path.read_bytes()
    for start in (m.start() for m in re.finditer(re.escape(statement), data)):
        damaged = bytearray(data)
        damaged[start + offset] = 0xBE
        path.write_bytes(damaged)
        with contextlib.suppress(StoreError), open_store(path) as store:
            store.kernels()
        with contextlib.suppress(StoreError):
            open_store(path, "write").close()


def test_store_filesystem_is_the_innermost_and_last_mount(tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "a / ext4 rw\nb /data nfs rw\nc /data xfs rw\nd /data/far nfs rw\ne /dat cifs rw\nbroken\n"
    )
    found = {
        p: filesystem_of(tmp_path.__class__(p), mounts)[1]
        for p in ("/x", "/data/t.db", "/data/far/t", "/data2/t")
    }
    assert found == {"/x": "ext4", "/data/t.db": "xfs", "/data/far/t": "nfs", "/data2/t": "ext4"}


@pytest.mark.parametrize(
    ("point", "kind", "source", "network"),
    [
        ("/mnt/c", "9p", "C:", True),
        ("/", "9p", "none", False),  # a sandbox's own root
        ("/data", "fuse.newfs", "host.example:/export", True),
        ("/data", "newfs", "//server/share", True),
        ("/data", "newfs", "[fe80::1]:/export", True),
        ("/", "overlay", "overlay", False),
        ("/data", "zfs", "tank/data", False),
        ("/data", "fuse.ntfs-3g", "/dev/sda1", False),
    ],
)
def test_store_network_filesystem_is_known_by_type_or_by_its_source(point, kind, source, network):
    assert is_network(Mount(point, kind, source)) is network


def test_store_filesystem_is_unknown_without_a_mount_table(tmp_path):
    assert filesystem_of(tmp_path, tmp_path / "none") == Mount("", "", "")
    with open_store(tmp_path / "t.db", "write", mounts=tmp_path / "none") as store:
        assert store.add(numbered(1)) == 1


def test_store_that_can_not_be_written_any_more_keeps_what_it_has(tmp_path):
    with open_store(tmp_path / "t.db", "write") as store:
        store.add(numbered(1))
        store._db.connection.execute("PRAGMA query_only = ON")
        with pytest.raises(StoreError, match=r"can not be written: .*; nothing was changed"):
            store.add(numbered(2))
        store._db.connection.execute("PRAGMA query_only = OFF")
        store.add(numbered(3))
        assert [t.actions for t in store.trials(KEY)] == ["unroll(by=1)", "unroll(by=3)"]
