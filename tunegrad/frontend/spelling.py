"""Two spellings of one argument: PyTorch's names are those of the signatures, numpy's and older
ones are accepted in their place.

    x.sum(dim=1, keepdim=True)    x.sum(axis=1, keepdims=True)
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, ParamSpec, TypeVar

__all__ = ["SPELLINGS", "spelled", "spelled_methods"]

SPELLINGS: dict[str, tuple[str, ...]] = {
    "axis": ("dim", "dims"),
    "axes": ("dims", "dim"),
    "dim": ("dims",),
    "dims": ("dim",),
    "keepdims": ("keepdim",),
    "ddof": ("correction",),
    "a_min": ("min",),
    "a_max": ("max",),
    "low": ("min",),
    "high": ("max",),
    "x": ("input",),
    "x1": ("input",),
    "x2": ("other",),
    "a": ("input", "tensors"),
    "b": ("other",),
    "newshape": ("shape",),
    "size": ("kernel_size", "output_size", "shape"),
    "shape": ("size",),
    "value": ("fill_value",),
    "classes": ("num_classes",),
    "slope": ("negative_slope",),
    "shift": ("shifts",),
    "reps": ("sizes", "repeats"),
    "axis1": ("dim0", "dim1"),
    "axis2": ("dim1", "dim2"),
    "source": ("source", "src"),
    "decimals": ("decimals",),
    "stop": ("end",),
    "num": ("steps",),
    "channels_in": ("in_channels",),
    "channels_out": ("out_channels",),
    "features_in": ("in_features",),
    "features_out": ("out_features",),
    "channels": ("num_features", "num_channels"),
}
"""Another spelling, and the names of parameters that it may stand for: the first that a function
has.
"""

P = ParamSpec("P")
T = TypeVar("T")


def spelled(function: Callable[P, T]) -> Callable[P, T]:
    """``function``, which then takes its keyword arguments in either spelling.

    Raises TypeError where both spellings of one argument are given.
    """
    own = inspect.signature(function).parameters
    other = {
        word: next(n for n in names if n in own)
        for word, names in SPELLINGS.items()
        if word not in own and any(n in own for n in names)
    }
    rest = next((n for n, p in own.items() if p.kind is p.VAR_POSITIONAL), "")
    if not other and not rest:
        return function

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        for word in other.keys() & kwargs.keys():
            name = other[word]
            if name in kwargs:
                raise TypeError(f"{function.__name__}: {word} and {name} are one argument")
            kwargs[name] = kwargs.pop(word)
        if rest in kwargs:  # permute(dims=(1, 0)) for permute(1, 0)
            more: Any = (*args, kwargs.pop(rest))
            return function(*more, **kwargs)
        return function(*args, **kwargs)

    return wrapped


def spelled_methods(owner: type) -> None:
    """Let every public method that ``owner`` defines take both spellings."""
    for name, value in vars(owner).items():
        if not name.startswith("_") and isinstance(value, FunctionType):
            setattr(owner, name, spelled(value))
