"""What every store must do, as one test class.

Subclass it, give it an ``opener``, and it runs against that store.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from tunegrad.db import (
    SCHEMA_VERSION,
    STOPPED,
    Decision,
    Difference,
    Evidence,
    Hit,
    Latency,
    Miss,
    Mode,
    Near,
    Question,
    Session,
    Store,
    Withdrawal,
    key_of,
)
from tunegrad.errors import InternalError, StoreError
from tunegrad.trial import Fingerprint, Measurement, Policy, Status, Trial

ZEN = Fingerprint((("arch", "znver4"), ("device", "cpu"), ("threads", "2")))
SKY = Fingerprint((("arch", "skylake"), ("device", "cpu"), ("threads", "2")))
SKY_8 = Fingerprint((("arch", "skylake"), ("device", "cpu"), ("threads", "8")))
MATMUL = "kernel(m 64, n 64, k 64)"
EVIDENCE = Evidence("mannwhitneyu", 0.001, (2e-3, 2.1e-3), (1e-3, 1.1e-3), cold=True)
COLD = Policy(cache="cold")


def trial(
    actions: str = "tile(axis=m, size=4)",
    *samples_s: float,
    status: Status = Status.OK,
    text: str = MATMUL,
    fingerprint: Fingerprint = ZEN,
    space_version: int = 1,
    policy: Policy | None = None,
    session: str = "s1",
) -> Trial:
    """A trial of a small matmul; one sample of a millisecond unless others are given."""
    samples = (samples_s or (1e-3,)) if status is Status.OK else ()
    return Trial(
        kernel_key=key_of(text),
        kernel_text=text,
        fingerprint=fingerprint,
        actions=actions,
        program_hash=f"program of {actions}",
        space_version=space_version,
        policy=policy or Policy(),
        measurement=Measurement(
            status, samples, error="" if status is Status.OK else f"it was {status}"
        ),
        session=session,
        origin="beam",
        created_s=1000.0,
    )


REGION = "region\nkernel a"
VERSIONS = (("numpy", "2.1"), ("python", "3.11"))
STATE = (("governor", "performance"), ("load_1m", 0.5))


def decision(
    choice: str,
    *,
    kind: Question = "cut",
    text: str = REGION,
    chosen: bool = True,
    evidence: Evidence = EVIDENCE,
    fingerprint: Fingerprint = ZEN,
    at: float = 1000.0,
    status: Status = Status.OK,
    error: str = "",
) -> Decision:
    """A decision of session s1 about where to cut a region."""
    return Decision(
        kind, text, choice, chosen, evidence, fingerprint, 1, "s1", at, status, error, Policy().text
    )


def latency(
    model: str = "resnet18", *, fingerprint: Fingerprint = ZEN, at: float = 1000.0
) -> Latency:
    """Three turns of a tuned model, and of its default schedules."""
    mine, default = (2e-3, 1e-3, 3e-3), (4e-3, 2e-3, 3e-3)
    return Latency(model, "k" * 32, "tuned", fingerprint, mine, default, "s1", at, VERSIONS, STATE)


class StoreSuite:
    """The contract of ``tunegrad.db.Store``."""

    @pytest.fixture
    def opener(self) -> Callable[[Mode], Store]:
        """Opens a store whose clock stands at 500, the same file each time where there is one."""
        raise NotImplementedError

    @pytest.fixture
    def store(self, opener):
        with opener("write") as opened:
            yield opened

    # Trials

    def test_store_trials_together_are_all_there_or_none(self, store):
        store.add(trial("a"))
        with store.together():
            store.add(trial("b"))
            store.add(trial("c", text="kernel(third)", session="s2"))

        def cut_short():
            with store.together():
                store.add(trial("d", text="kernel(other)", session="s3"))
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            cut_short()
        assert [t.actions for t in store.trials(key_of(MATMUL))] == ["a", "b"]
        assert [t.actions for t in store.trials(key_of("kernel(third)"))] == ["c"]
        assert store.trials(key_of("kernel(other)")) == []
        store.add(trial("d", text="kernel(other)", session="s3"))
        assert [t.actions for t in store.trials(key_of("kernel(other)"))] == ["d"]

    def test_store_wrong_measurement_that_was_not_committed_withdraws_nothing(self, store):
        store.add(trial("a"))

        def cut_short():
            with store.together():
                store.add(trial("a", status=Status.WRONG, session="s2"))
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            cut_short()
        assert store.withdrawals(key_of(MATMUL), ZEN) == []
        assert store.winner(key_of(MATMUL), ZEN, 1) == trial("a")

    def test_store_add_numbers_trials_upwards(self, store):
        ids = [store.add(trial(f"unroll(by={n})")) for n in range(5)]
        assert ids[0] > 0
        assert ids == sorted(set(ids))

    @pytest.mark.parametrize("status", Status)
    def test_store_returns_a_trial_of_each_status_as_it_was(self, store, status):
        given = trial("upcast(axis=n, by=16)", 1e-3, 3e-3, 2e-3, status=status)
        store.add(given)
        assert store.trials(given.kernel_key) == [given]

    def test_store_returns_every_field_exactly(self, store):
        measurement = Measurement(
            Status.OK,
            (0.1, 1e-9, 0.0, 1 / 3),
            "naïve ✓\n\0 end",
            0.1,
            0.2,
            0.3,
            0.4,
            max_error=math.inf,
        )
        policy = Policy("cold", "min", "tsc", 5, 9, 0.05, 1.5, 3.25)
        given = replace(
            trial("a\n'b\""),
            measurement=measurement,
            policy=policy,
            created_s=1.7e9 + 0.1,
            origin="évolution",
        )
        store.add(given)
        assert store.trials(given.kernel_key) == [given]

    def test_store_tells_apart_machines_of_any_text(self, store):
        odd = [
            Fingerprint((("arch", a), ("features", f)))
            for a, f in (("x", "a b=c"), ("x b", "=c"), ("\udcff", "é"))
        ]
        for fingerprint in odd:
            store.add(trial(fingerprint=fingerprint))
        assert [t.fingerprint for t in store.trials(key_of(MATMUL))] == odd
        assert all(store.winner(key_of(MATMUL), f, 1).fingerprint == f for f in odd)

    def test_store_keeps_no_sign_of_zero(self, store):
        given = trial("a", 0.0)
        minus = replace(given.measurement, lower_s=-0.0, max_error=-0.0)
        store.add(replace(given, measurement=minus, created_s=-0.0))
        store.record_decision(decision("keep", at=-0.0))
        store.record_latency(latency(at=-0.0))
        assert store.verify() == []
        assert (
            len(store.trials(key_of(MATMUL))),
            len(store.decisions()),
            len(store.latencies()),
        ) == (1, 1, 1)

    def test_facts_of_a_session_join_its_state(self, store: Store) -> None:
        state = (("governor", "powersave"), ("load_1m", 0.5))
        with store.session("tune", 0, {}, "0.1.0", "s1", state=state):
            store.add_facts("s1", (("load_1m", 0.7), ("seconds.asking", 1.5)))
            store.add_facts("s1", (("kernel.a.layers", "conv1"),))
        (found,) = store.sessions()
        assert found.state == (
            ("governor", "powersave"),
            ("kernel.a.layers", "conv1"),
            ("load_1m", 0.7),
            ("seconds.asking", 1.5),
        )
        assert found.ended_s is not None

    def test_facts_need_a_session_and_finite_numbers(self, store: Store) -> None:
        with pytest.raises(StoreError, match="no session 's9'"):
            store.add_facts("s9", (("seconds.asking", 1.5),))
        opened = store.session("tune", 0, {}, "0.1.0", "s1")
        with opened, pytest.raises(InternalError, match="not finite"):
            store.add_facts("s1", (("seconds.asking", math.inf),))

    def test_store_keeps_a_command_line_that_is_not_unicode(self, store):
        with store.session("tune \udcff.toml", 0, {}, "0.1.0"):
            pass
        assert store.sessions()[0].command == "tune \\udcff.toml"

    def test_store_keeps_a_max_error_that_is_not_a_number(self, store):
        given = trial(status=Status.WRONG)
        store.add(replace(given, measurement=replace(given.measurement, max_error=math.nan)))
        (found,) = store.trials(given.kernel_key)
        assert math.isnan(found.measurement.max_error)
        assert found.measurement.status is Status.WRONG

    def test_store_add_keeps_the_first_of_two_same_trials(self, store):
        first = store.add(trial("thread(axis=m, count=2)", 1e-3))
        assert store.add(trial("thread(axis=m, count=2)", 5e-4)) == first
        assert [t.measurement.samples_s for t in store.trials(key_of(MATMUL))] == [(1e-3,)]

    def test_store_tells_trials_apart_by_each_part_of_their_identity(self, store):
        same = trial()
        others = [
            trial("another()"),
            trial(text="kernel(other)"),
            trial(fingerprint=SKY),
            trial(space_version=2),
            trial(policy=COLD),
        ]
        ids = {store.add(t) for t in (same, *others)}
        assert len(ids) == 6
        assert store.add(replace(same, origin="random", program_hash="x")) in ids
        assert store.add(replace(same, session="later")) not in ids
        assert store.add(replace(same, created_s=1001.0)) not in ids

    def test_store_ignores_the_timeout_in_a_trials_identity(self, store):
        first = store.add(trial(policy=Policy(timeout_s=1.0)))
        assert store.add(trial(policy=Policy(timeout_s=9.0))) == first
        assert store.trials(key_of(MATMUL))[0].policy.timeout_s == 1.0

    def test_store_lists_trials_of_a_kernel_oldest_first(self, store):
        given = [trial(f"unroll(by={n})") for n in (3, 1, 2)]
        for t in given:
            store.add(t)
        store.add(trial(text="kernel(other)"))
        assert store.trials(key_of(MATMUL)) == given

    def test_store_filters_trials_by_fingerprint_and_policy(self, store):
        here, there, cold = trial(), trial(fingerprint=SKY), trial(policy=COLD)
        for t in (here, there, cold):
            store.add(t)
        assert store.trials(key_of(MATMUL), fingerprint=SKY) == [there]
        assert store.trials(key_of(MATMUL), policy=COLD) == [cold]
        assert store.trials(key_of(MATMUL), ZEN, Policy()) == [here]

    def test_store_has_no_trials_of_an_unknown_kernel(self, store):
        assert store.trials("0" * 32) == []

    def test_store_finds_the_id_of_a_trial(self, store):
        row = store.add(trial())
        assert store.id_of(trial("tile(axis=m, size=4)", 7e-3)) == row
        assert store.id_of(trial("never measured")) is None

    @pytest.mark.parametrize(
        ("broken", "message"),
        [
            (replace(trial(), kernel_key="0" * 32), "is not the hash"),
            (trial("x", -1e-3), r"samples_s\[0\] is -0.001"),
            (trial("x", 1e-3, math.nan), r"samples_s\[1\] is nan"),
            (trial("x", math.inf), r"samples_s\[0\] is inf"),
            (trial(fingerprint=Fingerprint((("b", "1"), ("a", "2")))), "not sorted and distinct"),
            (trial("lone \ud800 surrogate"), "actions is not valid Unicode"),
            (trial(policy=Policy(clock="lone \ud800")), "policy is not valid Unicode"),
        ],
    )
    def test_store_refuses_a_trial_that_breaks_a_rule(self, store, broken, message):
        with pytest.raises(InternalError, match=message):
            store.add(broken)
        assert store.trials(broken.kernel_key) == []

    def test_store_cuts_an_endless_error_text(self, store):
        given = trial(status=Status.COMPILE_ERROR)
        store.add(
            replace(
                given, measurement=replace(given.measurement, error="lone \ud800 " + "x" * 100_000)
            )
        )
        (found,) = store.trials(given.kernel_key)
        assert len(found.measurement.error) == 16_000
        assert found.measurement.error.startswith("lone \\ud800 x")
        assert found.measurement.error.endswith("[100012 characters in all]")

    # Winners

    def test_store_winner_is_the_fastest_ok_trial_by_median(self, store):
        store.add(trial("a", 3e-3))
        store.add(trial("b", 1e-3, 2e-3, 9e-3))
        store.add(trial("c", 5e-4, 4e-3, 4e-3))
        store.add(trial("d", status=Status.WRONG))
        assert store.winner(key_of(MATMUL), ZEN, 1).actions == "b"

    def test_store_winner_of_a_tie_is_the_older_trial(self, store):
        store.add(trial("older", 1e-3))
        store.add(trial("newer", 1e-3))
        assert store.winner(key_of(MATMUL), ZEN, 1).actions == "older"

    def test_store_winner_needs_samples(self, store):
        unsampled = trial("a")
        store.add(replace(unsampled, measurement=Measurement(Status.OK)))
        assert store.winner(key_of(MATMUL), ZEN, 1) is None

    def test_store_winner_compares_within_the_policy_of_the_newest_ok_trial(self, store):
        store.add(trial("warm and quick", 1e-3))
        store.add(trial("cold a", 3e-3, policy=COLD))
        store.add(trial("cold b", 2e-3, policy=COLD))
        store.add(trial("later", status=Status.CRASHED))
        assert store.winner(key_of(MATMUL), ZEN, 1).actions == "cold b"

    def test_store_winner_is_the_latest_promotion_even_when_another_is_faster(self, store):
        store.add(trial("fast", 1e-3))
        first, second = store.add(trial("first", 2e-3)), store.add(trial("second", 3e-3))
        store.promote(first, EVIDENCE)
        store.promote(second, EVIDENCE)
        assert store.winner(key_of(MATMUL), ZEN, 1).actions == "second"
        store.promote(first, EVIDENCE)
        assert store.winner(key_of(MATMUL), ZEN, 1).actions == "first"

    def test_store_promotion_counts_for_its_machine_and_space_only(self, store):
        store.promote(store.add(trial("promoted", 2e-3)), EVIDENCE)
        store.add(trial("other space", 1e-3, space_version=2))
        store.add(trial("other machine", 1e-3, fingerprint=SKY))
        assert store.winner(key_of(MATMUL), ZEN, 2).actions == "other space"
        assert store.winner(key_of(MATMUL), SKY, 1).actions == "other machine"

    def test_store_keeps_facts_of_the_program_and_the_state_of_the_device(self, store):
        facts, state = (
            (("registers", 64.0), ("spills", 0.0)),
            (("power_w", 312.5), ("sm_mhz", 1755)),
        )
        given = trial()
        told = replace(given.measurement, facts=facts, state=state)
        store.add(replace(given, measurement=told))
        (found,) = store.trials(given.kernel_key)
        assert found.measurement == told
        broken = replace(given.measurement, facts=facts[::-1])
        with pytest.raises(InternalError, match="facts are not sorted and distinct"):
            store.add(replace(trial("unroll(by=2)"), measurement=broken))

    def test_store_trial_is_described_and_what_it_says_itself_stays(self, store):
        given = trial()
        told = replace(given.measurement, facts=(("registers", 64.0),))
        row = store.add(replace(given, measurement=told))
        store.describe(row, (("instructions", 512.0), ("registers", 1.0)))
        store.promote(row, EVIDENCE)
        facts = (("instructions", 512.0), ("registers", 64.0))
        assert store.trials(given.kernel_key)[0].measurement.facts == facts
        assert store.winner(given.kernel_key, ZEN, 1).measurement.facts == facts
        assert store.verify() == []
        with pytest.raises(StoreError, match="there is no trial 99 to describe"):
            store.describe(99, facts)

    def test_store_lists_promotions_with_their_evidence(self, store):
        a, b = trial("a"), trial("b")
        first = replace(EVIDENCE, incumbent_samples_s=(), p_value=0.0)
        store.promote(store.add(a), first)
        store.promote(store.add(b), EVIDENCE)
        assert store.promotions(key_of(MATMUL), ZEN) == [(a, first), (b, EVIDENCE)]

    # Withdrawals

    def test_store_withdrawn_winner_gives_way_to_the_promotion_before_it(self, store):
        first, second = store.add(trial("a", 3e-3)), store.add(trial("b", 1e-3))
        store.promote(first, EVIDENCE)
        store.promote(second, EVIDENCE)
        store.withdraw(second, "off by 0.3", "s9")
        assert store.winner(key_of(MATMUL), ZEN, 1) == trial("a", 3e-3)
        assert [t.actions for t, _ in store.promotions(key_of(MATMUL), ZEN)] == ["a"]

    def test_store_without_a_standing_promotion_has_no_winner_after_a_withdrawal(self, store):
        store.add(trial("a", 1e-3))
        store.promote(row := store.add(trial("b", 2e-3)), EVIDENCE)
        store.withdraw(row, "off by 0.3", "s9")
        assert store.winner(key_of(MATMUL), ZEN, 1) is None
        answer = store.lookup(key_of(MATMUL), ZEN, 1)
        assert isinstance(answer, Miss)
        assert answer.reason == "winner: withdrawn by session s9: off by 0.3"

    def test_store_withdrawn_trial_that_was_only_the_fastest_does_not_win(self, store):
        store.withdraw(store.add(trial("a", 1e-3)), "off by 0.3", "s9")
        store.add(trial("b", 2e-3))
        assert store.winner(key_of(MATMUL), ZEN, 1) is None

    def test_store_withdrawal_leaves_other_machines_and_spaces_their_winners(self, store):
        store.withdraw(store.add(trial("a")), "off by 0.3", "s9")
        for there, space in ((SKY, 1), (ZEN, 2)):
            store.add(trial("a", fingerprint=there, space_version=space))
            assert store.winner(key_of(MATMUL), there, space).actions == "a"

    def test_store_promotes_again_beside_a_withdrawal(self, store):
        store.withdraw(store.add(trial("a")), "off by 0.3", "s9")
        store.promote(store.add(trial("b")), EVIDENCE)
        assert isinstance(store.lookup(key_of(MATMUL), ZEN, 1), Hit)

    def test_store_withdrawn_trial_reads_as_wrong_and_says_by_whom(self, store):
        store.withdraw(store.add(trial("a")), "off by 0.3", "s9")
        (found,) = store.trials(key_of(MATMUL))
        m = found.measurement
        assert (m.status, m.samples_s, m.error) == (
            Status.WRONG,
            (),
            "withdrawn by session s9: off by 0.3",
        )

    def test_store_keeps_what_was_measured_of_a_withdrawn_trial(self, store):
        store.withdraw(store.add(trial("a")), "off by 0.3", "s9")
        assert store.withdrawals(key_of(MATMUL), ZEN) == [
            Withdrawal(trial("a"), "off by 0.3", "s9", 500.0)
        ]
        assert store.withdrawals(key_of(MATMUL), SKY) == []
        assert store.stats().withdrawals == 1

    def test_store_withdraws_a_trial_once(self, store):
        row = store.add(trial("a"))
        assert store.withdraw(row, "first", "s9") == store.withdraw(row, "second", "s8")
        assert [w.reason for w in store.withdrawals(key_of(MATMUL), ZEN)] == ["first"]

    def test_store_withdraws_no_unknown_trial(self, store):
        with pytest.raises(StoreError, match="trial 7 can not be withdrawn: no such trial"):
            store.withdraw(7, "", "s9")

    def test_store_promotes_no_withdrawn_trial(self, store):
        store.withdraw(row := store.add(trial("a")), "off by 0.3", "s9")
        with pytest.raises(
            StoreError, match="can not be promoted: it was withdrawn by session s9: off by 0"
        ):
            store.promote(row, EVIDENCE)

    def test_store_add_of_a_withdrawn_trial_leaves_it_withdrawn(self, store):
        store.withdraw(row := store.add(trial("a")), "off by 0.3", "s9")
        assert store.add(trial("a", 1e-9)) == row
        assert store.winner(key_of(MATMUL), ZEN, 1) is None

    def test_store_keeps_a_withdrawal_when_it_is_opened_again(self, opener):
        with opener("write") as store:
            store.promote(row := store.add(trial("a")), EVIDENCE)
            store.withdraw(row, "naïve\n✓", "s9")
            assert store.verify() == []
        with opener("read") as store:
            if store.knows(key_of(MATMUL)):  # a store in memory begins empty
                assert [w.reason for w in store.withdrawals(key_of(MATMUL), ZEN)] == ["naïve\n✓"]
                assert store.winner(key_of(MATMUL), ZEN, 1) is None
                with pytest.raises(StoreError, match="is open for reading"):
                    store.withdraw(row, "", "s9")

    # Crashes

    def test_store_returns_how_often_a_candidate_was_tried(self, store):
        given = trial("a", status=Status.CRASHED)
        given = replace(given, measurement=replace(given.measurement, attempts=2))
        store.add(given)
        assert store.trials(key_of(MATMUL)) == [given]

    def test_store_counts_a_settled_end_before_a_crash_that_was_seen_once(self, store):
        store.add(trial("a", 2e-3))
        store.add(trial("a", status=Status.CRASHED, session="s2"))
        assert store.trials(key_of(MATMUL)) == [trial("a", 2e-3)]
        assert len(store.history(key_of(MATMUL))) == 2

    def test_store_counts_the_newer_of_two_settled_ends(self, store):
        crash = trial("a", status=Status.CRASHED, session="s2")
        crash = replace(crash, measurement=replace(crash.measurement, attempts=2))
        store.add(trial("a", 2e-3))
        store.add(crash)
        assert store.trials(key_of(MATMUL)) == [crash]
        assert store.winner(key_of(MATMUL), ZEN, 1) is None
        store.add(trial("a", 3e-3, session="s3"))
        assert store.trials(key_of(MATMUL)) == [trial("a", 3e-3, session="s3")]

    # History

    def test_store_keeps_every_measurement_of_the_same(self, store):
        given = [
            trial("a", s, session=name) for s, name in ((1e-3, "s1"), (3e-3, "s2"), (2e-3, "s3"))
        ]
        ids = [store.add(t) for t in given]
        assert len(set(ids)) == 3
        assert store.history(key_of(MATMUL)) == store.history(key_of(MATMUL), ZEN) == given
        assert store.history(key_of(MATMUL), SKY) == []
        assert [store.id_of(t) for t in given] == ids
        assert store.trials(key_of(MATMUL)) == given[-1:]

    def test_store_winner_by_speed_goes_by_the_newest_measurement_of_each(self, store):
        store.add(trial("a", 1e-3))
        store.add(trial("b", 2e-3))
        store.add(trial("a", 3e-3, session="s2"))
        assert store.winner(key_of(MATMUL), ZEN, 1) == trial("b", 2e-3)
        store.add(trial("b", 4e-3, session="s2"))
        assert store.winner(key_of(MATMUL), ZEN, 1) == trial("a", 3e-3, session="s2")

    def test_store_promoted_winner_has_the_figures_of_its_newest_measurement_that_ran(self, store):
        store.promote(store.add(trial("a", 1e-3)), EVIDENCE)
        store.add(trial("b", 5e-4))
        store.add(trial("a", 3e-3, session="s2"))
        store.add(trial("a", status=Status.TIMED_OUT, session="s3"))
        assert store.winner(key_of(MATMUL), ZEN, 1) == trial("a", 3e-3, session="s2")
        assert store.promotions(key_of(MATMUL), ZEN) == [(trial("a", 1e-3), EVIDENCE)]

    @pytest.mark.parametrize("order", [1, -1])
    def test_store_withdraws_what_ran_in_one_measurement_and_was_wrong_in_another(
        self, store, order
    ):
        wrong = trial("a", status=Status.WRONG, session="s2")
        for given in (trial("a", 1e-3), wrong)[::order]:
            row = store.add(given)
        store.add(trial("b", 2e-3))
        said = "measured again, it was wrong: it was wrong"
        assert store.withdrawals(key_of(MATMUL), ZEN) == [Withdrawal(wrong, said, "s2", 1000.0)]
        assert store.trials(key_of(MATMUL))[0].measurement.status is Status.WRONG
        assert store.winner(key_of(MATMUL), ZEN, 1) is None
        with pytest.raises(StoreError, match="can not be promoted"):
            store.promote(row, EVIDENCE)

    def test_store_promoted_winner_that_is_wrong_later_gives_way_to_the_promotion_before_it(
        self, store
    ):
        for actions in ("a", "b"):
            store.promote(store.add(trial(actions)), EVIDENCE)
        store.add(trial("b", status=Status.WRONG, session="s2"))
        assert store.winner(key_of(MATMUL), ZEN, 1) == trial("a")

    def test_store_wrong_result_under_another_policy_withdraws_nothing(self, store):
        store.add(trial("a", 1e-3))
        store.add(trial("a", status=Status.WRONG, policy=COLD))
        assert store.withdrawals(key_of(MATMUL), ZEN) == []
        assert store.winner(key_of(MATMUL), ZEN, 1) == trial("a", 1e-3)

    def test_store_withdrawal_holds_for_later_measurements_of_the_same(self, store):
        row = store.add(trial("a", 1e-3))
        store.withdraw(row, "off by 0.3", "s9")
        again = store.add(trial("a", 5e-4, session="s2"))
        assert store.winner(key_of(MATMUL), ZEN, 1) is None
        assert store.withdraw(again, "once more", "s9") == store.withdraw(row, "again", "s9")
        assert [w.reason for w in store.withdrawals(key_of(MATMUL), ZEN)] == ["off by 0.3"]
        assert [t.measurement.status for t in store.trials(key_of(MATMUL))] == [Status.WRONG]

    def test_store_has_the_measurements_as_if_some_sessions_had_made_none(self, store):
        for n, session in enumerate(("s1", "s2", "s3")):
            store.add(trial("a", 1e-3 * (n + 1), session=session))
        store.add(trial("b", 9e-3, session="s3"))
        assert store.trials(key_of(MATMUL), without={"s3", "s4"}) == [
            trial("a", 2e-3, session="s2")
        ]
        assert len(store.trials(key_of(MATMUL))) == 2

    def test_store_counts_every_measurement_of_a_session(self, store):
        store.add(trial("a", session="s1"))
        store.add(trial("a", session="s2"))
        assert (store.count(["s2"], Policy()), store.stats().trials) == (1, 2)

    def test_store_keeps_what_a_trial_was_timed_beside(self, store):
        given = trial("a", 1e-3, 3e-3)
        beside = replace(
            given.measurement,
            reference_samples_s=(2e-3, 4e-3),
            reference_program="p",
            reference_s=8e-3,
        )
        store.add(replace(given, measurement=beside))
        (found,) = store.trials(key_of(MATMUL))
        assert found.measurement == beside
        assert (found.measurement.ratio, found.measurement.seconds) == (0.5, 4e-3)

    def test_store_withdrawn_trial_has_no_samples_of_a_reference_either(self, store):
        given = trial("a", 1e-3, 3e-3)
        beside = replace(
            given.measurement,
            reference_samples_s=(2e-3, 4e-3),
            reference_program="p",
            reference_s=8e-3,
        )
        store.withdraw(store.add(replace(given, measurement=beside)), "off by 0.3", "s9")
        (found,) = store.trials(key_of(MATMUL))
        assert (found.measurement.samples_s, found.measurement.reference_samples_s) == ((), ())
        assert found.measurement.seconds == found.measurement.ratio == math.inf

    def test_store_refuses_a_reference_that_has_not_a_sample_for_each_turn(self, store):
        given = trial("a", 1e-3, 3e-3)
        short = replace(given.measurement, reference_samples_s=(2e-3,))
        with pytest.raises(InternalError, match="1 reference_samples_s stand beside 2 samples_s"):
            store.add(replace(given, measurement=short))

    # Decisions

    def test_store_returns_a_decision_as_it_was(self, store):
        given = decision("naïve", error="x" * 10, status=Status.WRONG, chosen=False)
        assert store.record_decision(given) > 0
        assert store.decisions() == [given]

    def test_store_decision_is_the_choice_that_was_made_last(self, store):
        rows = [
            decision("rules"),
            decision("keep", at=2.0),
            decision("other", chosen=False, at=3.0),
            decision("crash", chosen=False, status=Status.CRASHED, at=4.0),
        ]
        ids = [store.record_decision(d) for d in rows]
        assert ids == sorted(set(ids))
        assert store.decision("cut", key_of(REGION), ZEN, 1) == rows[1]
        assert store.decisions(key_of(REGION), ZEN, "cut") == rows

    def test_store_decision_is_of_its_question_machine_and_space(self, store):
        store.record_decision(decision("keep"))
        key = key_of(REGION)
        assert store.decision("variant", key, ZEN, 1) is None
        assert store.decision("cut", key_of("region b"), ZEN, 1) is None
        assert store.decision("cut", key, SKY, 1) is None
        assert store.decision("cut", key, ZEN, 2) is None
        assert (
            store.decisions(key, SKY)
            == store.decisions(kind="images")
            == store.decisions("0" * 32)
            == []
        )

    def test_store_decision_of_a_file_counts_where_nothing_was_decided_here(self, store):
        claim = replace(EVIDENCE, test="imported:sign")
        store.record_decision(decision("claimed", evidence=claim))
        assert store.decision("cut", key_of(REGION), ZEN, 1).imported
        store.record_decision(decision("mine"))
        store.record_decision(decision("claimed again", evidence=claim))
        assert store.decision("cut", key_of(REGION), ZEN, 1).choice == "mine"

    def test_store_decision_about_a_kernel_is_no_trial_of_it(self, store):
        store.add(trial("a", 2e-3))
        store.record_decision(decision("winograd2", kind="variant", text=MATMUL))
        assert store.trials(key_of(MATMUL)) == [trial("a", 2e-3)]
        assert store.winner(key_of(MATMUL), ZEN, 1) == trial("a", 2e-3)
        assert store.kernels() == [(key_of(MATMUL), MATMUL)]

    def test_store_names_the_text_that_a_decision_is_about(self, store):
        store.record_decision(decision("keep"))
        store.name_kernel(REGION, "plan of a")
        assert store.kernel_name(key_of(REGION)) == "plan of a"
        assert store.kernels() == []
        assert store.decisions()[0].text == REGION

    @pytest.mark.parametrize(
        ("broken", "message"),
        [
            ({"kind": "taste"}, "kind 'taste' is none of images, cut, variant"),
            ({"status": Status.WRONG}, "chosen, and its status is wrong"),
            ({"at": math.nan}, "created_s is nan"),
            ({"choice": "\ud800"}, "choice is not valid Unicode"),
            ({"evidence": replace(EVIDENCE, p_value=2.0)}, r"p_value is 2\.0"),
            (
                {"evidence": replace(EVIDENCE, challenger_samples_s=(-1.0,))},
                r"challenger_samples\[0\] is -1\.0",
            ),
        ],
    )
    def test_store_refuses_a_decision_that_breaks_a_rule(self, store, broken, message):
        with pytest.raises(InternalError, match=message):
            store.record_decision(decision(**{"choice": "keep", **broken}))
        assert store.decisions() == []

    # Latencies

    def test_store_returns_a_latency_as_it_was(self, store):
        given = latency(at=1.0 / 3)
        assert store.record_latency(given) > 0
        assert store.latencies() == [given]
        assert (given.seconds, given.gain) == (2e-3, 2.0)

    def test_store_lists_latencies_oldest_first_by_model_machine_and_moment(self, store):
        late, early, other, there = (
            latency(at=30.0), latency(at=10.0), latency("mlp", at=20.0),
            latency(fingerprint=SKY, at=40.0),
        )  # fmt: skip
        for x in (late, early, other, there):
            store.record_latency(x)
        assert store.latencies() == [early, other, late, there]
        assert store.latencies("resnet18", ZEN) == [early, late]
        assert store.latencies(since_s=20.0) == [other, late, there]
        assert store.latencies("resnet18", ZEN, 11.0) == [late]
        assert store.latencies("unknown") == []

    @pytest.mark.parametrize(
        ("broken", "message"),
        [
            ({"samples_s": ()}, "it has no samples"),
            ({"default_samples_s": (1e-3,)}, "1 default_samples_s stand beside 3 samples_s"),
            ({"kind": "best"}, "kind 'best' is none of tuned, default"),
            ({"state": (("load", math.inf),)}, "state load is inf, not finite"),
            ({"versions": (("b", "1"), ("a", "2"))}, "versions are not sorted and distinct"),
            ({"created_s": math.nan}, "created_s is nan"),
        ],
    )
    def test_store_refuses_a_latency_that_breaks_a_rule(self, store, broken, message):
        with pytest.raises(InternalError, match=message):
            store.record_latency(replace(latency(), **broken))
        assert store.latencies() == []

    def test_store_knows_a_session_by_its_decisions_and_latencies(self, store):
        store.record_decision(replace(decision("keep"), session="by decision"))
        store.record_latency(replace(latency(), session="by latency"))
        assert {s.id for s in store.sessions()} == {"by decision", "by latency"}

    # Promotions of what can not win

    def test_store_promotes_no_unknown_trial(self, store):
        with pytest.raises(StoreError, match="trial 77 can not be promoted: no such trial"):
            store.promote(77, EVIDENCE)

    def test_store_promotes_no_failed_trial(self, store):
        row = store.add(trial(status=Status.WRONG))
        with pytest.raises(
            StoreError, match=f"trial {row} can not be promoted: its status is wrong"
        ):
            store.promote(row, EVIDENCE)

    def test_store_refuses_evidence_that_is_no_evidence(self, store):
        row = store.add(trial())
        with pytest.raises(InternalError, match="p_value is nan"):
            store.promote(row, replace(EVIDENCE, p_value=math.nan))
        assert store.promotions(key_of(MATMUL), ZEN) == []

    # Lookups

    def test_store_lookup_hits_what_was_measured_here(self, store):
        store.add(trial("best"))
        answer = store.lookup(key_of(MATMUL), ZEN, 1)
        assert isinstance(answer, Hit)
        assert answer.trial == trial("best")

    def test_store_lookup_on_another_machine_is_a_miss_that_names_the_fields(self, store):
        store.add(trial("best"))
        answer = store.lookup(key_of(MATMUL), SKY_8, 1)
        assert isinstance(answer, Miss)
        assert answer.differences == (
            Difference("arch", "znver4", "skylake"),
            Difference("threads", "2", "8"),
        )
        assert answer.reason == "arch: stored znver4, here skylake; threads: stored 2, here 8"
        assert [near.trial.actions for near in answer.nearest] == ["best"]

    def test_store_lookup_in_another_space_version_is_near(self, store):
        store.add(trial("best"))
        answer = store.lookup(key_of(MATMUL), ZEN, 2)
        assert isinstance(answer, Near)
        assert answer.reason == "space_version: stored 1, here 2"
        assert answer.nearest[0].trial.actions == "best"

    def test_store_lookup_of_an_unknown_kernel_says_so(self, store):
        store.add(trial())
        answer = store.lookup("0" * 32, ZEN, 1)
        assert answer == Miss((Difference("kernel", "", "0" * 32),))
        assert answer.reason == f"kernel unknown: {'0' * 32}"

    def test_store_lookup_of_a_kernel_without_an_ok_trial_says_so(self, store):
        store.add(trial(status=Status.TIMED_OUT))
        answer = store.lookup(key_of(MATMUL), ZEN, 1)
        assert isinstance(answer, Miss)
        assert answer.reason == (
            "trials: the store knows this kernel, but has no trial of it that was measured and "
            "right; tune it for longer"
        )

    def test_store_lookup_lists_the_nearest_first(self, store):
        store.add(trial("two fields off", fingerprint=SKY_8))
        store.add(trial("machine and space off", fingerprint=SKY, space_version=1))
        store.add(trial("one field off", fingerprint=SKY, space_version=2))
        answer = store.lookup(key_of(MATMUL), ZEN, 2)
        assert isinstance(answer, Miss)
        assert [near.trial.actions for near in answer.nearest] == [
            "one field off",
            "machine and space off",
            "two fields off",
        ]
        assert [len(near.differences) for near in answer.nearest] == [1, 2, 3]

    def test_store_lookup_prefers_this_machine_in_another_space_to_another_machine(self, store):
        store.add(trial("other machine", fingerprint=SKY, space_version=2))
        store.add(trial("this machine", space_version=1))
        answer = store.lookup(key_of(MATMUL), ZEN, 2)
        assert isinstance(answer, Near)
        assert [near.trial.actions for near in answer.nearest] == ["this machine", "other machine"]

    # Sessions, spend, names, counts

    def test_store_session_notes_how_it_was_run_and_when_it_ended(self, store):
        with store.session(
            "tune resnet18", 7, {"threads": 2, "budget_s": 60.0}, "0.1.0", "s1"
        ) as session:
            store.add(trial(session=session.id))
            (running,) = store.sessions()
        assert running.ended_s is None
        settings = '{"budget_s": 60.0, "threads": 2}'
        assert store.sessions() == [
            Session("s1", 500.0, 500.0, "tune resnet18", 7, settings, "0.1.0")
        ]

    def test_store_session_keeps_versions_and_the_state_of_the_machine(self, store):
        with store.session("tune mlp", 0, {}, "0.1.0", "s1", VERSIONS, STATE):
            pass
        (found,) = store.sessions()
        assert (found.versions, found.state) == (VERSIONS, STATE)

    def test_store_session_ends_when_its_block_is_interrupted(self, store):
        with pytest.raises(KeyboardInterrupt), store.session("tune mlp", 0, {}, "0.1.0"):
            raise KeyboardInterrupt
        assert store.sessions()[0].ended_s == 500.0

    def test_store_sessions_get_ids_of_their_own(self, store):
        with (
            store.session("a", 0, {}, "0.1.0") as first,
            store.session("b", 0, {}, "0.1.0") as second,
        ):
            assert first.id != second.id

    def test_store_session_id_is_used_once(self, store):
        with store.session("a", 0, {}, "0.1.0", "mine"):
            pass
        with (
            pytest.raises(StoreError, match="session id 'mine' is taken"),
            store.session("b", 0, {}, "0.1.0", "mine"),
        ):
            pass

    def test_store_session_seed_fits_64_bits(self, store):
        with (
            pytest.raises(StoreError, match="does not fit 64 bits"),
            store.session("a", 2**63, {}, "0.1.0"),
        ):
            pass

    def test_store_knows_a_session_by_its_trials(self, store):
        store.add(trial(session="imported"))
        assert store.sessions() == [Session("imported", 1000.0, None, "", 0, "{}", "")]

    def test_store_spend_adds_up_per_model_machine_and_settings(self, store):
        assert store.spent("model", ZEN, "beam") == 0.0
        assert store.add_spend("model", ZEN, "beam", 1.5) == 1.5
        assert store.add_spend("model", ZEN, "beam", 2.0) == 3.5
        store.add_spend("model", SKY, "beam", 10.0)
        store.add_spend("model", ZEN, "random", 20.0)
        assert store.spent("model", ZEN, "beam") == 3.5
        assert store.spent("other", ZEN, "beam") == 0.0

    def test_store_spend_that_marks_a_stopped_search_is_no_time_spent(self, store):
        store.add_spend("model", ZEN, "beam", 1.5)
        store.add_spend("model", ZEN, f"{STOPPED}patience=3 beam", 300.0)
        assert store.spent("model", ZEN, f"{STOPPED}patience=3 beam") == 300.0
        assert store.stats().spent_s == 1.5

    def test_store_counts_the_trials_of_sessions_under_a_policy(self, store):
        for i, session in enumerate(("s1", "s1", "s2", "s3")):
            store.add(replace(trial(f"unroll(axis=a{i})"), session=session))
        store.add(replace(trial("other", policy=Policy(cache="cold")), session="s1"))
        assert store.count({"s1", "s2"}, trial().policy) == 3
        assert store.count(["s1"], Policy(cache="cold")) == 1
        assert store.count(set(), trial().policy) == 0

    def test_store_lists_the_kernels_that_have_trials(self, store):
        store.name_kernel("kernel never measured", "nobody")
        store.add(trial("a"))
        store.add(trial("b"))
        assert store.kernels() == [(key_of(MATMUL), MATMUL)]
        assert store.kernels(trial("a").fingerprint) == [(key_of(MATMUL), MATMUL)]
        assert store.kernels(SKY) == []

    def test_store_spend_is_a_time(self, store):
        with pytest.raises(InternalError, match=r"spend of model m is -1\.0"):
            store.add_spend("m", ZEN, "beam", -1.0)

    def test_store_kernel_name_is_for_people_and_the_last_one_wins(self, store):
        assert store.kernel_name(key_of(MATMUL)) == ""
        store.name_kernel(MATMUL, "conv_1")
        store.add(trial())
        store.name_kernel(MATMUL, "matmul_64")
        assert store.kernel_name(key_of(MATMUL)) == "matmul_64"
        assert store.trials(key_of(MATMUL)) == [trial()]

    def test_store_stats_count_what_is_there(self, store):
        store.add(trial("a"))
        store.promote(store.add(trial("b")), EVIDENCE)
        store.add(trial("c", status=Status.WRONG, fingerprint=SKY))
        store.add(trial("d", status=Status.WRONG, text="kernel(other)", session="s2"))
        store.add_spend("m", ZEN, "beam", 2.0)
        stats = store.stats()
        assert {s: n for s, n in stats.by_status if n} == {Status.OK: 2, Status.WRONG: 2}
        assert [s for s, _ in stats.by_status] == list(Status)
        counted = (
            stats.trials,
            stats.unknown_status,
            stats.kernels,
            stats.fingerprints,
            stats.sessions,
        )
        assert counted == (4, 0, 2, 2, 2)
        assert (stats.promotions, stats.withdrawals, stats.spent_s) == (1, 0, 2.0)
        assert (stats.decisions, stats.latencies) == (0, 0)
        store.record_decision(decision("keep", fingerprint=SKY_8))
        store.record_latency(latency())
        stats = store.stats()
        assert (stats.decisions, stats.latencies, stats.kernels, stats.fingerprints) == (1, 1, 3, 3)
        assert stats.schema_version == SCHEMA_VERSION

    def test_store_verify_finds_nothing_wrong_with_what_it_wrote(self, store):
        store.promote(store.add(trial()), EVIDENCE)
        store.add(trial(status=Status.WRONG))
        store.add_spend("m", ZEN, "beam", 2.0)
        store.name_kernel("kernel(never measured)", "unused")
        store.record_decision(decision("keep"))
        store.record_latency(latency())
        assert store.verify() == []

    # Life

    @pytest.mark.parametrize(
        "write",
        [
            lambda s: s.add(trial()),
            lambda s: s.promote(1, EVIDENCE),
            lambda s: s.session("a", 0, {}, "0.1.0").__enter__(),
            lambda s: s.add_spend("m", ZEN, "beam", 1.0),
            lambda s: s.name_kernel(MATMUL, "name"),
            lambda s: s.record_decision(decision("keep")),
            lambda s: s.record_latency(latency()),
        ],
        ids=[
            "add",
            "promote",
            "session",
            "add_spend",
            "name_kernel",
            "record_decision",
            "record_latency",
        ],
    )
    def test_store_open_for_reading_refuses_to_write(self, opener, write):
        with opener("write"):
            pass
        with opener("read") as store:
            assert store.mode == "read"
            with pytest.raises(StoreError, match="is open for reading"):
                write(store)
            assert store.stats().trials == 0

    def test_store_refuses_use_after_it_is_closed(self, opener):
        store = opener("write")
        store.close()
        store.close()
        with pytest.raises(StoreError, match="is closed"):
            store.trials(key_of(MATMUL))
        with pytest.raises(StoreError, match="is closed"):
            store.add(trial())
