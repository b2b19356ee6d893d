"""Settings: what the user asked for, resolved once into frozen values.

    command line  over  the model's TOML file  over  defaults (of which the environment can move
    some)

``environment.py`` is the only reader of the environment, ``model_files.py`` shows a model's file.

Its modules are imported when one of their names is asked for: who computes a tensor reads no
settings.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .builders import build_model, import_builder
    from .durations import parse_budget, parse_duration
    from .environment import (
        DEFAULT_DEVICE,
        allowed_threads,
        cache_dir,
        default_store,
        usable_cpus,
    )
    from .models import config_names, configs_dir, resolve_model
    from .settings import (
        DEFAULT_BUDGET_S,
        check_dtype,
        check_numerics,
        check_searcher,
        check_settings,
        labelled,
        resolve_settings,
    )
    from .values import (
        DtypeName,
        InputSpec,
        ModelDtype,
        ModelSpec,
        Numerics,
        Scalar,
        Searcher,
        TuneDefaults,
        TuneSettings,
    )

__all__ = [
    "DEFAULT_BUDGET_S",
    "DEFAULT_DEVICE",
    "DtypeName",
    "InputSpec",
    "ModelDtype",
    "ModelSpec",
    "Numerics",
    "Scalar",
    "Searcher",
    "TuneDefaults",
    "TuneSettings",
    "allowed_threads",
    "build_model",
    "cache_dir",
    "check_dtype",
    "check_numerics",
    "check_searcher",
    "check_settings",
    "config_names",
    "configs_dir",
    "default_store",
    "import_builder",
    "labelled",
    "parse_budget",
    "parse_duration",
    "resolve_model",
    "resolve_settings",
    "usable_cpus",
]

_HOMES = {
    "builders": ("build_model", "import_builder"),
    "durations": ("parse_budget", "parse_duration"),
    "environment": (
        "DEFAULT_DEVICE", "allowed_threads", "cache_dir", "default_store", "usable_cpus",
    ),
    "models": ("config_names", "configs_dir", "resolve_model"),
    "settings": (
        "DEFAULT_BUDGET_S", "check_dtype", "check_numerics", "check_searcher", "check_settings",
        "labelled", "resolve_settings",
    ),
    "values": (
        "DtypeName", "InputSpec", "ModelDtype", "ModelSpec", "Numerics", "Scalar", "Searcher",
        "TuneDefaults", "TuneSettings",
    ),
}  # fmt: skip
_MODULES = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
