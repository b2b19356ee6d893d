"""Values of all items of a group at once: instructions that touch neither memory nor others.

A value is an array of a row for each item, or one row where all have the same, and a column for
each lane.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import program as p
from ..program import Instr, VType
from .values import constant, converter, lane_folder, operation

__all__ = ["table", "value_step"]

Array = NDArray[Any]
Step = Callable[[], None]
_ARRAYS = 2
"""Lanes of an operation, as far as that function asks: it gets arrays and no numbers."""


def value_step(
    i: Instr, values: MutableMapping[int, Array], types: Mapping[int, VType]
) -> Step | None:
    """The closure that computes ``i`` from ``values`` into them; None for other instructions."""
    match i:
        case p.Number(new, value, t):
            fixed = np.full((1, t.lanes), constant(value, t.dtype), t.dtype.numpy)
            return partial(values.__setitem__, new, fixed)
        case p.Compute(new, op, args, t):
            return _applied(values, new, args, operation(op, t.dtype, _ARRAYS))
        case p.Convert(new, arg, t):
            convert = converter(types[arg].dtype, t.dtype)
            return _applied(values, new, (arg,), lambda x: np.asarray(convert(x)))
        case p.Splat(new, arg, t):
            return _applied(
                values, new, (arg,), lambda x: np.broadcast_to(x, (x.shape[0], t.lanes))
            )
        case p.Fold(new, op, arg, _):
            return _applied(values, new, (arg,), lane_folder(op))
        case p.Select(new, mask, yes, no, _):
            return _applied(values, new, (mask, yes, no), np.where)
    return None


def _applied(
    values: MutableMapping[int, Array], new: int, args: tuple[int, ...], f: Callable[..., Array]
) -> Step:
    if len(args) == 2:  # most of them
        a, b = args

        def two() -> None:
            values[new] = f(values[a], values[b])

        return two

    def step() -> None:
        values[new] = f(*[values[x] for x in args])

    return step


def table(x: Any, lanes: int) -> Array:
    """A number or an array as one of rows and lanes."""
    made = np.asarray(x)
    if made.ndim < 2:
        made = made.reshape(1, -1)
    return np.broadcast_to(made, (made.shape[0], max(lanes, made.shape[1])))
