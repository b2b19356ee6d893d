"""Rewrites keep the value of what they rewrite, by the law of each rule."""

from __future__ import annotations

import pytest

from tests import fuzzing
from tests.rewrite_laws import LAWS


@pytest.mark.parametrize("name", LAWS)
def test_rewrite_keeps_its_law(name: str) -> None:
    LAWS[name](fuzzing.rng(f"law {name}", 0))
