# mypy: implicit-reexport
"""The making of graphs: tensors, functions, layers, models, weights.

Its modules are imported when one of their names is asked for: computing a tensor needs no layers.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tunegrad.lazy import lazy_names

if TYPE_CHECKING:
    # isort: off
    from .creation import *  # noqa: F403
    from .functions import *  # noqa: F403
    from .random import *  # noqa: F403
    from .aliasing import root_of
    from .calibrated import Calibration, quantised_model, read_calibration
    from .creation import arange, full, ones, zeros
    from .functions import cat, dump, maximum, minimum, stack, where
    from .gradients.functions import checkpoint, grad, value_and_grad
    from .handle import Bindings, Known, TensorLike, joined
    from .model import Example, InputSpec, Model, as_model, find_model, model_of_spec
    from .nodes import substitute
    from .nodes.arrays import bf16_bits, bf16_values
    from .nodes.tracing import no_grad
    from .tensor import Tensor
    from .training import StepModel, Training
    from .vjp import custom_vjp
    from .weights import ParameterSpec, Weights, check_weights, draw, load_weights, read_safetensors
    # isort: on
else:
    __all__, _find = lazy_names(__name__)

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
