"""tunegrad: searches for fast kernels for a model on this machine, and remembers them.

    import tunegrad as tg
    model = tg.load("resnet18")                                   # runs with the stored winners
    f = tg.compile(lambda a, b: (a @ b).relu(), a, b)             # any function of tensors
    (tg.Tensor(a) @ tg.Tensor(b)).relu().numpy()                  # or step by step

Names are imported when they are first used: ``import tunegrad`` loads nothing.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tunegrad.config import config_names, default_store
    from tunegrad.frontend import (
        InputSpec,
        Model,
        Tensor,
        arange,
        cat,
        dump,
        full,
        maximum,
        minimum,
        nn,
        ones,
        stack,
        where,
        zeros,
    )
    from tunegrad.inference import LoadedModel, compile, load, realize  # noqa: A004
    from tunegrad.tune import explain, tune, tune_callable

__version__ = "0.1.0"

__all__ = [
    "InputSpec",
    "LoadedModel",
    "Model",
    "Tensor",
    "__version__",
    "arange",
    "cat",
    "compile",
    "config_names",
    "default_store",
    "dump",
    "explain",
    "full",
    "load",
    "maximum",
    "minimum",
    "nn",
    "ones",
    "realize",
    "stack",
    "tune",
    "tune_callable",
    "where",
    "zeros",
]

_HOMES = {
    "config": ("config_names", "default_store"),
    "frontend": (
        "InputSpec", "Model", "Tensor", "arange", "cat", "dump", "full", "maximum", "minimum", "nn",
        "ones",
        "stack", "where",
        "zeros",
    ),
    "inference": ("LoadedModel", "compile", "load", "realize"),
    "tune": ("explain", "tune", "tune_callable"),
}  # fmt: skip
_MODULES = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """``tunegrad.tune`` is the function, also after its module of the same name was imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "tune" and isinstance(value, ModuleType):
            return
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
