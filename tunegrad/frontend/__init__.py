"""How a graph is made: tensors, layers, models, weights."""

from __future__ import annotations

from . import nn
from .creation import arange, cat, full, maximum, minimum, ones, stack, where, zeros
from .dump import dump
from .model import InputSpec, Model, as_model, find_model
from .rewrite import substitute
from .spec import model_of_spec
from .tensor import Bindings, Tensor, TensorLike, joined
from .weights import ParameterSpec, check_weights, draw, load_weights, read_safetensors

__all__ = [
    "Bindings",
    "InputSpec",
    "Model",
    "ParameterSpec",
    "Tensor",
    "TensorLike",
    "arange",
    "as_model",
    "cat",
    "check_weights",
    "draw",
    "dump",
    "find_model",
    "full",
    "joined",
    "load_weights",
    "maximum",
    "minimum",
    "model_of_spec",
    "nn",
    "ones",
    "read_safetensors",
    "stack",
    "substitute",
    "where",
    "zeros",
]
