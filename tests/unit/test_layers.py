"""Imports run down the layers, never up, and siblings on a row do not import each other; what has
a face is imported from it; docstrings open with a verb, or with a noun phrase that names the thing.
"""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

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


class Source(NamedTuple):
    """The parts of a file that the rules below are about."""

    imports: list[ast.Import | ast.ImportFrom]
    compared: list[ast.Compare]
    docstrings: list[tuple[int, str]]
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef]
    classes: list[ast.ClassDef]

    @classmethod
    def of(cls, text: str) -> Source:
        """All that stands anywhere in a text; docstrings with their lines, of private names too."""
        found = cls([], [], [], [], [])
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Import() | ast.ImportFrom():
                    found.imports.append(node)
                case ast.Compare():
                    found.compared.append(node)
                case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                    if said := ast.get_docstring(node):
                        found.docstrings.append((node.body[0].lineno, said))
                    if isinstance(node, ast.ClassDef):
                        found.classes.append(node)
                    elif not isinstance(node, ast.Module):
                        found.functions.append(node)
                case _:
                    pass
        return found


@cache
def read(path: Path) -> Source:
    """A file of the package, parsed once for all rules."""
    return Source.of(path.read_text(encoding="utf-8"))


# ---- layers


def imported(source: Source, package: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """(line, first component under ``tunegrad``) of every import in a file, wherever it stands.

    ``package`` is the path of the package that the file is in, for relative imports.
    """
    for node in source.imports:
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        else:
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            base += node.module.split(".") if node.module else []
            names = [[*base, alias.name] for alias in node.names]
        for parts in names:
            if parts[0] == "tunegrad" and len(parts) > 1:
                yield node.lineno, parts[1]


def broken(source: Source, path: Path) -> list[str]:
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


def runs_up() -> list[str]:
    return [fault for path in modules() for fault in broken(read(PACKAGE / path), path)]


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
    assert [text.split(": ", 1)[1] for text in broken(Source.of(source), Path(path))] == [fault]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("opts/a.py", "from tunegrad.ir import x\nfrom .b import y\nimport tunegrad.errors"),
        ("cli/a.py", "from tunegrad.tune import tune\nimport numpy"),
        ("opts/a.py", "from tunegrad import __version__"),
    ],
)
def test_downward_import_is_fine(path: str, source: str) -> None:
    assert broken(Source.of(source), Path(path)) == []


def asks_for_a_kind() -> list[str]:
    """Where something above the devices compares ``kind`` of a target, which a question of ability
    replaces.
    """
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if "devices" in path.relative_to(PACKAGE).parts:
            continue
        for node in read(path).compared:
            sides = [node.left, *node.comparators]
            words = {x.value for x in sides if isinstance(x, ast.Constant)}
            names = {x.attr for x in sides if isinstance(x, ast.Attribute)}
            if words & {"cpu", "gpu"} and "kind" in names:
                found.append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    return found


# ---- faces: what stands outside imports from them, never from the modules behind. The forms of
# ``tunegrad.ir`` (``ir.kernel``, ``ir.program`` ...), the languages of ``tunegrad.render`` and the
# front end's ``nn`` and ``torch`` are modules, a face each.

FACES = (
    "tunegrad.compiling",
    "tunegrad.config",
    "tunegrad.db",
    "tunegrad.devices",
    "tunegrad.devices.verifying",
    "tunegrad.explain",
    "tunegrad.inference",
    "tunegrad.ir.fusion",
    "tunegrad.ir.rewrites",
    "tunegrad.ir.text",
    "tunegrad.ir.validate",
    "tunegrad.ir.variants",
    "tunegrad.opts",
    "tunegrad.planning",
    "tunegrad.regress",
    "tunegrad.runtime",
    "tunegrad.search",
    "tunegrad.tune",
    "tunegrad.tuning",
)


def modules_behind(faces: tuple[str, ...], path: Path, source: Source) -> Iterator[str]:
    """Imports of modules behind a face in the file ``path``, in words. Files of the face's own
    layer are not outside: what stands below ``ir`` may know its neighbours.
    """
    package = path.parent.parts
    mine = ".".join(path.parts[:2])
    theirs = [face for face in faces if not face.startswith(mine)]
    for node in source.imports:
        if not isinstance(node, ast.ImportFrom):
            continue
        base = list(package[: len(package) - node.level + 1]) if node.level else []
        name = ".".join([*base, *([node.module] if node.module else [])])
        for face in theirs:
            if name.startswith(f"{face}.") and name not in faces:
                yield f"{path}:{node.lineno}: imports {name}, not {face}"


def passes_faces_by() -> list[str]:
    return [
        fault
        for path in sorted(PACKAGE.rglob("*.py"))
        for fault in modules_behind(FACES, path.relative_to(ROOT), read(path))
    ]


@pytest.mark.parametrize("face", FACES)
def test_faces_have_the_names_that_they_list(face: str) -> None:
    found = importlib.import_module(face)
    assert all(hasattr(found, name) for name in found.__all__)


def test_faces_a_deep_import_is_seen() -> None:
    deep, whole = Source.of("from tunegrad.opts.lowering import emit"), Source.of("import tunegrad")
    assert list(modules_behind(FACES, Path("tunegrad/db/a.py"), deep))
    assert not list(modules_behind(FACES, Path("tunegrad/opts/a.py"), deep))
    assert not list(modules_behind(FACES, Path("tunegrad/db/a.py"), whole))


# ---- docstrings

QUESTION = re.compile(r"(How|What|When|Where|Whether|Which|Who|Whom|Whose|Why)\b")
SHARE = 0.02
"""The part of all docstrings that may still open with a question word."""


@pytest.mark.parametrize(
    ("source", "opens"),
    [
        ('"""What a thing is."""', True),
        ('class A:\n    def _f(self):\n        """Whether it is so."""', True),
        ('async def f():\n    r"""\n    How many there are.\n    """', True),
        ('"""Whatever a file holds is data."""', False),
        ('def f():\n    """Return what was found."""', False),
        ('x = "What a thing is."', False),
    ],
)
def test_question_words_are_found_at_the_start_of_docstrings_alone(
    source: str, opens: bool
) -> None:
    assert any(QUESTION.match(text) for _, text in Source.of(source).docstrings) == opens


def opens_with_a_question() -> list[str]:
    """Docstrings that do, where they are more than may."""
    count = 0
    found: list[str] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for line, text in read(path).docstrings:
            count += 1
            if QUESTION.match(text):
                found.append(f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}")
    return found if len(found) > SHARE * count else []


WORDS = re.compile(r"\b(who|whom|whoever|nobody|somebody|everybody)\b", re.IGNORECASE)
MOST_WORDS = 10


def speaks_of_persons() -> list[str]:
    """Lines of the package in which a person is the subject, where they are over ``MOST_WORDS``."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if WORDS.search(line)
    ]
    return found if len(found) > MOST_WORDS else []


# ---- sizes of what a reader holds at once: the names of a file, the parameters of a function, the
# classes above a class. The files of a traced product: test_written_programs.

MOST_NAMES, MOST_PARAMETERS, DEEPEST = 35, 8, 3
DEEPEST_ERROR = 4
"""Of exceptions: the root, who can mend it, what is wrong, and a special case of that."""
OF_PYTORCH = ("frontend/nn/", "frontend/torch/aten/", "frontend/ops/convolution.py")
"""Files whose functions have the parameters that PyTorch's have."""


def names_of(source: Source) -> set[tuple[int, str | None, str]]:
    """Names that a file imports from modules of ours, wherever it does."""
    return {
        (node.level, node.module, alias.name)
        for node in source.imports
        if isinstance(node, ast.ImportFrom)
        and (node.level or (node.module or "").split(".")[0] == "tunegrad")
        for alias in node.names
    }


def parameters_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Parameters of a function, without the object of a method."""
    a = node.args
    listed = [*a.posonlyargs, *a.args]
    own = bool(listed) and listed[0].arg in ("self", "cls")
    return len(listed) + len(a.kwonlyargs) + bool(a.vararg) + bool(a.kwarg) - own


def depths(sources: Iterable[Source]) -> dict[str, tuple[int, bool]]:
    """Classes of ours from the top to each class, and True for exceptions.

    Classes of one name count as the deepest of them; bases of other packages do not count.
    """
    bases: dict[str, list[str]] = {}
    for node in (node for source in sources for node in source.classes):
        plain = (b.value if isinstance(b, ast.Subscript) else b for b in node.bases)
        bases.setdefault(node.name, []).extend(b.id for b in plain if isinstance(b, ast.Name))

    @cache
    def chain(name: str) -> tuple[str, ...]:
        ways = [chain(b) for b in bases.get(name, ()) if b != name and b in bases]
        return (name, *max(ways, key=len, default=()))

    return {n: (len(chain(n)), chain(n)[-1] == "TunegradError") for n in bases}


def imports_many_names() -> list[str]:
    return [
        f"{path}: {count}"
        for path in modules()
        if path.stem != "__init__" and (count := len(names_of(read(PACKAGE / path)))) > MOST_NAMES
    ]


def takes_many_parameters() -> list[str]:
    return [
        f"{path}:{node.lineno}: {node.name}: {count}"
        for path in modules()
        if not str(path).startswith(OF_PYTORCH)
        for node in read(PACKAGE / path).functions
        if (count := parameters_of(node)) > MOST_PARAMETERS
    ]


def is_deep() -> list[str]:
    return [
        f"{name}: {depth}"
        for name, (depth, error) in depths(read(PACKAGE / path) for path in modules()).items()
        if depth > (DEEPEST_ERROR if error else DEEPEST)
    ]


def test_sizes_of_a_planted_file_are_counted() -> None:
    source = Source.of(
        "from .a import b, c\nfrom tunegrad.d import e\nfrom numpy import f\n"
        "class A(g.B): ...\nclass B(A): ...\nclass C(B[int]):\n"
        "    def m(self, a, /, b, *, c, **d):\n        from .a import b, h\n"
    )
    assert (len(names_of(source)), parameters_of(source.functions[0])) == (4, 4)
    assert depths([source]) == {"A": (1, False), "B": (2, False), "C": (3, False)}


def test_imports_run_down_and_by_faces_and_docstrings_open_with_a_verb_or_a_noun() -> None:
    """One test: it takes seconds to read all files, in each process that does."""
    rules = (
        runs_up, asks_for_a_kind, passes_faces_by, opens_with_a_question, speaks_of_persons,
        imports_many_names, takes_many_parameters, is_deep,
    )  # fmt: skip
    assert {rule.__name__: found for rule in rules if (found := rule())} == {}
