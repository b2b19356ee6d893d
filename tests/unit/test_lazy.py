"""Packages that import their modules when a name is asked for: type checkers see the same names.

And dataclasses whose methods are made when they are called, and operations whose family is imported
when they are asked for.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tunegrad import lazy
from tunegrad.frontend.operation import Family, in_place

ROOT = Path(sys.modules["tunegrad"].__file__ or "").parent
PACKAGES = [
    str(path.parent.relative_to(ROOT))
    for path in sorted(ROOT.rglob("__init__.py"))
    if "lazy_names(" in path.read_text(encoding="utf-8")
]


def _module(package: str) -> str:
    """The dotted name of a folder of the package."""
    return f"tunegrad.{package}".replace("/", ".")


def imported_for_checkers(package: str) -> dict[str, str]:
    """The module of each name that type checkers see."""
    file = importlib.import_module(_module(package)).__file__
    return {
        alias.name: f"{_module(package)}.{node.module}"
        for node in ast.walk(ast.parse(Path(file or "").read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
        if alias.name not in {"*", "lazy_names"}
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


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package of two modules: ``word``, which has a function of that name, and ``other``."""
    folder = tmp_path / "lazy_example"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from typing import TYPE_CHECKING\n"
        "from tunegrad.lazy import lazy_names\n"
        "if TYPE_CHECKING:\n"
        "    from .other import *  # noqa: F403\n"
        "    from .other import value\n"
        "    from .word import (\n        word, Longer,\n    )  # fmt: skip\n"
        "else:\n"
        "    __all__, __getattr__ = lazy_names(__name__)\n"
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


def both_decorators() -> list[Any]:
    """The same classes, of ours and of the standard library's decorator."""
    made = []
    for decorator in (lazy.dataclass, dataclasses.dataclass):

        @decorator(frozen=True, slots=True)
        class Base:
            """Of each kind of field."""

            kind: ClassVar[str] = "kind"
            a: int
            b: list[int] = dataclasses.field(default_factory=list, hash=False)
            c: int = dataclasses.field(default=3, compare=False)
            d: int = dataclasses.field(default=4, init=False, repr=False)
            e: int = dataclasses.field(default=5, kw_only=True)

        @decorator(frozen=True, slots=True)
        class Derived(Base):
            """With a field of its own."""

            f: str = "f"

            def __post_init__(self) -> None:
                object.__setattr__(self, "d", self.a + 1)

        @decorator(slots=True)
        class Changing:
            """With fields that can be set."""

            a: int
            b: int = 2

        made.append((Base, Derived, Changing))
    return made


def said(call: Callable[[], object]) -> str:
    """The result of a call as text, or the type and the words of its error."""
    try:
        return repr(call())
    except Exception as error:  # noqa: BLE001 - of any kind: both raise the same
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize(
    "of",
    [
        lambda base, derived, changing: base(1),
        lambda base, derived, changing: derived(1, [2], e=7, f="g"),
        lambda base, derived, changing: base(1, c=4) == base(1, c=5),
        lambda base, derived, changing: (base(1) == derived(1), base(1) == 1, base(1) != base(2)),
        lambda base, derived, changing: hash(base(1, [2])) == hash(base(1, [3])),
        lambda base, derived, changing: derived(1).d,
        lambda base, derived, changing: base(),
        lambda base, derived, changing: base(1, [], 3, 4),
        lambda base, derived, changing: setattr(base(1), "a", 2),
        lambda base, derived, changing: delattr(base(1), "a"),
        lambda base, derived, changing: dataclasses.replace(derived(1), a=3),
        lambda base, derived, changing: dataclasses.asdict(derived(1)),
        lambda base, derived, changing: (base.__match_args__, base.__slots__, derived.__slots__),
        lambda base, derived, changing: copy.deepcopy(derived(1, [2])),
        lambda base, derived, changing: (setattr(one := changing(1), "a", 5), one),
        lambda base, derived, changing: setattr(changing(1), "z", 2),
        lambda base, derived, changing: hash(changing(1)),
    ],
)
def test_a_dataclass_is_the_standard_librarys(of: Callable[..., object]) -> None:
    ours, theirs = (said(lambda made=made: of(*made)) for made in both_decorators())
    assert ours == theirs


def test_methods_of_a_dataclass_are_made_at_their_first_call() -> None:
    base, _, _ = both_decorators()[0]
    init, shown = vars(base)["__init__"], vars(base)["__repr__"]
    base(1)
    assert vars(base)["__init__"] is not init
    assert vars(base)["__repr__"] is shown


def test_operations_are_in_their_class_once_asked_for_and_two_threads_may_ask_at_once() -> None:
    family: Any = Family("tunegrad.frontend.ops.activation")

    class Holder:
        relu = rectified = family.relu
        relu_ = in_place(relu)

    asked = vars(Holder)["relu"]
    assert Holder.relu is Holder.rectified is vars(Holder)["relu"] is not asked
    assert asked.__get__(None, Holder) is Holder.relu
    assert Holder.relu_.__name__ == "relu_"
    assert vars(Holder)["relu_"] is Holder.relu_
