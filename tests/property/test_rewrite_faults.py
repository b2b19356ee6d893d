"""Faults planted in rewrites are seen by the law of the rule that has them."""

from __future__ import annotations

import random

import pytest

from tests.rewrite_faults import EVERY_LAW, FAULTS, Fault, planted
from tunegrad.errors import TunegradError

SEEN = (
    AssertionError, TunegradError, ValueError, IndexError, AttributeError, TypeError, KeyError,
    RecursionError,
)  # fmt: skip
"""A fault shows as another value, or as a graph or a kernel that is none."""


def is_seen(fault: Fault, case: int) -> bool:
    """Return True where the law of a rule fails while the rule has this fault.

    Cases are the same in every run: laws are drawn anew for each commit, faults are not.
    """
    with planted(fault):
        try:
            EVERY_LAW[fault.law](random.Random(f"fault {fault.name} {case}"))
        except SEEN:
            return True
    return False


def test_rewrites_have_a_hundred_faults_that_differ() -> None:
    assert len({f.name for f in FAULTS}) == len(FAULTS) >= 100
    assert {f.law for f in FAULTS} <= EVERY_LAW.keys()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_fault_in_a_rewrite_is_seen_by_its_law(fault: Fault) -> None:
    assert any(is_seen(fault, case) for case in range(2))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_fault_in_a_rewrite_is_seen_a_hundred_times(fault: Fault) -> None:
    missed = [case for case in range(100) if not is_seen(fault, case)]
    assert missed == []
