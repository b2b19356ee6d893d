"""Rewrites keep the value of what they rewrite, by the law of each rule."""

from __future__ import annotations

import pytest

from tests import fuzzing
from tests.rewrite_faults import FAULTS, Fault, planted
from tests.rewrite_graph_laws import GRAPH_LAWS
from tests.rewrite_index_laws import INDEX_LAWS
from tests.rewrite_kernel_laws import KERNEL_LAWS
from tests.rewrite_laws import LAWS
from tunegrad.errors import TunegradError

EVERY = LAWS | INDEX_LAWS | GRAPH_LAWS | KERNEL_LAWS


@pytest.mark.parametrize("name", EVERY)
def test_rewrite_keeps_its_law(name: str) -> None:
    for case in range(fuzzing.count(1)):
        EVERY[name](fuzzing.rng(f"law {name}", case))


def test_rewrites_have_a_hundred_faults_that_differ() -> None:
    assert len({f.name for f in FAULTS}) == len(FAULTS) >= 100
    assert {f.law for f in FAULTS} <= EVERY.keys()


SEEN = (AssertionError, TunegradError, ValueError, IndexError, AttributeError, TypeError, KeyError)
"""A fault shows as another value, or as a graph or a kernel that is none."""


def is_seen(fault: Fault, case: int) -> bool:
    """Whether the law of a rule fails while the rule has this fault."""
    with planted(fault):
        try:
            EVERY[fault.law](fuzzing.rng(f"fault {fault.name}", case))
        except SEEN:
            return True
    return False


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_fault_in_a_rewrite_is_seen_by_its_law(fault: Fault) -> None:
    assert is_seen(fault, 0)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_fault_in_a_rewrite_is_seen_a_hundred_times(fault: Fault) -> None:
    missed = [case for case in range(100) if not is_seen(fault, case)]
    assert missed == []
