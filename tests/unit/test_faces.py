"""Packages with a face: what stands outside imports from it, never from the modules behind it.

The forms of ``tunegrad.ir`` (``ir.kernel``, ``ir.program`` ...) are modules, a face each.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FACES = (
    "tunegrad.compiling",
    "tunegrad.ir.fusion",
    "tunegrad.ir.rewrites",
    "tunegrad.ir.text",
    "tunegrad.ir.validate",
    "tunegrad.ir.variants",
    "tunegrad.opts",
    "tunegrad.planning",
)


def modules_behind(faces: tuple[str, ...], path: Path, source: str) -> Iterator[str]:
    """Imports of modules behind a face in the file ``path``, in words. Files of the face's own
    layer are not outside: what stands below ``ir`` may know its neighbours.
    """
    package = path.parent.parts
    mine = ".".join(path.parts[:2])
    theirs = [face for face in faces if not face.startswith(mine)]
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ImportFrom):
            continue
        base = list(package[: len(package) - node.level + 1]) if node.level else []
        name = ".".join([*base, *([node.module] if node.module else [])])
        for face in theirs:
            if name.startswith(f"{face}."):
                yield f"{path}:{node.lineno}: imports {name}, not {face}"


def test_faces_are_what_others_import() -> None:
    faults = [
        fault
        for path in sorted((ROOT / "tunegrad").rglob("*.py"))
        for fault in modules_behind(FACES, path.relative_to(ROOT), path.read_text(encoding="utf-8"))
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("face", FACES)
def test_faces_have_the_names_that_they_list(face: str) -> None:
    found = importlib.import_module(face)
    assert all(hasattr(found, name) for name in found.__all__)


def test_faces_a_deep_import_is_seen() -> None:
    source = "from tunegrad.opts.lowering import emit"
    assert list(modules_behind(FACES, Path("tunegrad/db/a.py"), source))
    assert not list(modules_behind(FACES, Path("tunegrad/opts/a.py"), source))
    assert not list(modules_behind(FACES, Path("tunegrad/db/a.py"), "import tunegrad"))
