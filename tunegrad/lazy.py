"""Work that a process does not do before it is asked for: imports of a package's modules, and
methods of dataclasses.

A package whose modules are imported when one of their names is asked for has these names as imports
for type checkers. ``lazy_names`` reads the same lines for the runtime:

    # mypy: implicit-reexport
    if TYPE_CHECKING:
        from .why import Why, why
    else:
        __all__, __getattr__ = lazy_names(__name__)

It is what ``lazy_loader.attach_stub`` of Scientific Python's SPEC 1 does with a file of stubs; that
one imports more than a process that starts light should.

``dataclass`` is the standard library's. That compiles six methods a class when its module is
imported, half a millisecond, and a process calls few of them: here each is made at its first call.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from types import ModuleType

__all__ = ["before_modules", "dataclass", "lazy_names", "logger", "sha256", "unknown"]

TYPE_CHECKING = False  # as typing's, which takes longer to import than all of this

_LITTLE_BYTES = 1 << 18

if TYPE_CHECKING:
    from dataclasses import dataclass
    from hashlib import sha256
    from logging import Logger
else:

    def sha256(data):
        """``hashlib.sha256``; of little data without OpenSSL, which takes 2 ms to load, as the
        standard library's ``random`` does without.
        """
        if len(data) < _LITTLE_BYTES and "hashlib" not in sys.modules:
            with suppress(ImportError):
                lean = "_sha2" if sys.version_info >= (3, 12) else "_sha256"
                return importlib.import_module(lean).sha256(data)
        import hashlib

        return hashlib.sha256(data)

    def dataclass(*, frozen=False, slots=False, eq=True, kw_only=False, weakref_slot=False):
        """``dataclasses.dataclass`` whose methods are made when they are first called.

        All dataclasses that inherit from each other are made by the same one of the two.
        """

        import dataclasses

        def decorate(plain):
            plain.__doc__ = plain.__doc__ or plain.__name__  # not its signature
            hashed = plain.__dict__.get("__hash__") is not None
            cls = dataclasses.dataclass(
                init=False, repr=False, eq=False, kw_only=kw_only, slots=slots,
                weakref_slot=weakref_slot,
            )(plain)  # fmt: skip
            if eq and not hashed:
                cls.__hash__ = _Later(cls, "__hash__", frozen) if frozen else None
            for name in ("__init__", "__repr__", "__eq__")[: 3 if eq else 2]:
                if name not in cls.__dict__:
                    setattr(cls, name, _Later(cls, name, frozen))
            if frozen:
                _freeze(cls, slots)
            return cls

        return decorate

    class _Later:
        """A method of a dataclass that is made, and replaces this one, when it is asked for."""

        __slots__ = ("cls", "frozen", "name")

        def __init__(self, cls, name, frozen):
            self.cls, self.name, self.frozen = cls, name, frozen

        def __get__(self, instance, owner):
            import dataclasses
            from reprlib import recursive_repr

            cls, name = self.cls, self.name
            fields = dataclasses.fields(cls)
            space = {"_put": object.__setattr__, "_new": object(), "_once": recursive_repr()}
            if name == "__init__":
                for f in fields:  # of slots; faster than the method of every object
                    space[f"_put_{f.name}"] = getattr(getattr(cls, f.name, None), "__set__", None)
                text = _init(fields, self.frozen, hasattr(cls, "__post_init__"), space)
            else:
                text = _about(name, fields)
            exec(text, space)  # noqa: S102 - of the fields of our own classes, as dataclasses do
            made = space[name]
            made.__qualname__, made.__module__ = f"{cls.__qualname__}.{name}", cls.__module__
            setattr(cls, name, made)
            return made.__get__(instance, owner)

    def _init(fields, frozen, ends, space):
        """The text of an ``__init__``; ``space`` gets its default values."""
        from dataclasses import MISSING

        takes, named, lines = ["self"], [], []
        for f in fields:
            value, default = f.name, f"_d_{f.name}"
            makes = f.default_factory is not MISSING
            space[default] = f.default_factory if makes else f.default
            if not makes and f.default is MISSING:
                if f.init:
                    (named if f.kw_only else takes).append(f.name)
            elif f.init:
                (named if f.kw_only else takes).append(f"{f.name}={'_new' if makes else default}")
                value = f"{default}() if {f.name} is _new else {f.name}" if makes else f.name
            else:
                value = f"{default}()" if makes else default
            if f.init or value != f.name:
                put = f"_put(self, '{f.name}', "
                if space[f"_put_{f.name}"] is not None:
                    put = f"_put_{f.name}(self, "
                lines.append(f"{put}{value})" if frozen else f"self.{f.name} = {value}")
        lines += ["self.__post_init__()"] if ends else [] if lines else ["pass"]
        takes += ["*", *named] if named else []
        return f"def __init__({', '.join(takes)}):\n " + "\n ".join(lines)

    def _about(name, fields):
        """The text of a method that compares, hashes or shows fields."""
        if name == "__repr__":
            shown = ", ".join(f"{f.name}={{self.{f.name}!r}}" for f in fields if f.repr)
            return f"@_once\ndef __repr__(self): return type(self).__qualname__ + f'({shown})'"
        hashes = name == "__hash__"
        used = [f.name for f in fields if (f.compare if f.hash is None or not hashes else f.hash)]
        mine, others = ("".join(f"{of}.{name}, " for name in used) for of in ("self", "other"))
        if hashes:
            return f"def __hash__(self): return hash(({mine}))"
        same = "type(self) is type(other)"
        return (
            f"def __eq__(self, other): return ({mine}) == ({others}) if {same} else NotImplemented"
        )

    def _freeze(cls, slots):
        """Let the fields of ``cls`` be set by its ``__init__`` alone, and by unpickling."""
        cls.__setattr__, cls.__delattr__ = _assign, _delete
        if slots:
            for name, method in (("__getstate__", _state), ("__setstate__", _restore)):
                if name not in cls.__dict__:
                    setattr(cls, name, method)

    def _assign(self, name, value):
        _refuse("assign to", self, name)
        object.__setattr__(self, name, value)

    def _delete(self, name):
        _refuse("delete", self, name)
        object.__delattr__(self, name)

    def _refuse(what, frozen, name):
        """Raise for a field, and for any name where the class itself is a frozen one."""
        from dataclasses import FrozenInstanceError

        cls = type(frozen)
        if "__dataclass_params__" in cls.__dict__ or name in cls.__dataclass_fields__:
            raise FrozenInstanceError(f"cannot {what} field {name!r}")

    def _state(self):
        import dataclasses

        return [getattr(self, f.name) for f in dataclasses.fields(self)]

    def _restore(self, state):
        import dataclasses

        for f, value in zip(dataclasses.fields(self), state, strict=True):
            object.__setattr__(self, f.name, value)


_IMPORT = r"^    from \.(\S+) import (?:\(([^)]+)\)|([^#\n]+))"


def lazy_names(package: str) -> tuple[list[str], Callable[[str], object]]:
    """``__all__`` and ``__getattr__`` (PEP 562) of ``package``: the names that its file imports for
    type checkers, each from its module; what is starred stays out.

    A name that is a module's as well means what the module has of that name.
    """
    import re  # ``import tunegrad`` loads few modules, and asks for none of these names

    spec = sys.modules[package].__spec__
    text = spec.loader.get_data(spec.origin).decode()  # type: ignore[union-attr]  # of a file
    modules: dict[str, str] = {}
    for module, several, line in re.findall(_IMPORT, text, re.MULTILINE):
        modules |= dict.fromkeys((several or line).replace(",", " ").split(), module)
    modules.pop("*", None)
    if same := modules.keys() & set(modules.values()):
        before_modules(package, same)
    loaded: dict[str, ModuleType] = {}

    def find(name: str) -> object:
        module = loaded.get(name)
        if module is None:
            if name not in modules:
                raise unknown(f"module {package!r}", name, modules.keys)
            module = loaded[name] = importlib.import_module(f"{package}.{modules[name]}")
        return getattr(module, name)

    return sorted(modules), find


def logger(name: str) -> Logger:
    """The standard library's logger of a name; most processes have nothing to say."""
    import logging

    return logging.getLogger(name)


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
    """Keeps ``names`` of ``package`` from becoming its modules of those names on import."""

    class Package(ModuleType):
        def __setattr__(self, name: str, value: object) -> None:
            if not (name in names and isinstance(value, ModuleType)):
                super().__setattr__(name, value)

    sys.modules[package].__class__ = Package
