"""Schedules under Oclgrind: no races, no access past a buffer; planted faults are found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def oclgrind(*arguments: str) -> tuple[str, str]:
    """What ``tests.oclgrind_runs`` prints, and the reports. Skips where there is no Oclgrind."""
    unwritten = str(int("--plain" in arguments))
    settings = {"OCLGRIND_DATA_RACES": "1", "OCLGRIND_UNINITIALIZED": unwritten}
    path = os.pathsep.join([str(ROOT), *(p for p in sys.path if p)])
    ran = subprocess.run(
        [sys.executable, "-m", "tests.oclgrind_runs", *arguments],
        env=os.environ | settings | {"PYTHONPATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode == 4:
        pytest.skip("Oclgrind is not there: pip install 'pyopencl[oclgrind]'")
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout, "\n".join(line for line in ran.stderr.splitlines() if "Warning" not in line)


def counts(printed: str) -> tuple[int, int]:
    """Cases that ran, and those of them with shared memory."""
    found = re.search(r"ran (\d+) cases, (\d+) with shared memory", printed)
    assert found, printed
    return int(found[1]), int(found[2])


def test_oclgrind_reports_nothing_on_default_and_drawn_schedules():
    printed, reports = oclgrind("1")
    assert reports.strip() == "", reports[:3000]
    cases, shared = counts(printed)
    assert cases >= 60
    assert shared >= 20


def test_oclgrind_reports_no_use_of_what_nobody_wrote():
    printed, reports = oclgrind("--plain", "0")
    assert reports.strip() == "", reports[:3000]
    assert counts(printed)[1] >= 15


@pytest.mark.parametrize("name", ["gemm", "softmax"])
def test_oclgrind_reports_a_removed_barrier(name):
    printed, reports = oclgrind("--fault", "barrier", "0", name)
    assert "data race at local memory address" in reports, (printed, reports[:2000])
    assert counts(printed) == (1, 1)


def test_oclgrind_reports_a_store_past_the_end():
    _, reports = oclgrind("--fault", "bounds", "0", "gemm")
    assert "Invalid write of size 4 at global memory address" in reports, reports[:2000]


def test_oclgrind_reports_shared_memory_that_nobody_wrote():
    _, reports = oclgrind("--plain", "--fault", "unwritten", "0", "softmax")
    assert "Uninitialized" in reports, reports[:2000]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_oclgrind_reports_nothing_on_many_drawn_schedules():
    printed, reports = oclgrind("12")
    assert reports.strip() == "", reports[:3000]
    assert counts(printed)[1] >= 100
