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
    from .builders import build_model as build_model
    from .builders import import_builder as import_builder
    from .builders import users_frames as users_frames
    from .environment import DEFAULT_DEVICE as DEFAULT_DEVICE
    from .environment import MOST_THREADS as MOST_THREADS
    from .environment import allowed_threads as allowed_threads
    from .environment import cache_dir as cache_dir
    from .environment import cpu_target as cpu_target
    from .environment import default_store as default_store
    from .environment import machine_bytes as machine_bytes
    from .environment import perf_map as perf_map
    from .environment import usable_cpus as usable_cpus
    from .models import CALIBRATED as CALIBRATED
    from .models import calibrated_model as calibrated_model
    from .models import calibration_file as calibration_file
    from .models import check_package as check_package
    from .models import config_names as config_names
    from .models import configs_dir as configs_dir
    from .models import named_models as named_models
    from .models import resolve_model as resolve_model
    from .settings import DEFAULT_BUDGET_S as DEFAULT_BUDGET_S
    from .settings import check_dtype as check_dtype
    from .settings import check_names as check_names
    from .settings import check_numerics as check_numerics
    from .settings import check_searcher as check_searcher
    from .settings import check_settings as check_settings
    from .settings import labelled as labelled
    from .settings import parse_budget as parse_budget
    from .settings import parse_duration as parse_duration
    from .settings import resolve_settings as resolve_settings
    from .tables import check_keys as check_keys
    from .tables import convert_table as convert_table
    from .tables import nearest as nearest
    from .tables import read_toml as read_toml
    from .values import AskedDtype as AskedDtype
    from .values import DtypeName as DtypeName
    from .values import InputSpec as InputSpec
    from .values import ModelDtype as ModelDtype
    from .values import ModelOptions as ModelOptions
    from .values import ModelSpec as ModelSpec
    from .values import Numerics as Numerics
    from .values import Scalar as Scalar
    from .values import Searcher as Searcher
    from .values import TuneDefaults as TuneDefaults
    from .values import TuneOptions as TuneOptions
    from .values import TuneSettings as TuneSettings
else:
    _HOMES = {
        "builders": "build_model import_builder users_frames",
        "environment": (
            "DEFAULT_DEVICE MOST_THREADS allowed_threads cache_dir cpu_target default_store "
            "machine_bytes perf_map usable_cpus"
        ),
        "models": (
            "CALIBRATED calibrated_model calibration_file check_package config_names configs_dir "
            "named_models resolve_model"
        ),
        "settings": (
            "DEFAULT_BUDGET_S check_dtype check_names check_numerics check_searcher "
            "check_settings labelled parse_budget parse_duration resolve_settings"
        ),
        "tables": "check_keys convert_table nearest read_toml",
        "values": (
            "AskedDtype DtypeName InputSpec ModelDtype ModelOptions ModelSpec Numerics Scalar "
            "Searcher TuneDefaults TuneOptions TuneSettings"
        ),
    }
    __all__, __getattr__ = lazy_names(__name__, _HOMES)
