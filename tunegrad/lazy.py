"""Names of a package whose modules are imported when one of their names is asked for.

Such a package says its names twice: as imports for type checkers, and as a table for the runtime.

    if TYPE_CHECKING:
        from .why import Why as Why
        from .why import why as why
    else:
        __all__, __getattr__ = lazy_names(__name__, {"why": "Why why"})

``tests/unit/test_lazy.py`` holds the two equal. It is what ``lazy_loader.attach`` of Scientific
Python's SPEC 1 does; that one imports more than a process that starts light should.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from types import ModuleType

__all__ = ["before_modules", "lazy_names", "unknown"]


def lazy_names(package: str, homes: Mapping[str, str]) -> tuple[list[str], Callable[[str], object]]:
    """``__all__`` and ``__getattr__`` (PEP 562) of ``package``: ``homes`` has the names of each of
    its modules, with spaces between them.

    A name that is a module's as well means what the module has of that name.
    """
    modules = {name: module for module, names in homes.items() for name in names.split()}
    if same := modules.keys() & homes.keys():
        before_modules(package, same)

    def find(name: str) -> object:
        if name not in modules:
            raise unknown(f"module {package!r}", name, modules.keys)
        return getattr(importlib.import_module(f"{package}.{modules[name]}"), name)

    return sorted(modules), find


def unknown(owner: str, name: str, names: Callable[[], Iterable[str]]) -> AttributeError:
    """The error that ``owner`` has no attribute ``name``, and which of its ``names`` is like it.

    It has a name of its own, so that Python's traceback adds no second guess.
    """
    said = f"{owner} has no attribute {name!r}"
    if not name.startswith("_"):  # what protocols ask for
        from difflib import get_close_matches

        near = get_close_matches(name, names(), n=1)
        said += f"; did you mean {near[0]!r}?" if near else ""
    return AttributeError(said, name="")


def before_modules(package: str, names: Collection[str]) -> None:
    """Keeps ``names`` of ``package`` from becoming the modules of the same names, as they would
    when these are imported.
    """

    class Package(ModuleType):
        def __setattr__(self, name: str, value: object) -> None:
            if not (name in names and isinstance(value, ModuleType)):
                super().__setattr__(name, value)

    sys.modules[package].__class__ = Package
