"""A writer killed with SIGKILL has lost nothing that ``add`` returned, and the next writer goes on
at once.
"""

import random
import signal

from store_trials import KEY, numbered, start

from tunegrad.db import open_store

WRITE = """
import sys
from store_trials import numbered
from tunegrad.db import open_store
with open_store(sys.argv[1], "write") as store:
    for n in range(int(sys.argv[2]), 100_000):
        print(store.add(numbered(n)), n, flush=True)
"""


def test_store_has_every_trial_that_was_committed_before_a_sigkill_exactly_once(tmp_path):
    draw = random.Random(20)
    path = tmp_path / "t.db"
    promised: dict[int, int] = {}
    for _ in range(5):
        child = start(WRITE, path, len(promised))
        try:
            for _ in range(draw.randrange(1, 150)):
                row, n = child.stdout.readline().split()
                promised[int(row)] = int(n)
        finally:
            child.send_signal(signal.SIGKILL)
            # Not communicate(): it leaves out what the reads above have taken into the stream's
            # buffer.
            rest, errors = child.stdout.read(), child.stderr.read()
            child.wait()
        # A line cut short by the kill is no promise.
        for line in rest.splitlines(keepends=True):
            if line.endswith("\n"):
                row, n = line.split()
                promised[int(row)] = int(n)
        assert errors == ""
        assert child.returncode == -signal.SIGKILL
        with open_store(path) as store:
            assert [store.id_of(numbered(n)) for n in promised.values()] == list(promised)
        with open_store(path, "write") as store:
            trials = store.trials(KEY)
            assert store.verify() == []
            assert len(trials) == len({t.actions for t in trials}) == store.stats().trials
            assert len(promised) <= len(trials) <= len(promised) + 1
            # One more may be committed than was promised; the search that goes on finds it there.
            for extra in trials[len(promised) :]:
                promised[store.id_of(extra)] = int(extra.created_s) - 1000


def test_store_killed_between_begin_and_commit_has_all_of_the_trial_or_nothing(tmp_path):
    child = start(
        """
import os, sys
from store_trials import numbered
from tunegrad.db import open_store
def trace(sql):
    if sql == "COMMIT":
        os.kill(os.getpid(), 9)
store = open_store(sys.argv[1], "write", trace=trace)
assert store._db.connection.execute("PRAGMA synchronous").fetchone() == (2,), "FULL"
store.add(numbered(1))
""",
        tmp_path / "t.db",
    )
    assert child.wait() == -signal.SIGKILL
    child.communicate()
    with open_store(tmp_path / "t.db", "write") as store:
        stats = store.stats()
        assert (stats.trials, stats.kernels, stats.sessions) == (0, 0, 0)
        assert store.verify() == []
        assert store.add(numbered(1)) == 1
