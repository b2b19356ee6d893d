# mypy: implicit-reexport
"""Settings: what the user asked for, resolved once into frozen values.

    command line  over  the model's TOML file  over  defaults, some of which
                                                     the environment can move

``environment.py`` is the only reader of the environment, ``model_files.py`` shows a model's file.

Its modules are imported when one of their names is asked for: computing a tensor reads no
settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.lazy import lazy_names

if TYPE_CHECKING:
    # isort: off
    from .builders import build_model, import_builder, users_frames
    from .environment import (
        DEFAULT_DEVICE, MOST_THREADS, allowed_threads, cache_dir, control_groups, cpu_target,
        default_store, machine_bytes, perf_map, usable_cpus,
    )  # fmt: skip
    from .models import (
        CALIBRATED, calibrated_model, calibration_file, check_package, config_names, configs_dir,
        named_models, resolve_model,
    )  # fmt: skip
    from .settings import (
        DEFAULT_BUDGET_S, check_dtype, check_names, check_numerics, check_searcher, check_settings,
        parse_budget, parse_duration, resolve_settings,
    )  # fmt: skip
    from .tables import check_keys, convert_table, nearest, read_toml
    from .values import (
        AskedDtype, DtypeName, InputSpec, ModelDtype, ModelOptions, ModelSpec, Numerics, Scalar,
        Searcher, TuneDefaults, TuneOptions, TuneSettings,
    )  # fmt: skip
    # isort: on
else:
    __all__, __getattr__ = lazy_names(__name__)
