"""The tool that runs the slow tests: what it records, what it leaves out when it goes on, and its
page.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from tools import slow_tests
from tools.slow_tests import Ran, read_record

FACTS = {"revision": "0123456789ab", "dirty": False, "tree": "aa", "machine": "a machine"}
PASSED = Ran(
    "tests/a.py::test_a[1]",
    "passed",
    61.25,
    "",
    "2026-01-31T10:00:00+00:00",
    "0123456789ab",
    False,
    "aa",
    "m",
)
SAMPLE = """
import pytest

@pytest.mark.parametrize("n", [1, 2])
def test_good(n): pass

def test_bad(): assert 1 == 2

def test_skipped(): pytest.skip("no device")

@pytest.fixture
def broken():
    yield
    raise KeyError("torn down")

def test_torn(broken): pass
"""


def test_slow_tests_are_recorded_one_by_one(tmp_path: Path) -> None:
    path, record = tmp_path / "test_sample.py", tmp_path / "record.jsonl"
    path.write_text(SAMPLE, encoding="utf-8")
    script = (
        "import sys, pytest; from pathlib import Path; from tools.slow_tests import Recorder\n"
        f"pytest.main(['-q', '-p', 'no:randomly', '--rootdir', {str(tmp_path)!r}, {str(path)!r}], "
        f"plugins=[Recorder(Path({str(record)!r}), {FACTS!r})])"
    )
    subprocess.run(
        [sys.executable, "-c", script], cwd=slow_tests.ROOT, capture_output=True, check=True
    )
    found = {r.test.partition("::")[2]: r for r in read_record(record)}
    assert {name: r.outcome for name, r in found.items()} == {
        "test_good[1]": "passed", "test_good[2]": "passed", "test_bad": "failed",
        "test_skipped": "skipped",
        "test_torn": "failed",
    }  # fmt: skip
    assert "no device" in found["test_skipped"].why
    assert all(r.revision == FACTS["revision"] and r.seconds >= 0 for r in found.values())


def test_slow_tests_go_on_where_they_were_stopped() -> None:
    names = [f"tests/a.py::test_{x}" for x in "abcd"]
    known = [
        replace(PASSED, test=n, outcome=o)
        for n, o in zip(names, ("passed", "failed", "skipped"), strict=False)
    ]
    assert slow_tests._left(names, known, None) == names[3:]
    assert slow_tests._left(names, known, "failed") == [names[1], names[3]]
    assert slow_tests._left(names, known, "all") == names
    later = [*known, replace(PASSED, test=names[1])]
    assert slow_tests._left(names, later, "failed") == names[3:]
