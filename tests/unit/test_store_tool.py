"""Merge, prune, diff, why and salvage on store files: one claim each, by hand-made stores."""

from __future__ import annotations

from dataclasses import replace

import pytest
from store_exports import decision, latency
from store_trials import EVIDENCE, HERE, KERNEL, KEY, numbered

from tunegrad.cli.tables import why_text
from tunegrad.db import (
    Contents,
    Evidence,
    PruneRules,
    diff_stores,
    key_of,
    merge_stores,
    open_store,
    prune_store,
    read_contents,
    salvage_store,
    why,
)
from tunegrad.db.contents import Promotion, identity, winners
from tunegrad.errors import InternalError, StoreError
from tunegrad.trial import Fingerprint, Measurement, Status

OTHER = "kernel(other)"
THERE = Fingerprint((("arch", "skylake"), ("device", "cpu")))
SPACE = 1


def promoted(
    n: int,
    *samples: float,
    at: float = 1.0,
    cold: bool = True,
    tested: bool = True,
    p: float = 0.001,
):
    incumbent = (9e-3,) if tested else ()
    evidence = Evidence(
        "mannwhitneyu" if tested else "first", p if tested else 1.0, incumbent, samples, cold
    )
    return Promotion(identity(numbered(n)), evidence, at)


def made(path, *trials, promotions=(), names=()):
    with open_store(path, "write") as store:
        store.replace_contents(Contents(trials=trials, promotions=tuple(promotions)))
        for text, name in names:
            store.name_kernel(text, name)
    return path


def winner_of(path):
    with open_store(path) as store:
        return store.winner(KEY, HERE, SPACE)


@pytest.fixture
def three(tmp_path):
    return [tmp_path / f"{name}.db" for name in ("a", "b", "out")]


CHAINS = {
    "the lower median wins": ([promoted(1, 2e-3)], [promoted(2, 1e-3)], 2),
    "tested before crowned without a test": ([promoted(1, 2e-3)], [promoted(2, 1e-3, tested=False)],
        1),
    "cold before warm": ([promoted(1, 2e-3)], [promoted(2, 1e-3, cold=False)], 1),
    "the lower p-value of equal medians": ([promoted(1, 1e-3, p=0.01)],
        [promoted(2, 1e-3, p=0.001)], 2),
    "the newer of equals": ([promoted(1, 1e-3, at=5.0)], [promoted(2, 1e-3, at=4.0)], 1),
    "a winner that was replaced is out": (
        [promoted(1, 1e-3, at=1.0)], [promoted(1, 1e-3, at=1.0), promoted(2, 2e-3, at=2.0)], 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CHAINS)
def test_store_merge_lets_evidence_win(three, case):
    left, right, expected = CHAINS[case]
    a, b, out = three
    made(a, numbered(1), numbered(2), promotions=left)
    made(b, numbered(1), numbered(2), promotions=right)
    merge_stores(out, [b, a])
    assert winner_of(out) == numbered(expected)


def test_store_merge_prefers_what_was_measured_to_what_was_imported(three):
    a, b, out = three
    mine = numbered(1)
    claim = replace(
        numbered(1), origin="imported:beam", measurement=Measurement(Status.OK, (1e-9,) * 9)
    )
    merge_stores(out, [made(a, claim), made(b, mine)])
    assert winner_of(out) == mine


def test_store_merge_keeps_wrong_before_ok_and_drops_the_promotion_of_it(three):
    a, b, out = three
    made(a, numbered(1), numbered(2), promotions=[promoted(1, 1e-3)])
    made(b, numbered(1, status=Status.WRONG))
    report = merge_stores(out, [a, b])
    assert (report.trials, report.promotions) == (2, 0)
    assert winner_of(out) == numbered(2)


def test_store_merge_does_not_pool_the_samples_of_the_same_trial(three):
    a, b, out = three
    longer = replace(numbered(1), measurement=Measurement(Status.OK, (4e-3,) * 5))
    merge_stores(out, [made(a, numbered(1)), made(b, longer)])
    assert read_contents(out)[0].trials == (longer,)


def later(n: int, **changes: object):
    """Trial ``n`` measured again, by session s2."""
    return replace(numbered(n), session="s2", created_s=5000.0, **changes)


def test_store_merge_keeps_measurements_of_different_sessions_and_counts_the_newest(three):
    a, b, out = three
    slower = later(1, measurement=Measurement(Status.OK, (4e-3,) * 3))
    report = merge_stores(
        out, [made(b, slower), made(a, numbered(1), promotions=[promoted(1, 1e-3)])]
    )
    assert (report.trials, report.promotions) == (2, 1)
    with open_store(out) as store:
        assert store.history(KEY) == [numbered(1), slower]
        assert store.winner(KEY, HERE, SPACE) == slower


def test_store_merge_withdraws_what_ran_in_one_store_and_was_wrong_in_another(three):
    a, b, out = three
    made(a, numbered(1), numbered(2), promotions=[promoted(2, 2e-3), promoted(1, 1e-3, at=2.0)])
    made(b, later(1, measurement=Measurement(Status.WRONG, error="off by 0.3")))
    merge_stores(out, [a, b])
    with open_store(out) as store:
        (found,) = store.withdrawals(KEY, HERE)
        assert str(found) == "withdrawn by session s2: measured again, it was wrong: off by 0.3"
        assert store.winner(KEY, HERE, SPACE) == numbered(2)


def test_store_merge_leaves_out_what_a_file_claims_of_what_was_measured(three):
    a, b, out = three
    claim = later(1, origin="imported:beam", measurement=Measurement(Status.OK, (1e-9,) * 9))
    merge_stores(out, [made(a, claim, promotions=[]), made(b, numbered(1))])
    assert read_contents(out)[0].trials == (numbered(1),)


def test_store_merge_has_the_choice_that_was_made_last(three):
    a, b, out = three
    for path, choice, at in ((a, "winograd2", 2.0), (b, "direct", 1.0)):
        with open_store(path, "write") as store:
            store.record_decision(decision(choice, at=at))
            store.record_latency(latency(at=at))
    report = merge_stores(out, [a, b])
    assert (report.decisions, report.latencies) == (2, 2)
    with open_store(out) as store:
        assert store.decision("variant", KEY, HERE, SPACE).choice == "winograd2"
        assert [x.created_s for x in store.latencies()] == [1.0, 2.0]


def test_store_prune_keeps_the_measurement_that_counts_of_what_stays(tmp_path):
    path = made(
        tmp_path / "a.db",
        numbered(1),
        numbered(2),
        later(1, measurement=Measurement(Status.OK, (9e-3,) * 3)),
        promotions=[promoted(1, 1e-3)],
    )
    before = winner_of(path)
    prune_store(path, PruneRules(keep_best=0))
    assert winner_of(path) == before == later(1, measurement=Measurement(Status.OK, (9e-3,) * 3))
    with open_store(path) as store:
        assert len(store.history(KEY)) == 3


def test_store_prune_removes_older_measurements_and_no_decision_and_no_latency(tmp_path):
    path = made(tmp_path / "a.db", numbered(1), later(1))
    with open_store(path, "write") as store:
        store.record_decision(decision("direct", text="region", at=1.0))
        store.record_latency(latency(at=1.0))
    prune_store(path, PruneRules(before_s=4000.0))
    with open_store(path) as store:
        assert store.history(KEY) == [later(1)]
        assert (len(store.decisions()), len(store.latencies()), store.verify()) == (1, 1, [])


def test_store_merge_reports_what_it_did_and_a_dry_run_does_not_do_it(three):
    a, b, _ = three
    made(a, numbered(1), numbered(2), promotions=[promoted(1, 2e-3)])
    made(b, numbered(2), numbered(3), promotions=[promoted(3, 1e-3)])
    before = read_contents(a)
    dry = merge_stores(a, [b], dry_run=True)
    assert read_contents(a) == before
    wet = merge_stores(a, [b])
    assert replace(wet, dry_run=True) == dry
    assert (wet.trials_before, wet.trials, wet.changed_winners) == (2, 3, 1)


def test_store_merge_of_a_damaged_store_is_refused_and_writes_nothing(three):
    a, b, out = three
    made(a, numbered(1))
    with open_store(made(b, numbered(2)), "write") as store:
        store._db.connection.execute("UPDATE trials SET samples_s = '[1]'")
    with pytest.raises(StoreError, match=r"b\.db: is damaged \(trials row 1"):
        merge_stores(out, [a, b])
    assert not out.exists()


def test_store_that_is_given_broken_contents_keeps_its_own(tmp_path):
    path = made(tmp_path / "a.db", numbered(1))
    with open_store(path, "write") as store:
        broken = Contents(trials=(numbered(2),), promotions=(promoted(3, 1e-3),))
        with pytest.raises(
            InternalError, match=r"names a trial that does not exist: 'unroll\(by=3\)'"
        ):
            store.replace_contents(broken)
        assert store.trials(KEY) == [numbered(1)]
        assert store.add(numbered(5)) == 2


# ---- prune


def test_store_prune_keeps_the_best_and_says_the_bytes(tmp_path):
    path = made(
        tmp_path / "a.db", *(numbered(n) for n in range(300)), promotions=[promoted(200, 1e-3)]
    )
    dry = prune_store(path, PruneRules(keep_best=3), dry_run=True)
    assert len(read_contents(path)[0].trials) == 300
    wet = prune_store(path, PruneRules(keep_best=3))
    kept = [t.actions for t in read_contents(path)[0].trials]
    # The three fastest, the promoted one, and the newest.
    assert kept == [f"unroll(by={n})" for n in (0, 1, 2, 200, 299)]
    assert (wet.removed_trials, wet.trials, wet.bytes_after) == (295, 5, path.stat().st_size)
    assert wet.freed_bytes > 0
    assert replace(dry, dry_run=False) == wet


def test_store_prune_by_age_and_space_version_removes_what_both_name(tmp_path):
    trials = [numbered(n) for n in range(6)] + [replace(numbered(9, OTHER), space_version=2)]
    path = made(tmp_path / "a.db", *trials)
    report = prune_store(path, PruneRules(before_s=1003.0, space_version=1))
    # The fastest of the two places stays, whatever its age.
    assert [t.created_s for t in read_contents(path)[0].trials] == [
        1000.0,
        1003.0,
        1004.0,
        1005.0,
        1009.0,
    ]
    assert report.removed_trials == 2


def test_store_prune_removes_kernels_without_trials(tmp_path):
    path = made(tmp_path / "a.db", numbered(1), numbered(2, OTHER, Status.WRONG))
    assert prune_store(path, PruneRules(keep_best=1)).removed_kernels == 1
    with open_store(path) as store:
        assert not store.knows(key_of(OTHER))


def test_store_prune_without_a_rule_is_an_error():
    with pytest.raises(StoreError, match="prune: no rule says which trials go"):
        PruneRules()


def test_store_prune_of_no_store_makes_none(tmp_path):
    with pytest.raises(StoreError, match="does not exist; there is nothing to prune"):
        prune_store(tmp_path / "no.db", PruneRules(keep_best=1))
    assert list(tmp_path.iterdir()) == []


# ---- diff


def test_store_diff_names_kernels_of_one_store_and_winners_that_differ(three):
    a, b, _ = three
    made(
        a,
        numbered(1),
        numbered(2),
        numbered(3, OTHER),
        promotions=[promoted(2, 4e-3)],
        names=[(OTHER, "softmax")],
    )
    made(b, numbered(1), numbered(2))
    found = diff_stores(a, b)
    assert (found.only_a, found.only_b, found.same) == (("softmax",), (), 0)
    (change,) = found.changes
    assert (change.a.actions, change.a.time_s, change.a.test, change.a.p_value) == (
        "unroll(by=2)", 4e-3, "mannwhitneyu", 0.001,
    )  # fmt: skip
    assert (change.b.actions, change.b.test) == ("unroll(by=1)", "")
    assert change.ratio == pytest.approx(4 / 3)


def test_store_diff_compares_machines_only_when_asked(three):
    a, b, _ = three
    made(a, numbered(1))
    made(b, replace(numbered(2), fingerprint=THERE))
    assert (diff_stores(a, b).changes, diff_stores(a, b).alone) == ((), 2)
    (change,) = diff_stores(a, b, all_machines=True).changes
    assert change.machine == "arch: znver4 in a, skylake in b"


def test_store_diff_of_a_store_with_itself_is_empty(three):
    a, *_ = three
    found = diff_stores(made(a, numbered(1)), a)
    assert (found.only_a, found.only_b, found.changes, found.same) == ((), (), (), 1)


# ---- why


def explained(path, wanted=KEY, here=HERE, space=SPACE):
    return why(read_contents(path)[0], wanted, here, space)


@pytest.fixture
def known(tmp_path):
    trials = (numbered(1), numbered(2), numbered(3, status=Status.WRONG))
    return made(
        tmp_path / "a.db", *trials, promotions=[promoted(2, 1e-3, 1e-3)], names=[(KERNEL, "mm")]
    )


def test_store_why_explains_a_hit_by_its_evidence(known):
    found = explained(known, "mm")
    assert (found.outcome, found.reason, found.rule) == ("hit", "", "promoted last")
    assert all(f.same for f in found.fields)
    assert found.candidates == (("ok", 2), ("wrong", 1))
    (row,) = found.promotions
    assert (row.test, row.p_value, row.incumbent_ms, row.challenger_ms, row.cold) == (
        "mannwhitneyu",
        0.001,
        9.0,
        1.0,
        True,
    )
    assert found.fastest_ms == 3.0


def test_store_why_explains_a_miss_field_by_field(known):
    found = explained(known, KEY[:8], THERE)
    assert (found.outcome, found.reason) == ("miss", "arch: stored znver4, here skylake")
    assert [(f.field, f.same) for f in found.fields] == [
        ("arch", False),
        ("device", True),
        ("space_version", True),
    ]
    assert [n.differs for n in found.nearest] == [("arch: stored znver4, here skylake",)]


def test_store_why_explains_a_near_hit(known):
    found = explained(known, KERNEL, space=2)
    assert (found.outcome, found.reason) == ("near", "space_version: stored 1, here 2")


def test_store_why_names_fields_that_older_rows_lack(known):
    here = Fingerprint((("arch", "znver4"), ("device", "cpu"), ("microcode", "0x1")))
    found = explained(known, "mm", here)
    assert (found.outcome, found.reason) == ("miss", "microcode: stored (none), here 0x1")
    (differs,) = [f for f in found.fields if not f.same]
    assert (differs.field, differs.stored, differs.here) == ("microcode", "", "0x1")
    assert [n.differs for n in found.nearest] == [("microcode: stored (none), here 0x1",)]


def test_store_why_says_who_withdrew_a_winner_and_why(tmp_path):
    path = withdrawn_store(tmp_path / "a.db")
    found = explained(path)
    assert (found.outcome, found.reason) == ("miss", "winner: withdrawn by session s7: off by 0.3")
    assert [(w.actions, w.reason, w.session, w.imported) for w in found.withdrawals] == [
        ("unroll(by=2)", "off by 0.3", "s7", False)
    ]
    assert (
        "withdrawn, and no winner again:\n  unroll(by=2)\n    by session s7: off by 0.3"
        in why_text(found)
    )


def withdrawn_store(path):
    """Its only promotion was withdrawn; a slower trial is left."""
    made(path, numbered(1), numbered(2))
    with open_store(path, "write") as store:
        store.promote(2, EVIDENCE)
        store.withdraw(2, "off by 0.3", "s7")
    return path


def test_store_salvage_and_prune_keep_withdrawals(tmp_path):
    path = withdrawn_store(tmp_path / "a.db")
    assert salvage_store(path, tmp_path / "b.db").problems == ()
    prune_store(tmp_path / "b.db", PruneRules(keep_best=0))
    with open_store(tmp_path / "b.db") as store:
        assert store.winner(KEY, HERE, 1) is None
        assert [str(w) for w in store.withdrawals(KEY, HERE)] == [
            "withdrawn by session s7: off by 0.3"
        ]
        assert store.verify() == []


@pytest.mark.parametrize("first", [0, 1])
def test_store_merge_withdraws_what_any_store_withdrew(tmp_path, first):
    path = withdrawn_store(tmp_path / "a.db")
    other = made(tmp_path / "b.db", numbered(2), numbered(5))
    with open_store(other, "write") as store:
        for row in (2, 1):
            store.promote(row, EVIDENCE)
    merge_stores(tmp_path / "c.db", [path, other][:: 1 if first else -1])
    with open_store(tmp_path / "c.db") as store:
        assert store.winner(KEY, HERE, 1) == numbered(5)
        assert len(store.withdrawals(KEY, HERE)) == 1


def test_store_why_of_a_kernel_that_never_ran_says_so(tmp_path):
    found = explained(made(tmp_path / "a.db", numbered(1, status=Status.CRASHED)))
    assert (found.outcome, found.reason) == (
        "miss",
        (
            "trials: the store knows this kernel, but has no trial of it that was measured and "
            "right; tune it for longer"
        ),
    )
    assert found.candidates == (("crashed", 1),)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("mn", "unknown to this store: no name, key or text like it; nearest names: mm"),
        ("zzzz", "no name, key or text like it; it knows mm"),
        (KEY[:3], "unknown to this store"),
    ],
)
def test_store_why_of_an_unknown_kernel_names_the_nearest(known, wanted, message):
    with pytest.raises(StoreError, match=message):
        explained(known, wanted)


def test_store_why_of_a_name_of_two_kernels_lists_their_keys(tmp_path):
    path = made(tmp_path / "a.db", names=[(KERNEL, "mm"), (OTHER, "mm")])
    with pytest.raises(
        StoreError, match=rf"is the name or prefix of 2: .*{key_of(OTHER)} mm.*; give one key"
    ):
        explained(path, "mm")


# ---- salvage, and one rule for winners


def test_store_salvage_writes_a_new_sound_store(tmp_path):
    path = made(tmp_path / "a.db", numbered(1), numbered(2))
    with open_store(path, "write") as store:
        store.promote(2, EVIDENCE)
        store._db.connection.execute("UPDATE trials SET samples_s = '[1]' WHERE id = 1")
    report = salvage_store(path, tmp_path / "new.db")
    assert (report.trials, report.promotions, len(report.problems)) == (1, 1, 1)
    with open_store(tmp_path / "new.db") as store:
        assert store.verify() == []
        assert store.winner(KEY, HERE, SPACE) == numbered(2)


def test_store_salvage_does_not_overwrite(tmp_path):
    path = made(tmp_path / "a.db", numbered(1))
    with pytest.raises(StoreError, match="exists; rows are salvaged into a new store"):
        salvage_store(path, path)


def test_store_salvage_into_memory_is_refused_since_nothing_would_stay(tmp_path):
    path = made(tmp_path / "a.db", numbered(1))
    with pytest.raises(StoreError, match="store :memory:: is not a file"):
        salvage_store(path, ":memory:")


def test_store_winners_of_the_contents_are_those_of_the_store(tmp_path):
    cold = replace(numbered(5), policy=replace(numbered(5).policy, cache="cold"))
    path = made(
        tmp_path / "a.db", numbered(3), numbered(1), cold, numbered(7, OTHER), promotions=[]
    )
    with open_store(path) as store:
        for place, winner in winners(read_contents(path)[0]).items():
            assert store.winner(*place) == winner.trial
