"""``x[key]``: numpy's rules for keys of integers, slices, None, an Ellipsis, and arrays of positions
that are known when the graph is built.

    x[:, [2, 0, 1]]           runs of positions are slices, joined
    x[rows, :, columns]       dimensions of arrays side by side, then one array of positions
    x[mask]                   the positions where a known mask holds
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tunegrad.errors import DTypeError, ShapeError
from tunegrad.ir import graph
from tunegrad.ir.dtypes import I32

from . import movement
from .handle import Handle
from .handle import where as select

if TYPE_CHECKING:
    from .tensor import Tensor

__all__ = ["item", "take"]

Positions = NDArray[np.int64]
_MOST_RUNS = 16
"""Slices that are joined; more positions than that are selected one by one."""


def item(x: Tensor, key: object) -> Tensor:
    """``x[key]``.

    Raises:
        ShapeError: too many indices, or one out of range.
        DTypeError: an index of another kind, or a mask whose values are not known yet.
    """
    items = list(key) if isinstance(key, tuple) else [key]
    for i in items:
        if isinstance(i, Handle):
            raise DTypeError(
                f"getitem: index {i._same().describe()} on shape {x.shape} is not an integer, slice, "
                "None, ... or array; positions that a kernel computes are not read yet"
            )
    if not any(isinstance(i, list | np.ndarray) for i in items):
        return x._with(movement.index(x.node, key))
    return _advanced(x, [_listed(i, x) for i in items])


def _listed(key: object, x: Tensor) -> object:
    if not isinstance(key, list | np.ndarray):
        return key
    array = np.asarray(key)
    if array.size == 0 and array.dtype.kind == "f":
        array = array.astype(np.int64)
    if array.dtype.kind not in "biu":
        raise DTypeError(
            f"getitem: index of {array.dtype} on shape {x.shape}; positions are integers or bools"
        )
    return array


def _advanced(x: Tensor, items: list[object]) -> Tensor:
    """Slices first, then arrays: a key without arrays, and one position for each chosen element."""
    items = _spelled_out(x, items)
    plain = tuple(slice(None) if isinstance(i, np.ndarray) else i for i in items)
    wanted: list[tuple[int, Positions]] = []
    dim = 0
    gap, places = False, list[int]()
    for i in items:
        if isinstance(i, np.ndarray):
            gap = gap or (bool(places) and places[-1] != dim - 1)
            places.append(dim)
            wanted.append((dim, i.astype(np.int64)))
            dim += 1
        elif i is None or isinstance(i, slice):
            dim += 1
        else:  # an integer takes part in the broadcast, as in numpy
            dim += 0
    y = x._with(movement.index(x.node, plain))
    return _chosen(y, wanted, front=gap)


def _spelled_out(x: Tensor, items: list[object]) -> list[object]:
    """One item for each dimension: masks as positions, the Ellipsis as slices."""
    flat: list[object] = []
    for i in items:
        if isinstance(i, np.ndarray) and i.dtype == np.bool_:
            dims = sum(_width(k) for k in flat if k is not Ellipsis)
            if Ellipsis in flat:
                dims = x.ndim - sum(_width(k) for k in items[items.index(i) :] if k is not Ellipsis)
            if i.shape != x.shape[dims : dims + i.ndim]:
                raise ShapeError(
                    f"getitem: mask of shape {i.shape} does not fit shape {x.shape} at {dims}"
                )
            flat.extend(np.nonzero(i))
        else:
            flat.append(i)
    used = sum(_width(i) for i in flat if i is not Ellipsis)
    if used > x.ndim:
        raise ShapeError(f"getitem: {used} indices for the {x.ndim} dimensions of shape {x.shape}")
    dots = [n for n, i in enumerate(flat) if i is Ellipsis]
    at = dots[0] if dots else len(flat)
    return flat[:at] + [slice(None)] * (x.ndim - used) + flat[at + len(dots) :]


def _width(i: object) -> int:
    """Dimensions that an item takes."""
    if i is None:
        return 0
    return i.ndim if isinstance(i, np.ndarray) and i.dtype == np.bool_ else 1


def _chosen(x: Tensor, wanted: list[tuple[int, Positions]], front: bool) -> Tensor:
    """Elements at positions of several dimensions, which broadcast."""
    try:
        arrays = np.broadcast_arrays(*(a for _, a in wanted))
    except ValueError:
        shapes = " and ".join(str(a.shape) for _, a in wanted)
        raise ShapeError(f"getitem: indices of shapes {shapes} do not broadcast") from None
    dims = [d for d, _ in wanted]
    extents = [x.shape[d] for d in dims]
    flat = np.zeros(arrays[0].shape, np.int64)
    for array, extent, d in zip(arrays, extents, dims, strict=True):
        if array.size and not (-extent <= array.min() and array.max() < extent):
            bad = array.min() if array.min() < -extent else array.max()
            raise ShapeError(
                f"getitem: index {bad} is out of range for extent {extent} of dimension {d} of "
                f"{x.shape}"
            )
        flat = flat * extent + np.where(array < 0, array + extent, array)
    at = 0 if front else dims[0]
    moved = x.movedim(tuple(dims), tuple(range(at, at + len(dims))))
    merged = moved.reshape(*moved.shape[:at], prod(extents), *moved.shape[at + len(dims) :])
    found = take(merged, at, flat.reshape(-1))
    return found.reshape(*found.shape[:at], *flat.shape, *found.shape[at + 1 :])


def take(x: Tensor, dim: int, positions: Positions) -> Tensor:
    """The slices of ``x`` at known positions along ``dim``, each from 0 to its extent."""
    runs = _runs(positions)
    if len(runs) > _MOST_RUNS:
        return _one_by_one(x, dim, positions)
    parts = [_run(x, dim, first, step, count) for first, step, count in runs]
    if len(parts) == 1:
        return parts[0]
    nodes = movement.cat([p.node for p in parts], dim, "getitem")
    return Handle.of(nodes, x.bindings)


def _runs(positions: Positions) -> list[tuple[int, int, int]]:
    """Positions as runs of equal steps: (first, step, how many)."""
    if not len(positions):
        return [(0, 1, 0)]
    runs: list[tuple[int, int, int]] = []
    i = 0
    while i < len(positions) and len(runs) <= _MOST_RUNS:
        step = int(positions[i + 1] - positions[i]) if i + 1 < len(positions) else 1
        j = i + 1
        while j < len(positions) and positions[j] - positions[j - 1] == step:
            j += 1
        if j - i == 2 and j < len(positions) and abs(step) != 1:  # two alone are no run
            j = i + 1
        runs.append((int(positions[i]), step, j - i))
        i = j
    return runs


def _run(x: Tensor, dim: int, first: int, step: int, count: int) -> Tensor:
    if not count:
        return x.narrow(dim, 0, 0)
    if step == 0:
        shape = (*x.shape[:dim], count, *x.shape[dim + 1 :])
        return x.narrow(dim, first, 1).expand(shape)
    stop = first + step * count
    key = slice(first, stop if stop >= 0 else None, step)
    return x._with(movement.index(x.node, (*(slice(None),) * dim, key)))


def _one_by_one(x: Tensor, dim: int, positions: Positions) -> Tensor:
    """Every position selects its slice: a sum of which one term is not zero."""
    extent, count = x.shape[dim], len(positions)
    at = Handle.of(graph.const(positions.astype(np.int32), I32))
    here = at.unsqueeze(-1) == Handle.of(graph.iota((1, extent), 1, I32))
    last = x.movedim(dim, -1).unsqueeze(-2)
    zero = False if x.dtype.is_bool else 0
    picked = select(here, last, zero)
    found = picked.any(-1) if x.dtype.is_bool else picked.sum(-1)
    assert found.shape[-1] == count
    return found.movedim(-1, dim)._as(x.dtype)
