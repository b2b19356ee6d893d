"""A model and settings from what a caller gives: a model, its name, or resolved settings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Unpack

from tunegrad.config import ModelSpec, TuneOptions, TuneSettings, check_names, resolve_settings
from tunegrad.errors import ConfigError, ModelError
from tunegrad.frontend import Example, Model, as_model

if TYPE_CHECKING:
    from tunegrad.tuning import Workload


def workload_of_model(model: Model, settings: TuneSettings) -> Workload:
    """The work of a model under settings; its weights are drawn from their seed."""
    from tunegrad import devices
    from tunegrad.tuning import workload_of

    target = devices.open(settings.device, settings.threads).target
    return workload_of(model, model.name, settings.seed, settings.numerics, target, settings.dtype)


def model_of(
    model: TuneSettings | Model | Example | str | os.PathLike[str],
) -> TuneSettings | Model | str:
    """A pair of a function or a ``torch.nn.Module`` and its examples as a Model; a path as text."""
    if isinstance(model, os.PathLike):
        return os.fspath(model)
    return as_model(model) if isinstance(model, tuple) else model


def work_of(model: TuneSettings | Model | str, settings: TuneSettings) -> Workload | None:
    """The work of a model that is there; None of one that is named."""
    return workload_of_model(model, settings) if isinstance(model, Model) else None


def settings_of(model: TuneSettings | Model | str, **given: Unpack[TuneOptions]) -> TuneSettings:
    """The settings of one model: those that are resolved already, or a model, or its name, with
    what is given (not None).

    Raises ConfigError for both together: neither would hold; and for settings of several models.
    """
    said: Any = {name: value for name, value in given.items() if value is not None}
    check_names(said)
    if isinstance(model, TuneSettings):
        if said:
            raise ConfigError(
                f"{', '.join(said)}: given beside resolved settings, which say that themselves; "
                "change those, or give the model's name"
            )
        if model.others:
            names = ", ".join(m.name for m in model.models)
            raise ConfigError(
                f"settings of {len(model.models)} models ({names}): only tune_models takes several"
            )
        return model
    if isinstance(model, Model):
        return resolve_settings(ModelSpec(model.name, "", source="a Model"), **said)
    if not isinstance(model, str):
        raise ModelError(
            f"model {model!r:.80} is a {type(model).__name__}; it must be a name, a TOML file, "
            "'package.module:function', a Model, or a pair (function or torch.nn.Module, "
            "[examples]); tune_callable(function, *arrays) takes functions"
        )
    return resolve_settings(model, **said)
