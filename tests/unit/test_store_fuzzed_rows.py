"""Rows of a store file overwritten at random: each is reported, none is used, the sound ones are
saved.
"""

from __future__ import annotations

import random
import sqlite3

import pytest
from store_exports import decision, latency
from store_trials import EVIDENCE, HERE, KERNEL, KEY, numbered

from tunegrad.db import Contents, open_store, read_contents, salvage_store
from tunegrad.db.contents import Promotion, identity
from tunegrad.db.rows import DECISIONS, LATENCIES, TRIALS

# No foreign keys: a row that names another row of the same kind is another trial, not a damaged
# one.
COLUMNS = tuple(name for name in TRIALS.names if name != "session")
JUNK: tuple[object, ...] = (
    b"\x80\x04\x95", b"", "", "null", "[[]]", "[1e999]", "[NaN]", -1, 2**62, 1e308, -1e-9,
    "\ud800x", "x" * 10_000,
    "'; DROP TABLE trials; --", "__import__('os').abort()", "[" * 5000, 0.5, "ok\x00",
)  # fmt: skip


def fuzz(path, rows: int, damaged: int, seed: int) -> set[int]:
    """A store of ``rows`` trials with junk in ``damaged`` of them; their numbers."""
    trials = tuple(numbered(n) for n in range(rows))
    with open_store(path, "write") as store:
        store.replace_contents(
            Contents(trials=trials, promotions=(Promotion(identity(trials[0]), EVIDENCE, 1.0),))
        )
    draw = random.Random(seed)
    hit = set(draw.sample(range(1, rows), damaged))
    raw = sqlite3.connect(path)
    with raw:
        for n in sorted(hit):
            while True:
                column, junk = draw.choice(COLUMNS), draw.choice(JUNK)
                value = (
                    junk.encode("utf-8", "surrogatepass")
                    if isinstance(junk, str) and "\ud800" in junk
                    else junk
                )
                update = f"UPDATE trials SET {column} = ? WHERE id = ? AND {column} IS NOT ?"
                try:
                    if raw.execute(update, (value, n + 1, value)).rowcount:
                        break
                except sqlite3.IntegrityError:  # the same trial twice
                    continue
    raw.close()
    return hit


def check(tmp_path, rows: int, damaged: int, seed: int) -> None:
    path = tmp_path / "t.db"
    hit = fuzz(path, rows, damaged, seed)
    sound = [numbered(n) for n in range(rows) if n not in hit]
    contents, problems = read_contents(path)
    assert {p.row - 1 for p in problems if p.table == "trials"} == hit
    assert all("\n" not in str(p) for p in problems)
    assert list(contents.trials) == sound
    with open_store(path) as store:
        assert store.trials(KEY) == sound
        assert store.winner(KEY, HERE, 1) == numbered(0)
    report = salvage_store(path, tmp_path / "new.db")
    assert (report.trials, report.promotions) == (rows - damaged, 1)
    with open_store(tmp_path / "new.db") as store:
        assert store.verify() == []
        assert store.trials(KEY) == sound
        assert store.winner(KEY, HERE, 1).kernel_text == KERNEL


def fuzz_table(path, table: str, columns: tuple[str, ...], rows: int, seed: int) -> set[int]:
    """Junk in a column of about half of the rows of a table; their ids."""
    draw = random.Random(seed)
    hit = set(draw.sample(range(1, rows + 1), rows // 2))
    raw = sqlite3.connect(path)
    with raw:
        for row in sorted(hit):
            while True:
                column, junk = draw.choice(columns), draw.choice(JUNK)
                value = (
                    junk.encode("utf-8", "surrogatepass")
                    if isinstance(junk, str) and "\ud800" in junk
                    else junk
                )
                update = f"UPDATE {table} SET {column} = ? WHERE id = ? AND {column} IS NOT ?"
                if raw.execute(update, (value, row, value)).rowcount:
                    break
    raw.close()
    return hit


@pytest.mark.parametrize("seed", range(3))
def test_store_reports_fuzzed_decisions_and_latencies_and_salvages_the_others(tmp_path, seed):
    path = tmp_path / "t.db"
    decisions = [decision(f"choice_{n}", at=float(n)) for n in range(40)]
    latencies = [latency(1e-3 * (n + 1), at=float(n)) for n in range(40)]
    with open_store(path, "write") as store:
        store.replace_contents(Contents(decisions=tuple(decisions), latencies=tuple(latencies)))
    named = {
        "session"
    }  # of another session: an orphan, which is reported, or a row of that session
    lost = [
        fuzz_table(path, table, tuple(c for c in columns if c not in named), 40, seed)
        for table, columns in (("decisions", DECISIONS.names), ("latencies", LATENCIES.names))
    ]
    contents, problems = read_contents(path)
    assert [{p.row for p in problems if p.table == t} for t in ("decisions", "latencies")] == lost
    assert all("\n" not in str(p) for p in problems)
    sound = [d for n, d in enumerate(decisions, 1) if n not in lost[0]]
    timed = [x for n, x in enumerate(latencies, 1) if n not in lost[1]]
    assert (list(contents.decisions), list(contents.latencies)) == (sound, timed)
    with open_store(path) as store:
        assert (store.decisions(KEY, HERE), store.latencies("mlp")) == (sound, timed)
        assert store.decision("variant", KEY, HERE, 1) == sound[-1]
    salvage_store(path, tmp_path / "new.db")
    with open_store(tmp_path / "new.db") as store:
        assert store.verify() == []
        assert (store.decisions(), store.latencies()) == (sound, timed)


@pytest.mark.parametrize("seed", range(3))
def test_store_reports_fuzzed_rows_and_salvages_the_others(tmp_path, seed):
    check(tmp_path, 120, 60, seed)


@pytest.mark.slow
def test_store_reports_ten_thousand_fuzzed_rows_and_salvages_the_others(tmp_path):
    check(tmp_path, 12_000, 10_000, 99)
