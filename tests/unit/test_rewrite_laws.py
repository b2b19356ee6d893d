"""Rewrites keep the value of what they rewrite, by the law of each rule."""

from __future__ import annotations

import pytest

from tests import fuzzing
from tests.rewrite_faults import EVERY_LAW


@pytest.mark.parametrize("name", EVERY_LAW)
def test_rewrite_keeps_its_law(name: str) -> None:
    for case in range(fuzzing.count(1)):
        EVERY_LAW[name](fuzzing.rng(f"law {name}", case))
