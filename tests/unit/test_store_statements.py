"""What the store's operations cost, counted in SQL statements and in whole tables read; never in
seconds.
"""

from dataclasses import replace

import pytest
from store_exports import decision, latency
from store_trials import EVIDENCE, HERE, KERNEL, KEY, numbered

from tunegrad.db import Hit, Miss, Near, open_store
from tunegrad.db.sql import BY_SPEED, PLACES, PROMOTED, SAME, SELECT, WITHDRAWALS
from tunegrad.trial import Fingerprint

THERE = Fingerprint((("arch", "skylake"), ("device", "cpu")))
BIND = {
    "kernel": KEY,
    "fingerprint": "[]",
    "policy": "",
    "actions": "",
    "space": 1,
}


@pytest.fixture
def traced(tmp_path):
    """A store of 200 trials of four kernels, and the list of statements it runs."""
    seen = []
    with open_store(tmp_path / "t.db", "write", trace=seen.append) as store:
        for n in range(200):
            store.add(numbered(n, KERNEL if n % 4 == 0 else f"kernel({n % 4})"))
        seen.clear()
        yield store, seen


def test_store_add_is_one_transaction_of_one_statement(traced):
    store, seen = traced
    store.add(numbered(1000))
    assert [s.split()[0] for s in seen] == ["BEGIN", "INSERT", "COMMIT"]


def test_store_add_of_what_was_measured_before_reads_that_and_adds_a_row(traced):
    store, seen = traced
    store.add(replace(numbered(0), created_s=1.0))
    assert [s.split()[0] for s in seen] == ["BEGIN", "INSERT", "SELECT", "INSERT", "COMMIT"]


def test_store_decision_is_one_transaction_of_one_statement_and_read_by_one(traced):
    store, seen = traced
    given = decision("winograd2")
    store.record_decision(given)
    assert [s.split()[0] for s in seen] == ["BEGIN", "INSERT", "COMMIT"]
    seen.clear()
    assert store.decision("variant", KEY, HERE, 1) == given
    assert len(seen) == 1
    assert reads_a_whole_table(store, seen[0]) == []


def test_store_latency_is_one_transaction_of_one_statement_and_read_by_one(traced):
    store, seen = traced
    store.record_latency(latency())
    assert [s.split()[0] for s in seen] == ["BEGIN", "INSERT", "COMMIT"]
    seen.clear()
    assert store.latencies("mlp", HERE, since_s=1.0) == [latency()]
    assert len(seen) == 1
    assert reads_a_whole_table(store, seen[0]) == []


def test_store_lookup_of_a_winner_that_was_measured_again_is_one_statement_more(traced):
    store, seen = traced
    again = replace(numbered(8), created_s=9000.0)
    store.promote(store.id_of(numbered(8)), EVIDENCE)
    store.add(again)
    seen.clear()
    assert store.lookup(KEY, HERE, 1) == Hit(again)
    assert len(seen) == 2


def test_store_lookup_that_hits_the_fastest_is_three_statements(traced):
    store, seen = traced
    assert isinstance(store.lookup(KEY, HERE, 1), Hit)
    assert len(seen) == 3


def test_store_lookup_that_hits_a_promotion_is_one_statement(traced):
    store, seen = traced
    store.promote(store.id_of(numbered(8)), EVIDENCE)
    seen.clear()
    assert store.lookup(KEY, HERE, 1) == Hit(numbered(8))
    assert len(seen) == 1


def test_store_lookup_of_an_unknown_kernel_is_three_statements(traced):
    store, seen = traced
    assert isinstance(store.lookup("0" * 32, HERE, 1), Miss)
    assert len(seen) == 3


@pytest.mark.parametrize(("place", "kind"), [((THERE, 1), Miss), ((HERE, 2), Near)])
def test_store_lookup_that_misses_adds_withdrawals_and_one_winner_for_each_place(
    traced, place, kind
):
    store, seen = traced
    assert isinstance(store.lookup(KEY, *place), kind)
    assert len(seen) == 2 + 1 + 1 + 3 + 1


def test_store_trials_is_one_statement_however_many_there_are(traced):
    store, seen = traced
    assert len(store.trials(KEY, HERE)) == 50
    assert len(seen) == 1


@pytest.mark.parametrize(
    "sql",
    [
        pytest.param(BY_SPEED, id="fastest"),
        pytest.param(f"{PROMOTED} AND t.space_version = :space ORDER BY r.id DESC", id="promoted"),
        pytest.param(PLACES, id="places"),
        pytest.param(f"{SELECT} WHERE {SAME}", id="same"),
        pytest.param(WITHDRAWALS, id="withdrawn"),
    ],
)
def test_store_lookups_never_read_a_whole_table(traced, sql):
    store, _ = traced
    needed = {name: value for name, value in BIND.items() if f":{name}" in sql}
    assert reads_a_whole_table(store, sql, needed) == []


def reads_a_whole_table(store, sql, values=()):
    """The steps of a statement that do."""
    plan = [row[3] for row in store._db.select(f"EXPLAIN QUERY PLAN {sql}", values)]
    assert any("USING" in line for line in plan)
    read = [line for line in plan if line.startswith("SCAN") and "subquery" not in line.lower()]
    # A window function's rows come from a co-routine, which is read in full: it is the filtered
    # rows.
    return [line for line in read if "(" not in line]
