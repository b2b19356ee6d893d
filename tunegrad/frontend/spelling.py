"""Two spellings of one argument: PyTorch's names are those of the signatures, numpy's and older
ones are accepted in their place.

    x.sum(dim=1, keepdim=True)    x.sum(axis=1, keepdims=True)
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

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
    "axis2": ("dim2", "dim1"),
    "source": ("src",),
    "stop": ("end",),
    "num": ("steps",),
    "channels_in": ("in_channels",),
    "channels_out": ("out_channels",),
    "features_in": ("in_features",),
    "features_out": ("out_features",),
    "channels": ("num_features", "num_channels"),
}
"""Another spelling, and the parameters that it may stand for: the first of a function."""

_WORDS: dict[str, list[str]] = {}
"""The other way round: the spellings that may stand for a parameter of a name."""
for _word, _names in SPELLINGS.items():
    for _name in _names:
        _WORDS.setdefault(_name, []).append(_word)

P = ParamSpec("P")
T = TypeVar("T")


def spelled(function: Callable[P, T]) -> Callable[P, T]:
    """``function``, which then takes its keyword arguments in either spelling.

    Raises TypeError where both spellings of one argument are given.
    """
    own, rest = _parameters(function)
    other = {
        word: next(n for n in SPELLINGS[word] if n in own)
        for word in {word for name in own for word in _WORDS.get(name, ())}
        if word not in own
    }
    if not other and not rest:
        return function

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        if not kwargs:
            return function(*args)  # type: ignore[call-arg]  # as it was called
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


def _parameters(function: Callable[..., object]) -> tuple[tuple[str, ...], str]:
    """The names of a function's parameters, and that of the one that takes any number; '' where
    none does. Read from its code: a signature takes ten times as long, and there are hundreds.
    """
    code = inspect.unwrap(function).__code__
    count = code.co_argcount + code.co_kwonlyargcount
    starred = bool(code.co_flags & inspect.CO_VARARGS)
    named = count + starred + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[:named], code.co_varnames[count] if starred else ""
