"""The making of graphs: tensors, functions, layers, models, weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import creation, functional, functions, gradients, nn, ops
from . import random as _random
from .aliasing import root_of
from .calibrated import Calibration, quantised_model, read_calibration
from .creation import arange, full, ones, zeros
from .functions import cat, dump, maximum, minimum, stack, where
from .gradients import checkpoint, custom_vjp, grad, no_grad, value_and_grad
from .handle import Bindings, TensorLike, joined
from .model import Example, InputSpec, Model, as_model, find_model, model_of_spec
from .nodes import substitute
from .nodes.arrays import bf16_bits, bf16_values
from .tensor import Tensor
from .training import StepModel, Training
from .weights import (
    ParameterSpec,
    Weights,
    check_weights,
    draw,
    load_weights,
    read_safetensors,
)  # fmt: skip

__all__ = [
    "Bindings", "Calibration", "Example", "InputSpec", "Model", "ParameterSpec",
    "StepModel", "Tensor", "TensorLike", "Training", "Weights", "arange", "as_model",
    "bf16_bits", "bf16_values", "cat", "check_weights", "checkpoint", "creation",
    "custom_vjp", "draw", "dump", "find_model", "full", "functional", "functions", "grad",
    "gradients", "joined", "load_weights", "maximum", "minimum", "model_of_spec", "nn",
    "no_grad", "ones", "ops", "quantised_model", "read_calibration", "read_safetensors",
    "root_of", "stack", "substitute", "value_and_grad", "where", "zeros",
]  # fmt: skip

if TYPE_CHECKING:
    from .creation import *  # noqa: F403
    from .functions import *  # noqa: F403
    from .random import *  # noqa: F403
else:

    def __getattr__(name):
        """Everything that ``creation``, ``functions`` and ``random`` have."""
        for module in (creation, functions, _random):
            if name in module.__all__:
                return getattr(module, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
