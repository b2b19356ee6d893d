"""Settings: what the user asked for, resolved once into frozen values.

    command line  over  the model's TOML file  over  defaults (of which the environment can move
    some)

``environment.py`` is the only reader of the environment, ``model_files.py`` shows a model's file.
"""

from __future__ import annotations

from .builders import build_model, import_builder
from .durations import parse_budget, parse_duration
from .environment import allowed_threads, cache_dir, default_store, usable_cpus
from .models import config_names, configs_dir, resolve_model
from .settings import (
    DEFAULT_BUDGET_S,
    DEFAULT_DEVICE,
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
