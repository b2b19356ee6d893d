"""Imports run down the layers, never up, and siblings on a row do not import each other.

Standard library only.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "tunegrad"

# Top to bottom. A row of several holds siblings.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("__main__",),
    ("cli",),
    ("regress",),
    ("tune",),
    ("explain",),
    ("tuning",),
    ("torch",),
    ("inference",),
    ("compiling", "planning"),
    ("pipeline",),
    ("models",),
    ("linalg", "nn"),
    ("frontend",),
    ("search", "db", "runtime"),
    ("devices",),
    ("opts", "render"),
    ("ir",),
    ("events", "config"),
    ("data", "object_cache", "reports", "trial", "untrusted"),
    ("errors", "forks", "lazy", "paired", "trees", "version"),
)
ROW = {name: row for row, names in enumerate(LAYERS) for name in names}


def imported(source: str, package: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """(line, first component under ``tunegrad``) of every import in ``source``, wherever in the
    file it stands.

    ``package`` is the path of the package that the file is in, for relative imports.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            base += node.module.split(".") if node.module else []
            names = [[*base, alias.name] for alias in node.names]
        else:
            continue
        for parts in names:
            if parts[0] == "tunegrad" and len(parts) > 1:
                yield node.lineno, parts[1]


def broken(source: str, path: Path) -> list[str]:
    """Every import of the file ``path`` (relative to the package) that breaks the rule, in
    words.
    """
    package = ("tunegrad", *path.parent.parts)
    mine = path.parts[0].removesuffix(".py")
    faults = []
    for line, theirs in imported(source, package):
        if theirs == mine or theirs not in ROW:
            continue  # itself, or a name that the package's front door exports
        if ROW[theirs] < ROW[mine]:
            faults.append(f"{path}:{line}: {mine} imports {theirs}, which is above it")
        elif ROW[theirs] == ROW[mine]:
            faults.append(f"{path}:{line}: {mine} imports {theirs}, its sibling")
    return faults


def modules() -> list[Path]:
    return sorted(
        p.relative_to(PACKAGE)
        for p in PACKAGE.rglob("*.py")
        if p.parent != PACKAGE or p.stem != "__init__"
    )


def test_every_import_runs_down() -> None:
    faults = [
        fault
        for path in modules()
        for fault in broken((PACKAGE / path).read_text(encoding="utf-8"), path)
    ]
    assert not faults, "\n".join(faults)


def test_every_module_has_a_layer() -> None:
    stray = {path.parts[0].removesuffix(".py") for path in modules()} - ROW.keys()
    assert not stray, f"name a layer for: {', '.join(sorted(stray))}"


def test_every_package_has_an_init() -> None:
    bare = {
        path.parent for path in PACKAGE.rglob("*.py") if not (path.parent / "__init__.py").is_file()
    }
    assert not bare, "a wheel would leave these out: " + ", ".join(
        str(p.relative_to(ROOT)) for p in sorted(bare)
    )


def test_import_linter_holds_the_same_layers() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "importlinter"
    ]
    rows = settings["contracts"][0]["layers"]
    assert tuple(tuple(n.strip(" ()") for n in row.split("|")) for row in rows) == LAYERS


@pytest.mark.parametrize(
    ("path", "source", "fault"),
    [
        ("ir/a.py", "from tunegrad.opts import x", "ir imports opts, which is above it"),
        ("ir/a.py", "def f():\n    import tunegrad.cli.app", "ir imports cli, which is above it"),
        ("ir/deep/a.py", "from ...opts import x", "ir imports opts, which is above it"),
        ("ir/a.py", "from tunegrad import render", "ir imports render, which is above it"),
        ("db/a.py", "from tunegrad.search import x", "db imports search, its sibling"),
        ("config.py", "from . import events", "config imports events, its sibling"),
        ("errors.py", "from .trial import Trial", "errors imports trial, which is above it"),
    ],
)
def test_planted_fault_is_found(path: str, source: str, fault: str) -> None:
    assert [text.split(": ", 1)[1] for text in broken(source, Path(path))] == [fault]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("opts/a.py", "from tunegrad.ir import x\nfrom .b import y\nimport tunegrad.errors"),
        ("cli/a.py", "from tunegrad.tune import tune\nimport numpy"),
        ("opts/a.py", "from tunegrad import __version__"),
    ],
)
def test_downward_import_is_fine(path: str, source: str) -> None:
    assert broken(source, Path(path)) == []
