"""The blocks of docs/API.md: signatures and first sentences of docstrings, and PyTorch's names with
what is missing.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import tunegrad as tg
from tunegrad.frontend import Tensor, creation, functional, functions, gradients, nn, ops, random
from tunegrad.frontend.handle import Handle
from tunegrad.frontend.operation import in_place

from .fences import table

__all__ = ["BLOCKS"]

_NAMES = Path(__file__).parents[2] / "tests" / "data" / "torch_names.toml"
_HEAD = ("name", "what it does")

for _name in dir(Tensor):
    getattr(Tensor, _name)  # imports its families of operations


def _sentence(value: object) -> str:
    """The first sentence of a docstring, on one line."""
    words = " ".join((inspect.getdoc(value) or "").split())
    return re.split(r"(?<=\.) (?=[A-Z`])", words)[0]


def _call(name: str, value: Callable[..., Any], method: bool) -> str:
    try:
        parameters = list(inspect.signature(value).parameters.values())
    except ValueError:
        return f"{name}()"
    shown = [
        p.replace(annotation=inspect.Parameter.empty) for p in parameters[1 if method else 0 :]
    ]
    text = str(inspect.Signature(shown)).replace("=Ellipsis", "=...")
    text = re.sub(r"DType\(name='(\w+)'[^)]*\)", r"\1", text)
    return name + re.sub(r"=<[^>]*>", "=...", text)


def _rows(owner: object, names: Iterable[str], method: bool = False) -> str:
    rows = []
    for name in sorted(names):
        value = getattr(owner, name)
        call = name if isinstance(value, property) else _call(name, value, method)
        rows.append((f"`{call}`", _sentence(value)))
    return table(_HEAD, rows)


def _family(owner: type, home: str) -> str:
    """Public methods and properties of a class that a module defines; second names behind them."""
    kept: dict[int, list[str]] = {}
    for name, value in vars(owner).items():
        plain = callable(value) or isinstance(value, property | staticmethod | classmethod)
        function = getattr(value, "fget", getattr(value, "__func__", value))
        if not name.startswith("_") and plain and function.__module__ == home:
            kept.setdefault(id(value), []).append(name)
    rows = []
    for first, *others in kept.values():
        value = getattr(owner, first)
        static = isinstance(vars(owner)[first], staticmethod | classmethod)
        call = first if isinstance(value, property) else _call(first, value, not static)
        also = f" Also {', '.join(f'`{o}`' for o in others)}." if others else ""
        rows.append((f"`{call}`", _sentence(value) + also))
    return table(_HEAD, sorted(rows))


def _methods() -> str:
    """Methods of the handle and of the tensor, and the operations of each family."""
    parts = [
        ("Handle", _sentence(Handle), _family(Handle, Handle.__module__)),
        ("Tensor", _sentence(Tensor), _family(Tensor, Tensor.__module__)),
    ]
    for name in ops.__all__:
        module = getattr(ops, name)
        parts.append((name.capitalize(), _sentence(module), _family(Tensor, module.__name__)))
    home = in_place.__module__
    written = [n for n, v in vars(Tensor).items() if getattr(v, "__module__", "") == home]
    names = " ".join(f"`{n}`" for n in sorted(written) if not n.startswith("_"))
    parts.append(
        ("In place", "The operation of the same name, written to the tensor itself.", names)
    )
    return "\n\n".join(f"### {title}\n\n{words}\n\n{rows}" for title, words, rows in parts)


def _own(owner: Any) -> set[str]:
    """Names of a module's functions that are no operations, which ``Tensor`` has as methods."""
    methods = {id(inspect.unwrap(v)) for kind in (Handle, Tensor) for v in vars(kind).values()}
    return {n for n in owner.__all__ if id(inspect.unwrap(getattr(owner, n))) not in methods}


def _operations(owner: Any) -> str:
    """Names of a module's functions that are operations."""
    return " ".join(f"`{n}`" for n in sorted(set(owner.__all__) - _own(owner)))


def _modules() -> str:
    rows = []
    for name in dir(nn):
        value = getattr(nn, name)
        if isinstance(value, type) and issubclass(value, nn.Module) and name != "Layer":
            known = getattr(value, "arguments", None)
            if known is None:
                call = _call(name, value, method=False)
            else:
                shown = (k if v is ... else f"{k}={v!r}" for k, v in known.items())
                call = f"{name}({', '.join(shown)})"
            rows.append((f"`{call}`", _sentence(value)))
    return table(_HEAD, rows)


def _homes() -> dict[str, Any]:
    return {"functions": tg, "methods": Tensor, "functional": functional, "modules": nn}


def _torch_names() -> str:
    """PyTorch's names by home: which exist, and what is missing and why."""
    names = tomllib.loads(_NAMES.read_text(encoding="utf-8"))
    missing, rows, count = names["missing"], [], 0
    for kind, home in _homes().items():
        there = [n for n in names[kind] if n not in missing and hasattr(home, n)]
        gone = [n for n in names[kind] if n in missing]
        count += len(there)
        rows.append((
            f"`{_PREFIX[kind]}`", f"{len(there)} of {len(names[kind])}",
            " ".join(f"`{n}`" for n in there), " ".join(f"`{n}`" for n in gone),
        ))  # fmt: skip
    total = sum(len(names[kind]) for kind in _homes())
    reasons = table(
        ("missing", "why, and what instead"), sorted((f"`{n}`", w) for n, w in missing.items())
    )
    listed = table(("of", "exist", "names", "missing"), rows)
    return f"{count} of {total} exist.\n\n{listed}\n\n{reasons}"


_PREFIX = {"functions": "torch", "methods": "torch.Tensor", "functional": "torch.nn.functional",
           "modules": "torch.nn"}  # fmt: skip

BLOCKS: dict[str, Callable[[], str]] = {
    "torch": _torch_names,
    "creation": lambda: _rows(creation, creation.__all__),
    "random": lambda: _rows(random, random.__all__),
    "functions": lambda: _rows(functions, _own(functions)),
    "gradients": lambda: _rows(gradients, gradients.__all__),
    "optim": lambda: _rows(nn.optim, nn.optim.__all__),
    "methods": _methods,
    "functional": lambda: _rows(functional, _own(functional)),
    "same": lambda: _operations(functional),
    "both": lambda: _operations(functions),
    "modules": _modules,
}
