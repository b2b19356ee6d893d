"""Packages that import their modules when a name is asked for: both of their lists are the same."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGES = (
    "compiling",
    "config",
    "db",
    "devices",
    "explain",
    "inference",
    "ir/rewrites",
    "ir/text",
    "opts",
    "planning",
    "tuning",
)


def _module(package: str) -> str:
    """The dotted name of a folder of the package."""
    return f"tunegrad.{package}".replace("/", ".")


def imported_for_checkers(package: str) -> dict[str, str]:
    """The module of each name that type checkers see."""
    file = importlib.import_module(_module(package)).__file__
    return {
        alias.asname: f"{_module(package)}.{node.module}"
        for node in ast.walk(ast.parse(Path(file or "").read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
        if alias.asname
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_see_the_names_that_there_are(package: str) -> None:
    assert importlib.import_module(_module(package)).__all__ == sorted(
        imported_for_checkers(package)
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_is_what_its_module_has(package: str) -> None:
    found = importlib.import_module(_module(package))
    for name, module in imported_for_checkers(package).items():
        assert getattr(found, name) is getattr(importlib.import_module(module), name)


def test_no_other_package_has_names_like_that() -> None:
    root = Path(sys.modules["tunegrad"].__file__ or "").parent
    found = [
        str(path.parent.relative_to(root))
        for path in sorted(root.rglob("__init__.py"))
        if "lazy_names(" in path.read_text(encoding="utf-8")
    ]
    assert tuple(found) == PACKAGES


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package of two modules: ``word``, which has a function of that name, and ``other``."""
    folder = tmp_path / "lazy_example"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from tunegrad.lazy import lazy_names\n"
        "__all__, __getattr__ = lazy_names(__name__, {'word': 'word Longer', 'other': 'value'})\n"
    )
    (folder / "word.py").write_text("def word(): return 1\nclass Longer: pass\n")
    (folder / "other.py").write_text("value = 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "lazy_example"
    for name in [n for n in sys.modules if n.partition(".")[0] == "lazy_example"]:
        del sys.modules[name]


def test_a_module_is_imported_when_one_of_its_names_is_asked_for(example: str) -> None:
    found = importlib.import_module(example)
    assert found.__all__ == ["Longer", "value", "word"]
    assert f"{example}.other" not in sys.modules
    assert found.value == 2
    assert f"{example}.other" in sys.modules
    assert f"{example}.word" not in sys.modules


def test_a_name_that_is_a_modules_too_stays_what_the_module_has(example: str) -> None:
    found = importlib.import_module(example)
    importlib.import_module(f"{example}.word")
    assert found.word() == 1


def test_a_module_is_still_reached_by_its_own_name(example: str) -> None:
    assert importlib.import_module(f"{example}.other").value == 2
    assert importlib.import_module(example).other.value == 2


def test_an_unknown_name_is_an_attribute_error(example: str) -> None:
    found = importlib.import_module(example)
    with pytest.raises(AttributeError, match="module 'lazy_example' has no attribute 'nothing'"):
        found.nothing  # noqa: B018
