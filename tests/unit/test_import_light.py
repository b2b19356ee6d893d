"""``import tunegrad`` and ``tunegrad --help`` load few modules and nothing heavy: a start takes
what they take, on any machine.
"""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest

from tunegrad.frontend.model import is_torch_module

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


_AT_ONCE = """
import importlib.machinery, sys, threading
import numpy as np
import tunegrad as tg

x = tg.Tensor(np.arange(3, dtype=np.float32)) + 1
begun, go, found = threading.Event(), threading.Event(), []

class Finder:
    def find_spec(name, path, target=None):
        if name != "tunegrad.inference":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module

        def late(module):
            begun.set()
            go.wait()
            execute(module)

        spec.loader.exec_module = late
        return spec

sys.meta_path.insert(0, Finder)
one, other = (threading.Thread(target=lambda: found.append(x.numpy())) for _ in range(2))
one.start()
begun.wait()
other.start()
other.join(0.2)
go.set()
one.join()
other.join()
np.testing.assert_array_equal(found, [[1, 2, 3]] * 2)
"""


def test_threads_compute_their_first_results_at_once() -> None:
    """One of them imports what computes; the other waits for it."""
    subprocess.run([sys.executable, "-c", _AT_ONCE], cwd=ROOT, check=True)


def test_a_module_that_is_about_to_be_imported_has_no_layers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another thread has begun to import PyTorch."""
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    monkeypatch.setitem(sys.modules, "torch.nn", types.ModuleType("torch.nn"))
    assert not is_torch_module(0)
