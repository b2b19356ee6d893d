"""When a command was in time."""

from __future__ import annotations

import pytest

from benchmarks.budgets import in_time


@pytest.mark.parametrize(
    ("took_s", "budget_s", "stopped", "fine"),
    [
        (12.9, 10.0, "budget", True),
        (13.1, 10.0, "budget", False),
        (6.9, 10.0, "budget", False),
        (6.9, 10.0, "gain", True),
        (314.0, 300.0, "budget", True),
        (316.0, 300.0, "gain", False),
        (57.5, 60.0, "budget", True),
    ],
)
def test_command_is_in_time_within_5_percent_or_3_seconds(
    took_s: float, budget_s: float, stopped: str, fine: bool
) -> None:
    assert in_time(took_s, budget_s, stopped) is fine
