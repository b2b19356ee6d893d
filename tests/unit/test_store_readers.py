"""Readers need no lock, see what is committed, write nothing, and work where nothing can be
written.
"""

import shutil
import signal

import pytest
from store_trials import HERE, KEY, numbered, start

from tunegrad.db import connection as connections
from tunegrad.db import open_store
from tunegrad.errors import StoreError

KILLED = """
import os, sys
from store_trials import numbered
from tunegrad.db import open_store
store = open_store(sys.argv[1], "write")
for n in range(int(sys.argv[2])):
    store.add(numbered(n))
if sys.argv[3] == "merge":
    store._db.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
os.kill(os.getpid(), 9)
"""


def killed_store(path, count, merge=""):
    child = start(KILLED, path, count, merge)
    child.communicate()
    assert child.returncode == -signal.SIGKILL


def test_store_reader_sees_each_commit_of_a_writer_beside_it(tmp_path):
    path = tmp_path / "t.db"
    open_store(path, "write").close()
    with open_store(path) as early, open_store(path, "write") as writer, open_store(path) as late:
        for n in range(3):
            writer.add(numbered(n))
            for reader in (early, late):
                assert len(reader.trials(KEY)) == n + 1


def test_store_writer_comes_and_goes_beside_an_open_reader(tmp_path):
    path = tmp_path / "t.db"
    open_store(path, "write").close()
    with open_store(path) as reader:
        for n in range(3):
            with open_store(path, "write") as writer:
                writer.add(numbered(n))
            assert len(reader.trials(KEY)) == n + 1
    with open_store(path) as reader:
        assert len(reader.trials(KEY)) == 3


def test_store_read_leaves_the_file_as_it_was_and_nothing_beside_it(tmp_path):
    path = tmp_path / "t.db"
    with open_store(path, "write") as store:
        store.add(numbered(1))
    before = path.read_bytes()
    with open_store(path) as store:
        store.lookup(KEY, HERE, 1)
        store.verify()
        store.stats()
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["t.db"]


def test_store_of_a_killed_writer_is_read_before_anyone_writes_again(tmp_path):
    killed_store(tmp_path / "t.db", 4)
    with open_store(tmp_path / "t.db") as store:
        assert [t.actions for t in store.trials(KEY)] == [f"unroll(by={n})" for n in range(4)]


def forbid_index(path):
    """Make SQLite unable to create the log's index, as in a directory that can not be written, for
    any user.
    """
    path.with_name(path.name + "-shm").symlink_to("nowhere")


def test_store_of_a_killed_writer_is_read_where_nothing_can_be_written(tmp_path, monkeypatch):
    copied = []
    copy_of_file = connections._copy_of_file
    killed_store(tmp_path / "t.db", 4, "merge")
    moved = tmp_path / "image" / "t.db"
    moved.parent.mkdir()
    shutil.copy(tmp_path / "t.db", moved)
    forbid_index(moved)
    before = moved.read_bytes()
    monkeypatch.setattr(
        connections, "_copy_of_file", lambda path: copied.append(path) or copy_of_file(path)
    )
    with open_store(moved) as store:
        assert copied == [moved]
        assert len(store.trials(KEY)) == 4
        assert store.winner(KEY, HERE, 1) == numbered(0)
        assert store.verify() == []
        with pytest.raises(StoreError, match="is open for reading"):
            store.add(numbered(9))
    assert moved.read_bytes() == before


def test_store_with_an_unmerged_log_is_refused_where_nothing_can_be_written(tmp_path):
    killed_store(tmp_path / "t.db", 4)
    moved = tmp_path / "image" / "t.db"
    moved.parent.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(f"{tmp_path / 't.db'}{suffix}", f"{moved}{suffix}")
    forbid_index(moved)
    with pytest.raises(StoreError, match=r"its log t\.db-wal is not merged yet"):
        open_store(moved)


def test_store_is_shared_by_the_threads_of_its_process(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    with open_store(tmp_path / "t.db", "write") as store, ThreadPoolExecutor(4) as pool:
        ids = list(pool.map(lambda n: store.add(numbered(n)), range(40)))
        assert sorted(ids) == list(range(1, 41))
        assert store.verify() == []
