"""``import tunegrad`` and ``tunegrad --help`` load nothing heavy and take no time worth naming."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = {
    "click",
    "http",
    "llvmlite",
    "msgspec",
    "numba",
    "onnx",
    "optuna",
    "pebble",
    "psutil",
    "pyopencl",
    "rich",
    "scipy",
}
HEAVY |= {"lightgbm", "ray", "safetensors", "sqlalchemy", "threadpoolctl", "torch"}


def loaded(code: str) -> set[str]:
    """Top-level packages that a fresh process has loaded after ``code``."""
    code = (
        f"import sys\n{code}\nprint('\\n'.join({{m.partition('.')[0] for m in "
        f"sys.modules}}), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


def extra_s(code: str, rounds: int = 5) -> float:
    """CPU seconds of a process that runs ``code``, less those of one that runs nothing: the least
    of each, which take turns.
    """

    def once(text: str) -> float:
        begun = os.times()
        subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, check=True)
        ended = os.times()
        return (
            ended.children_user + ended.children_system
            - begun.children_user - begun.children_system
        )  # fmt: skip

    turns = [(once("pass"), once(code)) for _ in range(rounds)]
    return min(loaded_s for _, loaded_s in turns) - min(bare_s for bare_s, _ in turns)


HELP = "from tunegrad.cli.app import run; run(['--help'])"


def test_import_loads_nothing_heavy() -> None:
    assert loaded("import tunegrad") & HEAVY == set()


def test_help_loads_click_and_nothing_else() -> None:
    assert loaded(HELP) & (HEAVY | {"numpy"}) == {"click"}


@pytest.mark.parametrize("command", ["tune", "run", "show", "explain", "store", "doctor"])
def test_help_of_a_command_loads_click_and_nothing_else(command: str) -> None:
    assert loaded(HELP.replace("'--help'", f"'{command}', '--help'")) & (HEAVY | {"numpy"}) == {
        "click"
    }


def test_import_takes_less_than_200_ms_over_bare_python() -> None:
    assert extra_s("import tunegrad") < 0.2


def test_help_takes_less_than_300_ms_over_bare_python() -> None:
    assert extra_s(HELP) < 0.3
