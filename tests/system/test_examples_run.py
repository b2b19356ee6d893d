"""Every script of examples/ runs as it stands, with a small budget, in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
NEEDS = {"onnx_file": "onnx", "torch_compile": "torch"}
SLOW = {"nightly", "torch_compile"}
COUNTS = {"digits", "gpt", "resnet"}
"""They train for so many epochs or steps; the others tune for so many seconds."""
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in SCRIPTS]
)
def test_example_runs(name: str, tmp_path: Path) -> None:
    """Each script compares its results itself; how much it tunes depends on the machine."""
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"{NEEDS[name]} is not installed")
    places = {
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    ran = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py"), "2" if name in COUNTS else "0.5"],
        cwd=tmp_path,
        env={**os.environ, **places},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout


def test_examples_are_listed() -> None:
    listed = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [name for name in SCRIPTS if f"[{name}.py]({name}.py)" not in listed] == []
