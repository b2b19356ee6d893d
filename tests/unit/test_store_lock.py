"""One process writes a store, a killed one blocks nobody, and a forked one can do no harm."""

import os
import signal

import pytest
from store_trials import KEY, numbered, start

from tunegrad.db import open_store
from tunegrad.errors import StoreError

HOLD = """
import sys
from tunegrad.db import open_store
store = open_store(sys.argv[1], "write")
print("open", flush=True)
sys.stdin.read()
"""


def fork(work):
    """Run ``work`` in a forked child; its exit status, 1 where it raised."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = int(work() or 0)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_store_second_writer_is_told_which_process_has_it(tmp_path):
    holder = start(HOLD, tmp_path / "t.db")
    try:
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(
            StoreError,
            match=rf"already open for writing by process {holder.pid} \(lock .*t\.db\.lock\)",
        ):
            open_store(tmp_path / "t.db", "write")
        open_store(tmp_path / "t.db", "read").close()
    finally:
        holder.communicate("")
    open_store(tmp_path / "t.db", "write").close()


def test_store_second_writer_in_the_same_process_is_refused(tmp_path):
    path = tmp_path / "t.db"
    (tmp_path / "link.db").symlink_to(path)
    with open_store(path, "write") as store:
        for name in ("t.db", "link.db"):
            with pytest.raises(StoreError, match=rf"by this process \({os.getpid()}\)"):
                open_store(tmp_path / name, "write")
        store.add(numbered(1))
        # The failed attempts must not have dropped the lock for others.
        rival = start("import sys, tunegrad.db as db; db.open_store(sys.argv[1], 'write')", path)
        assert f"by process {os.getpid()}" in rival.communicate()[1]
    open_store(path, "write").close()


def test_store_lock_of_a_killed_process_is_free_at_once(tmp_path):
    holder = start(HOLD, tmp_path / "t.db")
    assert holder.stdout.readline() == "open\n"
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert (tmp_path / "t.db.lock").exists()
    with open_store(tmp_path / "t.db", "write") as store:
        assert store.add(numbered(1)) == 1


def test_store_lock_does_not_outlive_its_process_in_a_forked_worker(tmp_path):
    holder = start(
        """
import os, sys
from tunegrad.db import open_store
store = open_store(sys.argv[1], "write")
if os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
print("open", flush=True)
os.kill(os.getpid(), 9)
""",
        tmp_path / "t.db",
    )
    assert holder.stdout.readline() == "open\n"
    holder.wait()
    with open_store(tmp_path / "t.db", "write") as store:
        assert store.add(numbered(1)) == 1
    holder.communicate("")


def test_store_in_a_forked_worker_refuses_use_and_leaves_the_owner_alone(tmp_path):
    with open_store(tmp_path / "t.db", "write") as store:
        store.add(numbered(1))

        def use():
            try:
                store.add(numbered(2))
            except StoreError as error:
                store.close()
                return 7 if "workers return rows to the owner" in str(error) else 8
            return 9

        assert fork(use) == 7
        store.add(numbered(3))
        assert [t.actions for t in store.trials(KEY)] == ["unroll(by=1)", "unroll(by=3)"]
        with pytest.raises(StoreError, match="already open for writing"):
            open_store(tmp_path / "t.db", "write")


def test_store_that_could_not_be_opened_gives_its_lock_back(tmp_path):
    path = tmp_path / "t.db"
    path.write_bytes(b"no database" * 100)
    for _ in range(2):
        with pytest.raises(StoreError, match="is not a SQLite file"):
            open_store(path, "write")
    path.unlink()
    open_store(path, "write").close()


def test_store_closed_cleanly_leaves_one_file(tmp_path):
    with open_store(tmp_path / "t.db", "write") as store:
        store.add(numbered(1))
        assert {p.name for p in tmp_path.iterdir()} >= {"t.db", "t.db-wal", "t.db.lock"}
    assert [p.name for p in tmp_path.iterdir()] == ["t.db"]
