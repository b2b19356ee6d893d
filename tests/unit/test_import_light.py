"""``import tunegrad`` and ``tunegrad --help`` load few modules and nothing heavy: a start takes
what they take, on any machine.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAVY = {
    "click", "http", "lightgbm", "llvmlite", "msgspec", "numba", "onnx", "optuna", "pebble",
    "psutil", "pyopencl", "ray", "rich", "safetensors", "scipy", "sqlalchemy", "threadpoolctl",
    "torch",
}  # fmt: skip


def loaded(code: str, *flags: str) -> set[str]:
    """The modules that a fresh process has loaded after ``code``."""
    code = f"import sys\n{code}\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, *flags, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


def heavy(modules: set[str]) -> set[str]:
    return {m.partition(".")[0] for m in modules} & {*HEAVY, "numpy"}


def test_import_loads_few_modules_and_nothing_heavy() -> None:
    assert heavy(loaded("import tunegrad") - loaded("")) == set()
    # without what an environment loads at each start, which may be most of these
    modules = loaded("import tunegrad", "-S") - loaded("", "-S")
    assert len(modules) < 32, "they were 27 when this was written, of which Python's own are 24"


def test_help_loads_click_and_little_else() -> None:
    commands = ("tune", "run", "show", "explain", "store", "doctor")
    code = "from tunegrad.cli.app import run; run(['--help'])"
    modules = loaded(code)
    assert heavy(modules) == {"click"}
    assert len(modules) < 250, "they were 148 when this was written, of which click is 103"
    code += "".join(f"; run([{name!r}, '--help'])" for name in commands)
    assert heavy(loaded(code)) == {"click"}
