"""``import tunegrad``: every public name is there when it is asked for, and nothing is loaded
before.
"""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import tunegrad


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(tunegrad.__file__).parents[1],
    ).stdout.strip()


def test_names_are_sorted_and_listed() -> None:
    assert tunegrad.__all__ == sorted(tunegrad.__all__)
    assert set(tunegrad.__all__) <= set(dir(tunegrad))


@pytest.mark.parametrize("name", tunegrad.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(tunegrad, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'tunegrad' has no attribute 'nothing'"):
        tunegrad.nothing  # noqa: B018


def test_import_loads_not_even_numpy() -> None:
    code = (
        "import sys, tunegrad; print(sorted(m for m in sys.modules if m.partition('.')[0] "
        "in ('tunegrad', 'numpy')))"
    )
    assert run(code) == "['tunegrad', 'tunegrad.lazy', 'tunegrad.version']"


def test_tune_is_the_function_also_after_its_module_was_imported() -> None:
    code = (
        "import tunegrad\nfrom tunegrad.tune import tune\nimport "
        "tunegrad.tune\nprint(tunegrad.tune is tune)"
    )
    assert run(code) == "True"


def test_the_version_is_the_one_of_the_package() -> None:
    assert tunegrad.__version__ == metadata.version("tunegrad")
