"""Rows of a store file overwritten at random: each is reported, none is used, the sound ones are saved."""

from __future__ import annotations

import random
import sqlite3

import pytest
from store_trials import EVIDENCE, HERE, KERNEL, KEY, numbered

from tunegrad.db import Contents, open_store, read_contents, salvage_store
from tunegrad.db.contents import Promotion
from tunegrad.db.identity import identity
from tunegrad.db.rows import TRIAL_VALUES

# No foreign keys: a row that names another row of the same kind is another trial, not a damaged one.
COLUMNS = tuple(name for name in TRIAL_VALUES if name != "session")
JUNK: tuple[object, ...] = (
    b"\x80\x04\x95", b"", "", "null", "[[]]", "[1e999]", "[NaN]", -1, 2**62, 1e308, -1e-9, "\ud800x", "x" * 10_000,
    "'; DROP TABLE trials; --", "__import__('os').abort()", "[" * 5000, 0.5, "ok\x00",
)  # fmt: skip


def fuzz(path, rows: int, damaged: int, seed: int) -> set[int]:
    """A store of ``rows`` trials with junk in ``damaged`` of them; their numbers."""
    trials = tuple(numbered(n) for n in range(rows))
    with open_store(path, "write") as store:
        store._connection.execute("PRAGMA synchronous = OFF")
        store.replace_contents(Contents(trials=trials, promotions=(Promotion(identity(trials[0]), EVIDENCE, 1.0),)))
    draw = random.Random(seed)
    hit = set(draw.sample(range(1, rows), damaged))
    raw = sqlite3.connect(path)
    with raw:
        for n in sorted(hit):
            while True:
                column, junk = draw.choice(COLUMNS), draw.choice(JUNK)
                value = junk.encode("utf-8", "surrogatepass") if isinstance(junk, str) and "\ud800" in junk else junk
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


@pytest.mark.parametrize("seed", range(3))
def test_store_reports_fuzzed_rows_and_salvages_the_others(tmp_path, seed):
    check(tmp_path, 120, 60, seed)


@pytest.mark.slow
def test_store_reports_ten_thousand_fuzzed_rows_and_salvages_the_others(tmp_path):
    check(tmp_path, 12_000, 10_000, 99)
