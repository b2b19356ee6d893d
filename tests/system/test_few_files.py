"""Commands in a process that may open few files, or use few addresses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def test_tune_with_too_few_files_is_one_line(tmp_path: Path) -> None:
    command = f"ulimit -n 16; exec {sys.executable} -m tunegrad tune mlp --store {tmp_path}/s.db"
    run = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1] == (
        "error: workers can not start: a process may open 16 files here (ulimit -n), and 64 are "
        "needed"
    )
    assert "Traceback" not in run.stderr


def _tune(limit_mb: int, folder: Path) -> subprocess.CompletedProcess[str]:
    command = (
        f"ulimit -v {limit_mb << 10}; exec {sys.executable} -m tunegrad tune mlp --set "
        f"'sizes=[64,32,8]' --store {folder}/s.db --budget 2s"
    )
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("limit_mb", [300, 700])
def test_tune_with_too_few_addresses_is_one_line(limit_mb: int, tmp_path: Path) -> None:
    run = _tune(limit_mb, tmp_path)
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in run.stderr


def test_tune_takes_the_memory_that_a_process_may_use(tmp_path: Path) -> None:
    """What workers share was eight GB of addresses, whatever the limit."""
    run = _tune(3000, tmp_path)
    assert run.returncode == 0, run.stderr
