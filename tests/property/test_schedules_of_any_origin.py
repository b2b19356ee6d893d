"""Schedules of every origin, raw ones too: what is legal computes what its kernel says, compiled,
on two threads.
"""

from __future__ import annotations

import pytest

from tests.schedule_checks import COMPILED, INTERPRETED, TOO_LARGE
from tests.schedule_fuzzer import KERNELS, ORIGINS, fuzz

DRAWS = len(ORIGINS)


@pytest.mark.parametrize("name", KERNELS)
def test_schedules_of_any_origin_agree_when_compiled(name: str) -> None:
    counts = fuzz(name, range(DRAWS))
    assert sum(counts[f"drawn: {origin}"] for origin in ORIGINS) == DRAWS
    unread = counts["text that does not parse"] + counts["refused when lowered"]
    assert counts["refused when lowered: a race"] == 0, "an action let it through"
    assert counts[INTERPRETED] + counts[TOO_LARGE] + unread == DRAWS
    assert counts[COMPILED] >= DRAWS - unread - 1
    assert counts[COMPILED] >= DRAWS // 2
