"""Every script and notebook of examples/ runs, with a small budget, in an empty folder."""

from __future__ import annotations

import json
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
    ran = started(tmp_path, str(FOLDER / f"{name}.py"), "2" if name in COUNTS else "0.5")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout


def test_cells_of_the_notebook_run(tmp_path: Path) -> None:
    """In order, in a process without a main module's file, as in a notebook's kernel."""
    notebook = json.loads((FOLDER / "own_model.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    text = "\n".join(cells).replace("BUDGET_S = 20.0", "BUDGET_S = 0.5")
    ran = started(tmp_path, "-c", text)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("matmul 8x10x32") == 2


def started(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A finished process of this Python, with a cache of its own."""
    places = {"XDG_CACHE_HOME": str(folder / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, *words], cwd=folder, env={**os.environ, **places},
        capture_output=True, text=True, check=False)  # fmt: skip


def test_examples_are_listed() -> None:
    listed = (FOLDER / "README.md").read_text(encoding="utf-8")
    names = [path.name for path in FOLDER.iterdir() if path.suffix in {".ipynb", ".py"}]
    assert [name for name in names if f"[{name}]({name})" not in listed] == []
