"""Two tunes compared: turns, the gap, and what it is measured against. No tune runs here."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from benchmarks.agreement import Agreement, agreement, in_turns
from tunegrad.tuning.models import turn_order


def test_agreement_takes_turns_whose_start_goes_round_and_drops_the_first_runs():
    calls = []

    def timer(name, seconds):
        def time(runs):
            calls.append(name)
            return [*[99.0] * (runs // 2), *[seconds] * (runs - runs // 2)]

        return time

    assert in_turns([timer("a", 1.0), timer("b", 2.0), timer("c", 3.0)], rounds=4) == [
        1.0,
        2.0,
        3.0,
    ]
    assert "".join(calls) == "abc" + "bca" + "cab" + "cba"


@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_turns_give_everyone_every_place_and_follow_themselves_equally_often(count):
    turns = [turn_order(count, n) for n in range(2 * count)]
    for place in range(count):
        assert Counter(turn[place] for turn in turns) == dict.fromkeys(range(count), 2)
    endless = [i for turn in turns * 2 for i in turn]
    repeats = Counter(a for a, b in pairwise(endless) if a == b)
    assert (
        max(repeats.values(), default=0) - min((repeats[i] for i in range(count)), default=0) <= 2
    )


@pytest.mark.parametrize(
    "pair", [((9.0, 10.0, 11.0), (10.5, 10.5, 10.5)), ((10.5, 10.2, 11.4), (10.0, 10.0, 10.0))]
)
def test_agreement_gap_is_of_the_medians_of_loads(pair):
    found = Agreement("m", 2, 5.0, pair, (1, 1))
    assert found.gap == pytest.approx(0.05)
    assert found.noise == pytest.approx(max(pair[0]) / min(pair[0]) - 1.0)


def test_agreement_starts_from_empty_stores_only(tmp_path):
    (tmp_path / "b.db").touch()
    with pytest.raises(SystemExit, match="holds stores already"):
        agreement("mlp", 1.0, 1, tmp_path)
