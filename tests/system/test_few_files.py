"""Commands in a process that may open few files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_tune_with_too_few_files_is_one_line(tmp_path: Path) -> None:
    command = f"ulimit -n 16; exec {sys.executable} -m tunegrad tune mlp --store {tmp_path}/s.db"
    run = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1] == (
        "error: workers can not start: a process may open 16 files here (ulimit -n), and 64 are "
        "needed"
    )
    assert "Traceback" not in run.stderr
