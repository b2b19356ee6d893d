"""tunegrad: searches for fast kernels for a model on this machine, and remembers them.

    import tunegrad as tg
    model = tg.load("resnet18")                                   # runs with the stored winners
    f = tg.compile(lambda a, b: (a @ b).relu(), a, b)             # any function of tensors
    (tg.Tensor(a) @ tg.Tensor(b)).relu().numpy()                  # or step by step

Names are imported when they are first used: ``import tunegrad`` loads nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tunegrad.lazy import before_modules
from tunegrad.version import __version__

if TYPE_CHECKING:
    from tunegrad import data, nn
    from tunegrad.config import config_names, default_store
    from tunegrad.frontend import (
        InputSpec,
        Model,
        Tensor,
        arange,
        cat,
        checkpoint,
        custom_vjp,
        dump,
        full,
        grad,
        maximum,
        minimum,
        no_grad,
        ones,
        stack,
        value_and_grad,
        where,
        zeros,
    )
    from tunegrad.frontend.torch import from_torch
    from tunegrad.inference import LoadedModel, TrainStep, compile, load, realize  # noqa: A004
    from tunegrad.tune import explain, tune, tune_callable

__all__ = [
    "InputSpec",
    "LoadedModel",
    "Model",
    "Tensor",
    "TrainStep",
    "__version__",
    "arange",
    "cat",
    "checkpoint",
    "compile",
    "config_names",
    "custom_vjp",
    "data",
    "default_store",
    "dump",
    "explain",
    "from_torch",
    "full",
    "grad",
    "load",
    "maximum",
    "minimum",
    "nn",
    "no_grad",
    "ones",
    "realize",
    "stack",
    "tune",
    "tune_callable",
    "value_and_grad",
    "where",
    "zeros",
]

_HOMES = {
    "config_names": "config",
    "default_store": "config",
    "tensor": "frontend.creation",
    "from_torch": "frontend.torch",
    "LoadedModel": "inference",
    "TrainStep": "inference",
    "compile": "inference",
    "load": "inference",
    "realize": "inference",
    "explain": "tune",
    "tune": "tune",
    "tune_callable": "tune",
}
"""Modules of the names that are not ``frontend``'s; its ``tensor`` is a module."""

_DTYPES = frozenset(
    [
        "bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bf16", "f16", "f32", "f64",
        "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bfloat16",
        "float16", "float32", "float64", "half", "float", "double", "short", "int", "long",
    ]
)  # fmt: skip
"""Types of elements, by our names and by PyTorch's."""


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _DTYPES:
        return importlib.import_module(f"{__name__}.ir.dtypes").dtype_of(name)
    if name in ("data", "nn", "errors", "torch"):
        return importlib.import_module(f"{__name__}.{name}")
    module = _HOMES.get(name, "frontend")
    try:
        return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    from tunegrad.frontend import creation, functions, random

    found = {*creation.__all__, *random.__all__, *functions.__all__}
    return sorted({*globals(), *__all__, *_DTYPES, *found})


before_modules(__name__, ["explain", "tune"])  # tunegrad.tune is the function, not its module
