"""``import tunegrad``: every public name is there when it is asked for, and nothing is loaded
before.
"""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import tunegrad


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(tunegrad.__file__).parents[1],
    ).stdout.strip()


def test_what_dir_lists_is_sorted_exported_and_there() -> None:
    assert dir(tunegrad) == sorted(dir(tunegrad)) == tunegrad.__all__
    assert len(tunegrad.__all__) > 300
    assert all(getattr(tunegrad, name) is not None for name in tunegrad.__all__)


def test_what_the_front_door_uses_itself_is_no_name_of_it() -> None:
    assert not {"Any", "TYPE_CHECKING", "annotations", "frontend", "ir", "lazy"} & {*dir(tunegrad)}


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
