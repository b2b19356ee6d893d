"""Who ended a race is found by halves, and believed when it does so alone, twice."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tunegrad.errors import CandidateCrashed, CandidateFailure
from tunegrad.tuning.models import culprit

FAILURE = CandidateCrashed("SIGSEGV")


class Race:
    """Fails where one of ``bad`` runs; ``count`` counts races."""

    def __init__(self, *bad: int, only_once: bool = False) -> None:
        self.bad, self.only_once, self.count = set(bad), only_once, 0

    def __call__(self, few: Sequence[int]) -> CandidateFailure | None:
        self.count += 1
        if not self.bad & set(few):
            return None
        if self.only_once and len(few) == 1:
            self.bad.clear()
        return FAILURE


@pytest.mark.parametrize("bad", range(9))
def test_the_one_that_fails_is_found_in_few_races(bad: int) -> None:
    race = Race(bad)
    assert culprit(range(9), race) == (bad, FAILURE)
    assert race.count <= 4 + 2


def test_of_several_one_is_found() -> None:
    found = culprit(range(40), Race(3, 17, 31))
    assert found is not None
    assert found[0] in {3, 17, 31}


def test_who_fails_alone_only_once_is_not_blamed() -> None:
    assert culprit(range(8), Race(5, only_once=True)) is None


def test_a_race_that_ended_by_itself_has_no_culprit() -> None:
    assert culprit(range(8), Race()) is None
    assert culprit([], Race()) is None


def test_two_that_fail_only_together_are_not_blamed() -> None:
    assert culprit(range(8), lambda few: FAILURE if {1, 6} <= set(few) else None) is None
