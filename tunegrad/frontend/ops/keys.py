"""``x[key]``: numpy's rules for keys of integers, slices, None, an Ellipsis, masks that are known,
and arrays or tensors of positions.

    x[:, [2, 0, 1]]           positions that are known, read by their constants; so x[0, (2, 0)]
    x[rows, :, columns]       positions of several dimensions, which broadcast
    x[0, :, [1, 2]]           integers go first, as in PyTorch (numpy counts them with the arrays)
    x[mask]                   the positions where a known mask holds
"""

from __future__ import annotations

from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tunegrad.errors import AxisError, DTypeError, IndexOutOfRange, ShapeError
from tunegrad.ir import graph
from tunegrad.ir.dtypes import I64
from tunegrad.ir.graph import ConstData, GraphOp

from ..handle import Handle, joined
from ..nodes import indexing, movement

__all__ = ["item", "take"]

Positions = NDArray[np.int64]
T = TypeVar("T", bound=Handle)


def item(x: T, key: object) -> T:
    """``x[key]``.

    Raises:
        AxisError: too many indices, or one out of range.
        DTypeError: an index of another kind, or a mask whose values are not known yet.
    """
    items = list(key) if isinstance(key, tuple) else [key]
    if not any(isinstance(i, list | tuple | range | np.ndarray | Handle) for i in items):
        return x._with(movement.index(x.node, key))
    listed = _spelled_out(x, [_listed(i, x) for i in items])
    plain = tuple(slice(None) if isinstance(i, np.ndarray | Handle) else i for i in listed)
    y = x._with(movement.index(x.node, plain))
    listed = [i for i in listed if i is None or isinstance(i, slice | np.ndarray | Handle)]
    chosen = [_position(i) for i in listed]
    if sum(i is not None for i in chosen) == 1:
        at = next(d for d, i in enumerate(chosen) if i is not None)
        known = listed[at]
        if isinstance(known, np.ndarray) and known.ndim == 1:
            return take(y, at, _counted(known.astype(np.int64), y, at))
    nodes = [None if i is None else i.node for i in chosen]
    tensors = [i for i in chosen if i is not None]
    return x.of(indexing.index(y.node, nodes), joined([y, *tensors]))


def _position(i: object) -> Handle | None:
    """Positions as a tensor; None for a dimension that is taken whole."""
    if i is None or isinstance(i, slice):
        return None
    if isinstance(i, Handle):
        return i
    return Handle.of(graph.const(np.asarray(i, np.int64), I64))


def _counted(positions: Positions, x: Handle, at: int) -> Positions:
    """Positions counted from the front.

    Raises IndexOutOfRange for one that is.
    """
    extent = x.shape[at]
    if positions.size and not (-extent <= positions.min() and positions.max() < extent):
        bad = positions.min() if positions.min() < -extent else positions.max()
        raise IndexOutOfRange(
            f"getitem: index {bad} is out of range for extent {extent} of dimension {at} of "
            f"{x.shape}"
        )
    return np.where(positions < 0, positions + extent, positions)


def _listed(key: object, x: Handle) -> object:
    """Arrays of positions or masks; tensors stay, but masks must be known."""
    if isinstance(key, Handle):
        return _known_mask(key, x) if key.dtype.is_bool else _whole(key, x)
    if not isinstance(key, list | tuple | range | np.ndarray):
        return key
    array = np.asarray(key)
    if array.size == 0 and array.dtype.kind == "f":
        array = array.astype(np.int64)
    if array.dtype.kind not in "biu":
        raise DTypeError(
            f"getitem: index of {array.dtype} on shape {x.shape}; positions are integers or bools"
        )
    return array


def _whole(key: Handle, x: Handle) -> Handle:
    if not key.dtype.is_int:
        raise DTypeError(f"getitem: index {key.describe()} on shape {x.shape} is not an integer")
    return key


def _known_mask(key: Handle, x: Handle) -> NDArray[np.generic]:
    if key.node.op is not GraphOp.CONST:
        raise DTypeError(
            f"getitem: mask {key.describe()} on shape {x.shape}: how many elements it "
            "chooses depends on its values; use where or masked_fill, or a numpy mask"
        )
    return cast(ConstData, key.node.arg).array


def _spelled_out(x: Handle, items: list[object]) -> list[object]:
    """One item for each dimension: masks as positions, the Ellipsis as slices."""
    used = sum(_width(i) for i in items if i is not Ellipsis)
    if used > x.ndim:
        raise AxisError(f"getitem: {used} indices for the {x.ndim} dimensions of shape {x.shape}")
    dots = [n for n, i in enumerate(items) if i is Ellipsis]
    if len(dots) > 1:
        raise ShapeError(f"getitem: more than one ... in an index of shape {x.shape}")
    at = dots[0] if dots else len(items)
    filled = items[:at] + [slice(None)] * (x.ndim - used) + items[at + len(dots) :]
    flat: list[object] = []
    dim = 0
    for i in filled:
        if isinstance(i, np.ndarray) and i.dtype == np.bool_:
            if i.shape != x.shape[dim : dim + i.ndim]:
                raise ShapeError(
                    f"getitem: mask of shape {i.shape} does not fit shape {x.shape} at dimension "
                    f"{dim}"
                )
            flat.extend(np.nonzero(i))
        else:
            flat.append(i)
        dim += _width(i)
    return flat


def _width(i: object) -> int:
    """Dimensions that an item takes."""
    if i is None:
        return 0
    return i.ndim if isinstance(i, np.ndarray) and i.dtype == np.bool_ else 1


def take(x: T, dim: int, positions: Positions) -> T:
    """The slices of ``x`` at known positions along ``dim``, each from 0 to its extent; one slice
    where they are equally far apart.
    """
    steps = np.diff(positions)
    if not len(positions):
        return x.narrow(dim, 0, 0)
    if len(steps) and (steps != steps[0]).any():
        return x._with(indexing.take(x.node, graph.const(positions, I64), dim))
    first, step = int(positions[0]), int(steps[0]) if len(steps) else 1
    if step == 0:
        shape = (*x.shape[:dim], len(positions), *x.shape[dim + 1 :])
        return x.narrow(dim, first, 1).expand(shape)
    stop = first + step * len(positions)
    key = slice(first, stop if stop >= 0 else None, step)
    return x._with(movement.index(x.node, (*(slice(None),) * dim, key)))
