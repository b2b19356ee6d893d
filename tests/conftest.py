"""What every test shares.

``benchmarks/`` can be imported, and an installed tunegrad wins over the checkout's. On a busy machine drawing examples
may be slow; that is no fault of a test.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Last on the path, not first: where the wheel is installed, the wheel is what is tested.
sys.path.append(str(Path(__file__).parents[1]))

settings.register_profile("tunegrad", suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tunegrad")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the schedules of the run came to, where there were any: how many were compared, and how."""
    checks = sys.modules.get("tests.schedule_checks")
    for what, n in sorted(checks.TOTALS.items()) if checks else ():
        terminalreporter.write_line(f"schedules: {n} {what}")
