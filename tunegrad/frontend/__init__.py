"""The making of graphs: tensors, functions, layers, models, weights.

Its modules are imported when one of their names is asked for: computing a tensor needs no layers.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tunegrad.lazy import lazy_names

if TYPE_CHECKING:
    from .aliasing import root_of as root_of
    from .calibrated import Calibration as Calibration
    from .calibrated import quantised_model as quantised_model
    from .calibrated import read_calibration as read_calibration
    from .creation import *  # noqa: F403
    from .creation import arange as arange
    from .creation import full as full
    from .creation import ones as ones
    from .creation import zeros as zeros
    from .functions import *  # noqa: F403
    from .functions import cat as cat
    from .functions import dump as dump
    from .functions import maximum as maximum
    from .functions import minimum as minimum
    from .functions import stack as stack
    from .functions import where as where
    from .gradients.functions import checkpoint as checkpoint
    from .gradients.functions import grad as grad
    from .gradients.functions import value_and_grad as value_and_grad
    from .handle import Bindings as Bindings
    from .handle import Known as Known
    from .handle import TensorLike as TensorLike
    from .handle import joined as joined
    from .model import Example as Example
    from .model import InputSpec as InputSpec
    from .model import Model as Model
    from .model import as_model as as_model
    from .model import find_model as find_model
    from .model import model_of_spec as model_of_spec
    from .nodes import substitute as substitute
    from .nodes.arrays import bf16_bits as bf16_bits
    from .nodes.arrays import bf16_values as bf16_values
    from .nodes.tracing import no_grad as no_grad
    from .random import *  # noqa: F403
    from .tensor import Tensor as Tensor
    from .training import StepModel as StepModel
    from .training import Training as Training
    from .vjp import custom_vjp as custom_vjp
    from .weights import ParameterSpec as ParameterSpec
    from .weights import Weights as Weights
    from .weights import check_weights as check_weights
    from .weights import draw as draw
    from .weights import load_weights as load_weights
    from .weights import read_safetensors as read_safetensors
else:
    __all__, _find = lazy_names(
        __name__,
        {
            "aliasing": "root_of",
            "calibrated": "Calibration quantised_model read_calibration",
            "creation": "arange full ones zeros",
            "functions": "cat dump maximum minimum stack where",
            "gradients.functions": "checkpoint grad value_and_grad",
            "handle": "Bindings Known TensorLike joined",
            "model": "Example InputSpec Model as_model find_model model_of_spec",
            "nodes": "substitute",
            "nodes.arrays": "bf16_bits bf16_values",
            "nodes.tracing": "no_grad",
            "tensor": "Tensor",
            "training": "StepModel Training",
            "vjp": "custom_vjp",
            "weights": "ParameterSpec Weights check_weights draw load_weights read_safetensors",
        },
    )

    def __getattr__(name):
        """A name of those, a module, or what ``creation``, ``functions`` and ``random`` have."""
        if name in __all__ or name.startswith("_"):
            return _find(name)
        if find_spec(f"{__name__}.{name}"):
            return import_module(f"{__name__}.{name}")
        for module in ("creation", "functions", "random"):
            found = import_module(f"{__name__}.{module}")
            if name in found.__all__:
                return getattr(found, name)
        return _find(name)
