"""Merging is idempotent and does not mind the order; importing, pruning and exporting keep what
they promise.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_worlds import dump, stores

from tunegrad.db import Contents, Decision, PruneRules, key_of, open_store, read_contents
from tunegrad.db.contents import decided, identity, is_imported, place_of, winners
from tunegrad.db.exchange.export import export_lines
from tunegrad.db.exchange.importing import read_export
from tunegrad.db.exchange.merge import merge_contents, with_imported
from tunegrad.db.exchange.stores import prune_contents

EXAMPLES = settings(max_examples=25)
FEW = settings(max_examples=12)
NOTHING = Contents()


def read_back(contents: Contents) -> Contents:
    """What a stranger reads of an exported store."""
    reading = read_export(io.BytesIO("\n".join(export_lines(contents)).encode()), "x.jsonl")
    assert (reading.refusals, reading.warnings) == ((), ())
    return reading.contents


def imported(contents: Contents) -> Contents:
    return with_imported(NOTHING, read_back(contents))


def actions_of(contents: Contents) -> dict[object, str]:
    return {place: w.trial.actions for place, w in winners(contents).items()}


def stood(contents: Contents, *, own: bool = False) -> dict[object, str]:
    """What stands of each question; only what was decided here, where asked."""
    asked: dict[object, list[Decision]] = {}
    for d in contents.decisions:
        asked.setdefault((d.kind, d.key, d.fingerprint), []).append(d)
    found = {at: decided(rows) for at, rows in asked.items()}
    return {at: d.choice for at, d in found.items() if d is not None and not (own and d.imported)}


@EXAMPLES
@given(st.lists(stores(), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_merge_does_not_mind_the_order_of_the_stores(found, draw):
    shuffled = draw.sample(found, len(found))
    assert dump(merge_contents(shuffled)) == dump(merge_contents(found))


@EXAMPLES
@given(st.lists(stores(), min_size=1, max_size=3))
def test_merge_again_changes_nothing(found):
    merged = merge_contents(found)
    assert dump(merge_contents([merged])) == dump(merged)
    for store in found:
        assert dump(merge_contents([merged, store])) == dump(merged)


@EXAMPLES
@given(stores(), stores())
def test_merge_does_not_mind_the_order_where_one_store_was_imported(a, b):
    b = imported(b)
    merged = merge_contents([a, b])
    assert dump(merge_contents([b, a])) == dump(merged)
    assert dump(merge_contents([merged, b])) == dump(merged) == dump(merge_contents([merged, a]))


@EXAMPLES
@given(stores(), stores())
def test_merge_keeps_every_trial_once_and_every_promotion_that_can_stand(a, b):
    merged = merge_contents([a, b])
    identities = [identity(t) for t in merged.trials]
    assert len(set(identities)) == len(identities)
    assert set(identities) == {identity(t) for s in (a, b) for t in s.trials}
    timed = {identity(t) for t in merged.trials if t.measurement.ran}
    assert set(merged.promotions) == {p for s in (a, b) for p in s.promotions if p.trial in timed}
    assert set(merged.decisions) == {*a.decisions, *b.decisions}
    assert set(merged.latencies) == {*a.latencies, *b.latencies}


@EXAMPLES
@given(stores(), stores())
def test_merge_takes_the_winner_of_a_store_or_the_fastest(a, b):
    merged = merge_contents([a, b])
    left, right = winners(a), winners(b)
    for place, winner in winners(merged).items():
        if winner.promotion is not None and place in left and place in right:
            ends = [w.trial.actions for w in (left[place], right[place]) if w.promotion is not None]
            overruled = any(
                t.measurement.status.value == "wrong" for t in merged.trials if place_of(t) == place
            )
            assert winner.trial.actions in ends or overruled


@EXAMPLES
@given(stores())
def test_exported_store_read_into_an_empty_one_is_equal(store):
    assert list(export_lines(imported(store))) == list(export_lines(store))
    assert actions_of(imported(store)) == actions_of(store)


@EXAMPLES
@given(stores(), stores())
def test_imported_rows_never_change_what_was_measured_here(here, file):
    after = with_imported(here, read_back(file))
    assert after.trials[: len(here.trials)] == here.trials
    own = {place_of(t) for t in here.trials if t.measurement.ran}
    before = actions_of(here)
    assert {p: a for p, a in actions_of(after).items() if p in own} == before
    assert stood(after, own=True) == stood(here)
    for place, winner in winners(after).items():
        assert is_imported(winner.promotion or winner.trial) == (place not in own)


@EXAMPLES
@given(stores(), stores())
def test_import_again_changes_nothing(here, file):
    once = with_imported(here, read_back(file))
    assert dump(with_imported(once, read_back(file))) == dump(once)


@EXAMPLES
@given(
    stores(),
    st.integers(0, 2),
    st.one_of(st.none(), st.integers(0, 5)),
    st.one_of(st.none(), st.integers(1, 2)),
)
def test_prune_keeps_winners_and_evidence(store, keep_best, before_s, space_version):
    pruned = prune_contents(store, PruneRules(keep_best, before_s, space_version))
    assert pruned.promotions == store.promotions
    assert {p: w.trial for p, w in winners(pruned).items()} == {
        p: w.trial for p, w in winners(store).items()
    }
    assert set(map(identity, pruned.trials)) <= set(map(identity, store.trials))
    named = {t.kernel_key for t in pruned.trials} | {d.key for d in store.decisions}
    assert {key_of(k) for k, _ in pruned.kernels} == named
    assert (pruned.decisions, pruned.latencies) == (store.decisions, store.latencies)


@FEW
@given(stores())
def test_store_file_holds_the_contents_that_it_was_given(store):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.db"
        with open_store(path, "write") as opened:
            opened.replace_contents(store)
            opened.replace_contents(store)
            for place, winner in winners(store).items():
                assert repr(opened.winner(*place)) == repr(winner.trial)
        found, problems = read_contents(path)
        assert problems == ()
        assert dump(found) == dump(store)


@pytest.mark.parametrize("order", [1, -1])
def test_merge_of_nothing_is_nothing(order):
    assert merge_contents([NOTHING, NOTHING][::order]) == NOTHING
