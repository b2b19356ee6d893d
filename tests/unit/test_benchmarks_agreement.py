"""Two tunes compared: turns, the gap, and what it is measured against. No tune runs here."""

from __future__ import annotations

import pytest

from benchmarks.agreement import Agreement, agreement, in_turns


def test_agreement_takes_turns_in_both_directions_and_drops_the_first_run():
    calls = []

    def timer(name, seconds):
        def time(runs):
            calls.append(name)
            return [99.0, *[seconds] * (runs - 1)]

        return time

    assert in_turns([timer("a", 1.0), timer("b", 2.0), timer("c", 3.0)], rounds=2, runs=3) == [1.0, 2.0, 3.0]
    assert calls == ["a", "b", "c", "c", "b", "a"]


@pytest.mark.parametrize("pair", [(10.0, 10.5), (10.5, 10.0)])
def test_agreement_gap_is_the_slower_over_the_faster(pair):
    found = Agreement("m", 2, 5.0, pair, 10.0, (1, 1))
    assert found.gap == pytest.approx(0.05)
    assert found.noise == pytest.approx(pair[0] / 10.0 - 1.0)


def test_agreement_starts_from_empty_stores_only(tmp_path):
    (tmp_path / "b.db").touch()
    with pytest.raises(SystemExit, match="holds stores already"):
        agreement("mlp", 1.0, 1, tmp_path)
