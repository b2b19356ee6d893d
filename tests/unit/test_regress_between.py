"""Commits that made something slower are found, few are built, and noise is called no slowdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.simulated_nights import MODEL, Commits
from tunegrad.errors import UserError
from tunegrad.paired import shift_interval, signed_rank_p
from tunegrad.regress import bisecting
from tunegrad.regress.bisecting import Bisection, CommitError, Journal, Round

HISTORY = [str(n) for n in range(60)]


def planted(seed: int) -> tuple[int, dict[int, dict[int, float]]]:
    """A commit after the first that makes one to three of eight kernels 5 to 20 % slower."""
    rng = np.random.default_rng(1000 + seed)
    commit, ratio = int(rng.integers(1, 60)), float(rng.uniform(1.05, 1.2))
    kernels = rng.choice(8, int(rng.integers(1, 4)), replace=False)
    return commit, {commit: {int(k): ratio for k in kernels}}


def found(seed: int, slower: Mapping[int, Mapping[int, float]]) -> tuple[Bisection, Commits]:
    commits = Commits(seed, slower)
    decision = Bisection(HISTORY, commits)
    decision.run()
    return decision, commits


def test_of_twenty_planted_slowdowns_eighteen_are_named_each_by_few_builds() -> None:
    named = 0
    for seed in range(20):
        commit, slower = planted(seed)
        decision, commits = found(seed, slower)
        named += [a.commit for a in decision.alerts] == [str(commit)]
        between = set(commits.builds) - {HISTORY[0], HISTORY[-1]}
        assert len(between) <= 6
        assert len(commits.builds) == len(set(commits.builds)) == len(between) + 2
    assert named >= 18


def test_of_twenty_unchanged_pairs_none_is_called_slower() -> None:
    for seed in range(20):
        decision, commits = found(seed, {})
        assert not decision.alerts
        assert commits.builds == [HISTORY[0], HISTORY[-1]]


def test_twenty_slowdowns_of_one_history_are_alerts_of_their_own() -> None:
    rng = np.random.default_rng(7)
    at = sorted(int(n) for n in rng.choice(np.arange(1, 60), 20, replace=False))
    slower = {n: {int(rng.integers(8)): float(rng.uniform(1.05, 1.2))} for n in at}
    decision, commits = found(7, slower)
    named = [int(a.commit) for a in decision.alerts if not a.others]
    assert set(named) <= set(at)
    assert len(named) == len(set(named)) >= 18
    assert len(commits.builds) <= 60


def test_all_that_one_commit_made_slower_is_one_alert() -> None:
    decision, _ = found(3, {41: dict.fromkeys(range(8), 1.1)})
    (alert,) = decision.alerts
    assert (alert.commit, alert.before, alert.others) == ("41", "40", ())
    assert [r.series for r in alert.rows] == [MODEL, *(f"{MODEL}: k{k}" for k in range(8))]
    for row in alert.rows:
        assert row.interval is not None
        assert 1.05 < row.interval[0] < row.ratio < row.interval[1] < 1.15


def test_what_slows_the_yardsticks_by_more_is_no_commit() -> None:
    slower = {41: dict.fromkeys(range(8), 1.1)}
    for yardstick in (8, 9):
        decision, commits = found(3, {41: slower[41] | {yardstick: 1.2}})
        assert not decision.alerts
        assert commits.builds == [HISTORY[0], HISTORY[-1]]
    assert found(3, {41: slower[41] | {8: 1.02, 9: 1.02}})[0].alerts


def test_a_slowdown_that_is_spread_names_no_commit_alone_and_builds_few() -> None:
    for seed in range(3, 8):
        decision, commits = found(seed, {n: {1: 1.005} for n in range(1, 60)})
        assert decision.alerts
        assert all(a.others for a in decision.alerts)
        assert len(commits.builds) <= 20


def test_commits_that_do_not_build_or_run_are_skipped() -> None:
    commits = Commits(4, {20: {1: 1.3}}, broken=range(28, 33), crash=(16,))
    decision = Bisection(HISTORY, commits)
    decision.run()
    (alert,) = decision.alerts
    assert (alert.commit, alert.others) == ("20", ())
    skipped = {c: why for c, why in decision.built.items() if why}
    assert skipped["29"] == "no rule to make target"
    assert skipped["16"] == "signal 11"


def test_where_those_between_do_not_run_the_alert_names_them() -> None:
    decision = Bisection(HISTORY, Commits(5, {20: {1: 1.3}}, broken=(19, 20)))
    decision.run()
    (alert,) = decision.alerts
    assert (alert.before, alert.others, alert.commit) == ("18", ("19", "20"), "21")


class Renamed(Commits):
    """Has a kernel under another name for some commits."""

    def round(self, commits: Sequence[str], turns: int = 5) -> Round:
        seen = super().round(commits, turns)
        other = any(25 <= int(c) < 33 for c in commits)
        return {s: by for s, by in seen.items() if not (other and s == f"{MODEL}: k1")}


def test_commits_without_the_series_are_left_out() -> None:
    decision = Bisection(HISTORY, Renamed(4, {20: {1: 1.3}}))
    decision.run()
    (alert,) = decision.alerts
    assert (alert.commit, alert.before, alert.others) == ("20", "19", ())
    beside = Bisection(HISTORY, Renamed(4, {30: {1: 1.3}}))
    beside.run()
    (alert,) = beside.alerts
    assert (alert.before, alert.commit) == ("24", "33")
    assert alert.others == tuple(str(n) for n in range(25, 33))


def test_an_end_that_does_not_run_is_an_error() -> None:
    with pytest.raises(CommitError, match="no rule to make target"):
        Bisection(HISTORY, Commits(5, {}, broken=(59,))).run()


# ---- the journal


class Stopped(Commits):
    """Is killed at a round."""

    stop = 25

    def round(self, commits: Sequence[str], turns: int = 5) -> Round:
        if self.rounds >= self.stop:
            raise KeyboardInterrupt
        return super().round(commits, turns)


def test_a_run_that_was_killed_goes_on_and_decides_the_same(tmp_path: Path) -> None:
    path, slower = tmp_path / "journal.jsonl", {33: {2: 1.1}}
    commits = Stopped(6, slower)
    with pytest.raises(KeyboardInterrupt):
        journaled(path, commits)
    with path.open("ab") as file:
        file.write(b'["round 0 59",{"a')  # what a kill left of a line
    commits.stop = 1000
    decision = journaled(path, commits)
    whole, alone = found(6, slower)
    assert decision.alerts == whole.alerts
    assert (commits.rounds, len(commits.builds)) == (alone.rounds, len(alone.builds))


def test_what_is_finished_is_read_and_fresh_measures_again(tmp_path: Path) -> None:
    path, commits = tmp_path / "journal.jsonl", Commits(6, {33: {2: 1.1}})
    once = journaled(path, commits)
    rounds = commits.rounds
    assert journaled(path, commits).alerts == once.alerts
    assert commits.rounds == rounds
    assert [a.commit for a in journaled(path, commits, fresh=True).alerts] == ["33"]
    assert commits.rounds > rounds


def test_a_journal_of_something_else_is_not_gone_on_with(tmp_path: Path) -> None:
    path, commits = tmp_path / "journal.jsonl", Commits(6, {})
    journaled(path, commits)
    rounds = commits.rounds
    journaled(path, commits, begun="another")
    assert commits.rounds > rounds


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"no json",
        b"\xff",
        b"3",
        b'["round 0 59"]',
        b'["round 0 59",{"k":{"0":["1"]}}]',
        b"[\xff]",
    ],
)
def test_a_damaged_journal_is_an_error_that_says_what_helps(tmp_path: Path, line: bytes) -> None:
    path, commits = tmp_path / "journal.jsonl", Commits(6, {})
    journaled(path, commits)
    known = path.read_bytes()
    path.write_bytes(known + line + b"\n" + known.splitlines(keepends=True)[-1])
    with pytest.raises(UserError, match="it is damaged, and --fresh begins anew: "):
        journaled(path, commits)
    assert not journaled(path, commits, fresh=True).alerts


def test_two_runs_of_the_same_are_not_one(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, "this", Commits(6, {}), fresh=False)
    with pytest.raises(UserError, match="another `regress --between` of these is running"):
        Journal(path, "this", Commits(6, {}), fresh=False)
    journal.close()


def journaled(
    path: Path, commits: Commits, *, begun: str = "this", fresh: bool = False
) -> Bisection:
    journal = Journal(path, begun, commits, fresh=fresh)
    try:
        decision = Bisection(HISTORY, journal)
        decision.run()
    finally:
        journal.close()
    return decision


# ---- the test


def test_the_signed_rank_test_is_that_of_the_tables() -> None:
    """Of twelve values, ranks of at most 2 below 0 have 3 of 4,096 chances."""
    values = [0.01 * n for n in range(1, 13)]
    assert signed_rank_p([-v for v in values]) == 1 / 4096
    assert signed_rank_p([-values[0], values[1], *(-v for v in values[2:])]) == 3 / 4096
    assert signed_rank_p([]) == 1.0
    middle, within = shift_interval(values)
    assert middle == pytest.approx(0.065)
    assert within == pytest.approx((0.04, 0.09), abs=0.011)
    assert shift_interval(values[:5])[1] is None


def test_rounds_without_a_difference_speak_against_one() -> None:
    slower = [0.1, 0.2, 0.3, 0.4]
    assert bisecting._chance(slower) == 2.0**-4
    assert bisecting._chance([0.0, *slower]) == 2 * 2.0**-5
    assert bisecting._chance([0.0, 0.0]) == 1.0
