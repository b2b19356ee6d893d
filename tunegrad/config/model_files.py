"""A model's TOML file as a spec.

    [model]
    name = "resnet18"
    builder = "tunegrad.models.resnet:resnet18"  # package.module:function
    batch = 1
    [model.args]                                 # keyword arguments of the builder
    classes = 1000                               # plain values, or lists of them
    [input]                                      # or [[input]], once for each
    shape = ["batch", 3, 224, 224]               # "batch" stands for model.batch
    dtype = "f32"
    [tune]
    budget = "5m"
    searcher = "portfolio"
    patience = 500                               # and target_ms, max_trials, warm_start, dtype ...

A file with ``[model] alias = "resnet50"`` alone is another name for that one. A file is data: its
builder is a function of ``tunegrad.models``, or of a package that ``$TUNEGRAD_BUILDERS`` lists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tunegrad.errors import ConfigError

from .environment import builder_packages
from .tables import check_keys, convert_table, read_toml
from .values import DtypeName, InputSpec, ModelSpec, Scalar, TuneDefaults

__all__ = ["ONNX_BUILDER", "is_builder", "load_model"]

ONNX_BUILDER = "tunegrad.frontend.onnx:model"
"""It reads a file, which is data."""

_BUILDER = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class _ModelTable:
    name: str | None = None
    builder: str | None = None
    alias: str | None = None
    batch: int = 1
    args: dict[str, Scalar | tuple[Scalar, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _InputTable:
    shape: list[int | Literal["batch"]]
    dtype: DtypeName = "f32"


def is_builder(text: str) -> bool:
    """True for a text of the form ``package.module:function``."""
    return _BUILDER.fullmatch(text) is not None


def load_model(path: Path, batch: int | None, *, allow_alias: bool) -> ModelSpec:
    """Read and check one model file; ``batch`` is not the file's."""
    document = read_toml(path)
    check_keys(document, ("model", "input", "tune"), str(path))
    if "model" not in document:
        raise ConfigError(f"{path}: the table [model] is missing")
    model = convert_table(_ModelTable, document["model"], f"{path}: model")
    if model.alias is not None:
        return _follow_alias(path, document, model.alias, batch, allow_alias=allow_alias)
    if model.name is None or model.builder is None:
        raise ConfigError(f"{path}: model.{'name' if model.name is None else 'builder'} is missing")
    if not is_builder(model.builder):
        raise ConfigError(
            f"{path}: model.builder = {model.builder!r} is not of the form package.module:function"
        )
    _check_package(model.builder, path)
    if model.batch < 1:
        raise ConfigError(f"{path}: model.batch = {model.batch} is not a positive whole number")
    return ModelSpec(
        name=model.name,
        builder=model.builder,
        batch=model.batch if batch is None else batch,
        args=tuple(sorted(model.args.items())),
        inputs=_load_inputs(
            document.get("input", []), model.batch if batch is None else batch, str(path)
        ),
        tune=convert_table(TuneDefaults, document.get("tune", {}), f"{path}: tune"),
        source=str(path),
    )


def _check_package(builder: str, path: Path) -> None:
    """Raise ConfigError unless a file may name this builder (see ``builder_packages``)."""
    module = builder.partition(":")[0]
    packages = builder_packages()
    if builder == ONNX_BUILDER:
        return
    if not any(f"{module}.".startswith(f"{package}.") for package in packages):
        raise ConfigError(
            f"{path}: model.builder = {builder!r} is code outside of {', '.join(packages)}; if you "
            f"trust this file, set TUNEGRAD_BUILDERS={module.partition('.')[0]}, or give {builder} "
            "itself as the model"
        )


def _follow_alias(
    path: Path,
    document: Mapping[str, Any],
    alias: str,
    batch: int | None,
    *,
    allow_alias: bool,
) -> ModelSpec:
    """The model file beside ``path`` that ``alias`` names.

    One step only, so there are no cycles.
    """
    if document.keys() != {"model"} or document["model"].keys() != {"alias"}:
        raise ConfigError(
            f"{path}: model.alias = {alias!r} stands alone: no other key may be given"
        )
    target = path.with_name(f"{alias}.toml")
    if not allow_alias or not target.is_file():
        raise ConfigError(
            f"{path}: model.alias = {alias!r} must name a model file beside it, not an alias"
        )
    return load_model(target, batch, allow_alias=False)


def _load_inputs(raw: object, batch: int, place: str) -> tuple[InputSpec, ...]:
    """``[input]`` or ``[[input]]`` as specs, with "batch" replaced."""
    tables = raw if isinstance(raw, list) else [raw]
    specs = []
    for table in tables:
        given = convert_table(_InputTable, table, f"{place}: input")
        shape = tuple(batch if extent == "batch" else extent for extent in given.shape)
        if any(extent < 0 for extent in shape):
            raise ConfigError(f"{place}: input.shape = {given.shape}: an extent is negative")
        specs.append(InputSpec(shape, given.dtype))
    return tuple(specs)
