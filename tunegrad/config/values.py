"""Requests of the user, as frozen values: the model, and every setting of a session."""

from __future__ import annotations

import os
from dataclasses import field
from pathlib import Path
from typing import Literal, TypedDict

from tunegrad.lazy import dataclass

Scalar = bool | int | float | str
Searcher = Literal["beam", "random", "exhaustive", "bayesian", "evolutionary", "portfolio"]
Numerics = Literal["contract", "strict", "bf16-dot", "tf32"]
"""Each allows more than the one before it: ``strict``, ``contract``, ``bf16-dot``, ``tf32``.

``contract``: Winograd convolutions are allowed, within the stated tolerance. ``strict``: they are
not. ``bf16-dot``: sums of products of bf16 tensors are added up in pairs, which flushes subnormal
numbers; in a model that is asked to be bf16, so they are under ``contract``. ``tf32``: factors of
f32 products are rounded to 11 digits where the device has a matrix unit for such.
"""
ModelDtype = Literal["f32", "f16", "bf16"]
"""The type that a model's weights and activations are stored in; ``f32``: as the model has them."""
AskedDtype = Literal[ModelDtype, "int8"]
"""The same as a user asks for it: ``int8`` is another model, which a calibration makes of it."""
DtypeName = Literal[
    "bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bf16", "f16", "f32", "f64"
]


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input of a model: its full shape, batch included, and its dtype's name."""

    shape: tuple[int, ...]
    dtype: DtypeName = "f32"


@dataclass(frozen=True, slots=True)
class TuneDefaults:
    """Values that a model file's ``[tune]`` sets; None where it is silent."""

    budget: str | int | float | None = None
    searcher: Searcher | None = None
    threads: int | None = None
    seed: int | None = None
    device: str | None = None
    patience: int | None = None
    target_ms: float | None = None
    max_trials: int | None = None
    warm_start: bool | None = None
    dtype: ModelDtype | None = None


OPTIMIZERS = ("sgd", "adam", "adamw", "lamb", "rmsprop")
"""Optimisers of a step of training that a model's name may ask for; sgd has momentum."""
LOSSES = ("cross_entropy", "mse")


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The model that is asked for.

    ``builder`` (``package.module:function``) is called with ``args``, and ``batch`` where it takes
    one.

    The inputs are empty where nothing declares them, as for a model given on the command line as a
    function. ``source`` says where the spec came from, for messages.

    ``train`` is the optimiser of a step of training, which the model is then; empty for inference.
    ``loss`` is its loss, of ``LOSSES``; empty for the one that fits the model's output.
    """

    name: str
    builder: str
    batch: int = 1
    args: tuple[tuple[str, Scalar | tuple[Scalar, ...]], ...] = ()
    inputs: tuple[InputSpec, ...] = ()
    tune: TuneDefaults = field(default_factory=TuneDefaults)
    source: str = ""
    train: str = ""
    loss: str = ""


class ModelOptions(TypedDict, total=False):
    """The settings of a model that a caller may give; None is as good as none.

    A setting that is not given is the one in the model's file, else the default. ``TuneSettings``
    says what each means.
    """

    device: str | None
    threads: int | None
    store: str | os.PathLike[str] | None
    seed: int | None
    numerics: Numerics | None
    dtype: AskedDtype | None


class TuneOptions(ModelOptions, total=False):
    """The settings of a session, as keyword arguments or as options of ``tunegrad tune``."""

    budget_s: str | float | None
    searcher: Searcher | None
    patience: int | None
    target_ms: float | None
    max_trials: int | None
    ray: str | None
    ray_kind: str | None
    warm_start: bool | None


@dataclass(frozen=True, slots=True)
class TuneSettings:
    """Everything a session needs to know, resolved. Stored with the session as text.

    ``patience`` is how many candidates in a row may bring less than 1 % before the search stops: 0
    for any number, None to stop where less than 1 % more is expected. The search also stops once
    the model takes ``target_ms``, or when ``max_trials`` candidates were measured. ``others`` are
    tuned in the same session, within the same budget. ``ray`` is the address of a cluster to
    measure on (``local``: one of this machine), None without Ray; ``ray_kind`` the kind of its
    machines that measure. ``in_flight``: batches are begun until so many proposals are unanswered;
    a session sets it by where it measures. ``warm_start``: a kernel that is new in the store is
    seeded from the nearest ones in it. ``dtype`` is what weights and activations are stored in.
    """

    model: ModelSpec
    device: str
    threads: int
    budget_s: float
    searcher: Searcher
    store: Path
    seed: int
    json: bool = False
    log: Path | None = None
    numerics: Numerics = "contract"
    patience: int | None = None
    target_ms: float | None = None
    max_trials: int | None = None
    others: tuple[ModelSpec, ...] = ()
    ray: str | None = None
    ray_kind: str | None = None
    in_flight: int = 1
    warm_start: bool = True
    dtype: ModelDtype = "f32"

    @property
    def models(self) -> tuple[ModelSpec, ...]:
        """All of them, in the order in which they were named."""
        return (self.model, *self.others)
