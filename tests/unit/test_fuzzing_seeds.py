"""Seeds and counts of fuzzers."""

from __future__ import annotations

import pytest

from tests import fuzzing


def test_fuzzing_repeats_a_run_by_its_seed(monkeypatch):
    monkeypatch.setenv("TUNEGRAD_FUZZ_SEED", "7")
    drawn = fuzzing.rng("graphs", 3).random()
    assert fuzzing.rng("graphs", 3).random() == drawn
    assert fuzzing.rng("graphs", 4).random() != drawn
    monkeypatch.setenv("TUNEGRAD_FUZZ_SEED", "8")
    assert fuzzing.rng("graphs", 3).random() != drawn


def test_fuzzing_keeps_the_seed_that_a_run_was_given(monkeypatch):
    monkeypatch.setenv("TUNEGRAD_FUZZ_SEED", "1234")
    assert fuzzing.fix_seed() == 1234


def test_fuzzing_refuses_a_seed_that_is_no_number(monkeypatch):
    monkeypatch.setenv("TUNEGRAD_FUZZ_SEED", "now")
    with pytest.raises(ValueError, match="TUNEGRAD_FUZZ_SEED=now: a seed is a decimal number"):
        fuzzing.seed()


@pytest.mark.parametrize(("times", "drawn"), [("1", 20), ("2.5", 50), ("0.001", 1)])
def test_fuzzing_multiplies_how_many_cases_are_drawn(monkeypatch, times, drawn):
    monkeypatch.setenv("TUNEGRAD_FUZZ", times)
    assert fuzzing.count(20) == drawn
