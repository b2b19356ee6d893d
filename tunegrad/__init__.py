"""tunegrad: searches for fast kernels for a model on this machine, and remembers them.

    import tunegrad as tg
    model = tg.load("resnet18")                                   # runs with the stored winners
    f = tg.compile(lambda a, b: (a @ b).relu(), a, b)             # any function of tensors
    (tg.Tensor(a) @ tg.Tensor(b)).relu().numpy()                  # or step by step

Names are imported when they are first used: ``import tunegrad`` loads nothing. Type checkers see
the names themselves, so a misspelt one is an error for them, too.
"""

from __future__ import annotations

from importlib import import_module
from sys import modules as _modules

from tunegrad.lazy import before_modules, unknown
from tunegrad.version import __version__ as __version__

TYPE_CHECKING = False  # as typing's, which takes longer to import than all of this

if TYPE_CHECKING:
    from tunegrad import data as data
    from tunegrad import errors as errors
    from tunegrad import linalg as linalg
    from tunegrad import nn as nn
    from tunegrad import torch as torch
    from tunegrad.config import config_names as config_names
    from tunegrad.config import default_store as default_store
    from tunegrad.frontend import InputSpec as InputSpec
    from tunegrad.frontend import Model as Model
    from tunegrad.frontend import Tensor as Tensor
    from tunegrad.frontend import checkpoint as checkpoint
    from tunegrad.frontend import custom_vjp as custom_vjp
    from tunegrad.frontend import grad as grad
    from tunegrad.frontend import no_grad as no_grad
    from tunegrad.frontend import value_and_grad as value_and_grad
    from tunegrad.frontend.creation import *  # noqa: F403
    from tunegrad.frontend.functions import *  # noqa: F403
    from tunegrad.frontend.random import *  # noqa: F403
    from tunegrad.frontend.torch import from_torch as from_torch
    from tunegrad.inference import LoadedModel as LoadedModel
    from tunegrad.inference import Quantized as Quantized
    from tunegrad.inference import TrainStep as TrainStep
    from tunegrad.inference import compile as compile
    from tunegrad.inference import load as load
    from tunegrad.inference import quantize as quantize
    from tunegrad.inference import realize as realize
    from tunegrad.ir import dtypes as _dtypes
    from tunegrad.tune import explain as explain
    from tunegrad.tune import tune as tune
    from tunegrad.tune import tune_callable as tune_callable

    bool = _dtypes.BOOL
    i8 = int8 = _dtypes.I8
    i16 = int16 = short = _dtypes.I16
    i32 = int32 = int = _dtypes.I32
    i64 = int64 = long = _dtypes.I64
    u8 = uint8 = _dtypes.U8
    u16 = uint16 = _dtypes.U16
    u32 = uint32 = _dtypes.U32
    u64 = uint64 = _dtypes.U64
    f16 = float16 = half = _dtypes.F16
    bf16 = bfloat16 = _dtypes.BF16
    f32 = float32 = float = _dtypes.F32
    f64 = float64 = double = _dtypes.F64
else:
    _MODULES = ("data", "errors", "linalg", "nn", "torch")
    _HOMES = {
        "config": "config_names default_store",
        "frontend": "InputSpec Model Tensor checkpoint custom_vjp grad no_grad value_and_grad",
        "frontend.torch": "from_torch",
        "inference": "LoadedModel Quantized TrainStep compile load quantize realize",
        "tune": "explain tune tune_callable",
    }
    _HOME = {n: f"{__name__}.{m}" for m, names in _HOMES.items() for n in names.split()}
    _DTYPES = [
        "bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bf16", "f16", "f32", "f64",
        "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bfloat16",
        "float16", "float32", "float64", "half", "float", "double", "short", "int", "long",
    ]  # fmt: skip

    def __getattr__(name):
        try:
            return _found(name)
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith(f"{__name__}."):
                raise
            said = f"tunegrad.{name} is not in tunegrad-serve, which runs .plan files alone"
            raise ModuleNotFoundError(f"{said}: pip install tunegrad in its place") from error

    def _found(name):
        if name == "__all__":
            return __dir__()
        if name in _DTYPES:
            return import_module(f"{__name__}.ir.dtypes").dtype_of(name)
        home = _HOME.get(name)
        if home is not None:
            found = getattr(_modules.get(home), name, None)  # each use of tg.Tensor comes here
            return getattr(import_module(home), name) if found is None else found
        if not name.startswith("_"):
            from importlib.util import find_spec

            if name.isidentifier() and find_spec(f"{__name__}.{name}"):  # a module of ours
                return import_module(f"{__name__}.{name}")
            for module in _functions():
                if name in module.__all__:  # kept: looking for it takes 30 us
                    return globals().setdefault(name, getattr(module, name))
        raise unknown(f"module {__name__!r}", name, __dir__)

    def __dir__():
        listed = [*_MODULES, *_DTYPES, *" ".join(_HOMES.values()).split(), "__version__"]
        return sorted({*listed, *(name for module in _functions() for name in module.__all__)})

    def _functions():
        return [
            import_module(f"{__name__}.frontend.{m}") for m in ("creation", "functions", "random")
        ]


before_modules(__name__, ["explain", "tune"])  # tunegrad.tune is the function, not its module
