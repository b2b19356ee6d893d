"""Running models: with the stored winners, never searching, never writing to the store.

    model   -->  graph   -->   constants folded   -->   schedule of kernels
    kernel  -->  stored winner, a near one, or the default   -->   code (from the cache, or
                                                                   compiled)

All of it is bound to memory once; then numpy in, one native call, numpy out.

Its modules are imported when one of its names is asked for: who computes a tensor loads no model.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tunegrad.inference.choosing import Choice, OnMiss, choices, compiled_choice, stale
    from tunegrad.inference.loaded import LoadedModel
    from tunegrad.inference.loading import (
        StorePath,
        compile,  # noqa: A004 - the word that every such library uses
        load,
        measured_deviation,
    )
    from tunegrad.inference.process import process_compiler
    from tunegrad.inference.realizing import realize

__all__ = [
    "Choice",
    "LoadedModel",
    "OnMiss",
    "StorePath",
    "choices",
    "compile",
    "compiled_choice",
    "load",
    "measured_deviation",
    "process_compiler",
    "realize",
    "stale",
]

_HOMES = {
    "choosing": ("Choice", "OnMiss", "choices", "compiled_choice", "stale"),
    "loaded": ("LoadedModel",),
    "loading": ("StorePath", "compile", "load", "measured_deviation"),
    "process": ("process_compiler",),
    "realizing": ("realize",),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
