"""Reading and writing by position: gather and its kin, scatter.

Positions are integers of any width; negative ones count from the end. One out of range is an error
when the result is computed, or at once where it is known. Where there is a ``mode``, numpy's
meaning holds: ``"clip"`` makes a negative one the first position and one beyond the end the last,
and ``"wrap"`` counts on from the other end. ``scatter`` and its kin give a new tensor;
``x[key] = value`` writes to ``x``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from tunegrad.errors import AxisError, DTypeError, IndexOutOfRange, IndexTypeError, ShapeError
from tunegrad.ir import graph
from tunegrad.ir.dtypes import I64
from tunegrad.ir.graph import ConstData, GraphOp, Node

from ..aliasing import same_place, write
from ..handle import Handle, TensorLike, apply, joined, lift, repeated
from ..handle import where as choose
from ..nodes import indexing
from ..nodes.elementwise import Scalar, broadcast, broadcast_shapes, constant, where
from ..nodes.movement import axis_of, integer
from ..operation import T, operation

Positions = NDArray[np.int64]


def item(x: T, key: object) -> T:
    """``x[key]`` by numpy's rules for keys of integers, slices, None, an Ellipsis, truths, masks
    that are known, and arrays or tensors of positions.

        x[:, [2, 0, 1]]           positions that are known, read by their constants; so x[0, (2, 0)]
        x[rows, :, columns]       positions of several dimensions, which broadcast
        x[0, :, [1, 2]]           integers go first, as in PyTorch (numpy counts them with arrays)
        x[mask]                   the positions where a known mask holds
        x[True], x[False]         a new dimension of extent 1, or 0

    Raises:
        AxisError: too many indices, one out of range, or a mask of another shape.
        IndexTypeError: an index of another kind.
        DTypeError: a mask whose values are not known yet.
    """
    if type(key) is int and x.shape and -x.shape[0] <= key < x.shape[0]:  # most often, and faster
        at = key % x.shape[0]
        limits = (at, at + 1), *((0, s) for s in x.shape[1:])
        return x._moved(graph.shrink, limits)._moved(graph.reshape, x.shape[1:])
    return _rows(x, key) if isinstance(key, Handle) and key.dtype.is_int else _item(x, key)


def _item(x: T, key: object) -> T:
    y, listed, chosen = _picked(x, key)
    count = sum(i is not None for i in chosen)
    if not count:
        return y
    if count == 1:
        at = next(d for d, i in enumerate(chosen) if i is not None)
        known = listed[at]
        if isinstance(known, np.ndarray) and known.ndim == 1:
            found = take_known(y, at, _counted(known.astype(np.int64), y, at))
            return found._with(found.node)
    return _read(y, chosen)


_rows = repeated(_item)
"""``x[i]`` of a tensor of positions, whose form is known from the third call on."""


def set_item(x: Handle, key: object, value: TensorLike) -> None:
    """``x[key] = value`` for the keys that ``x[key]`` reads, and for one mask whose values are not
    known yet: the value, converted to the dtype of ``x``, is broadcast to ``x[key]``. Of several
    elements that are written to one place the last one stays.

    Raises what ``x[key]`` does, ShapeError for a value that does not broadcast, and the errors of
    ``write``.
    """
    v = _converted(x, value)
    if isinstance(key, Handle) and _is_unknown_mask(key):
        held = _put_where(x, key, v)
        write(x, held.node, held)
        return
    y, _, chosen = _picked(x, key)
    if all(i is None for i in chosen):
        if not same_place(y, v):  # x[key] += 1 wrote it already
            write(y, _spread("setitem", v, y.shape), v)
        return
    held = _put("setitem", y, chosen, v)
    write(y, held.node, held)


def _read(x: T, chosen: Sequence[Handle | None]) -> T:
    """``x`` at positions of its dimensions, None for one that is taken whole."""
    known = joined([x, *(i for i in chosen if i is not None)])
    return x.of(indexing.index(x.node, _nodes(chosen)), known)


def _put(op: str, x: T, chosen: Sequence[Handle | None], v: Handle) -> T:
    """A copy of ``x`` with a value at such positions."""
    nodes = _nodes(chosen)
    spread = _spread(op, v, indexing.index(x.node, nodes).shape)
    known = joined([x, v, *(i for i in chosen if i is not None)])
    return x.of(indexing.indexed_put(x.node, nodes, spread), known)


def _nodes(chosen: Sequence[Handle | None]) -> list[Node | None]:
    return [None if i is None else i.node for i in chosen]


def _converted(x: Handle, value: TensorLike) -> Handle:
    if isinstance(value, float) and x.dtype.is_int and math.isfinite(value):
        value = int(value)
    if isinstance(value, bool | int | float):
        return Handle.of(constant(value, (), x.dtype, "setitem"))
    return lift(value, "setitem").cast(x.dtype)


def _spread(op: str, v: Handle, shape: tuple[int, ...]) -> Node:
    """A value over a shape; it may have more dimensions, of extent 1, in front.

    Raises ShapeError where it does not fit.
    """
    lead = max(0, v.ndim - len(shape))
    own = v.shape[lead:] if set(v.shape[:lead]) <= {1} else v.shape
    if broadcast_shapes(op, own, shape) != shape:
        raise ShapeError(f"{op}: a value of shape {v.shape} does not broadcast to {shape}")
    return broadcast(graph.reshape(v.node, own), shape)


def _put_where(x: T, mask: Handle, v: Handle) -> T:
    """A copy of ``x`` with a value where a mask of its first dimensions holds."""
    if mask.shape != x.shape[: mask.ndim]:
        raise ShapeError(f"setitem: mask of shape {mask.shape} does not fit shape {x.shape}")
    tail = x.shape[mask.ndim :]
    if v.ndim > len(tail):
        raise ShapeError(
            f"setitem: a value of shape {v.shape} where a mask of shape {mask.shape} holds: how "
            "many elements it chooses is not known yet; use where"
        )
    wide = graph.reshape(mask.node, (*mask.shape, *(1 for _ in tail)))
    spread = _spread("setitem", v, x.shape)
    return x.of(where(broadcast(wide, x.shape), spread, x.node), joined([x, mask, v]))


def _picked(x: T, key: object) -> tuple[T, list[Any], list[Handle | None]]:
    """The slices that a key takes, and for each of their dimensions the index that is left, as it
    is and as positions: None for a dimension that is taken whole.
    """
    items = list(key) if isinstance(key, tuple) else [key]
    listed = _spelled_out(x, [_listed(i, x) for i in items])
    y = _sliced(x, [_taken(i) for i in listed])
    listed = [
        np.zeros(int(i), np.int64) if isinstance(i, bool) else i
        for i in listed
        if i is None or isinstance(i, bool | slice | np.ndarray | Handle)
    ]
    return y, listed, [_position(i) for i in listed]


def _taken(i: object) -> object:
    """What basic indexing takes where an item stands: all of a dimension that positions read, a new
    one that a truth makes.
    """
    if isinstance(i, bool):
        return None
    return slice(None) if isinstance(i, np.ndarray | Handle) else i


def _sliced(x: T, keys: list[Any]) -> T:
    """Basic indexing as in numpy: integers, slices with any step and None, one for each dimension.

    Raises:
        IndexOutOfRange, ShapeError: a position or a slice that the dimension does not have.
        IndexTypeError: an index of another kind.
    """
    limits: list[tuple[int, int]] = []
    reversed_dims: list[int] = []
    steps: list[tuple[int, int]] = []
    shape: list[int] = []
    for key in keys:
        if key is None:
            shape.append(1)
            continue
        dim = len(limits)
        extent = x.shape[dim]
        if not isinstance(key, slice):
            if not isinstance(key, int | np.integer):
                raise IndexTypeError(
                    f"getitem: index {key!r} on shape {x.shape} is not an integer, slice, None or "
                    "..."
                )
            if not -extent <= int(key) < extent:
                raise IndexOutOfRange(
                    f"getitem: index {key} is out of range for extent {extent} of dimension {dim} "
                    f"of {x.shape}"
                )
            at = int(key) % extent
            limits.append((at, at + 1))
            continue
        try:
            span = range(extent)[key]
        except TypeError as error:
            raise IndexTypeError(f"getitem: slice {key}: {error}") from None
        except ValueError as error:
            raise ShapeError(f"getitem: slice {key}: {error}") from None
        count, step = len(span), abs(span.step)
        low = min(span[0], span[-1]) if count else 0
        limits.append((low, low + (count - 1) * step + 1 if count else low))
        if count > 1 and span.step < 0:
            reversed_dims.append(dim)
        if count > 1 and step > 1:
            steps.append((dim, step))
        shape.append(count)
    y = x._moved(graph.shrink, tuple(limits))
    if reversed_dims:
        y = y._moved(graph.flip, tuple(reversed_dims))
    for dim, step in steps:
        y = y._moved(graph.window, dim, 1, step, 1)
    return y if y.shape == tuple(shape) else y._moved(graph.reshape, tuple(shape))


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
        if key.dtype.is_float:
            raise IndexTypeError(
                f"getitem: index {key.describe()} on shape {x.shape} is not an integer"
            )
        if not key.dtype.is_bool:
            return key
        key = _known_mask(key, x)
    if isinstance(key, np.bool_):
        return bool(key)
    if not isinstance(key, list | tuple | range | np.ndarray):
        return key
    array = np.asarray(key)
    if array.size == 0 and array.dtype.kind == "f":
        array = array.astype(np.int64)
    if array.dtype.kind not in "biu":
        raise IndexTypeError(
            f"getitem: index of {array.dtype} on shape {x.shape}; positions are integers or bools"
        )
    return array if array.ndim or array.dtype.kind != "b" else bool(array)


def _is_unknown_mask(key: Handle) -> bool:
    return key.dtype.is_bool and key.node.op is not GraphOp.CONST


def _known_mask(key: Handle, x: Handle) -> NDArray[np.generic]:
    if _is_unknown_mask(key):
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
        raise AxisError(f"getitem: more than one ... in an index of shape {x.shape}")
    at = dots[0] if dots else len(items)
    filled = items[:at] + [slice(None)] * (x.ndim - used) + items[at + len(dots) :]
    flat: list[object] = []
    dim = 0
    for i in filled:
        if isinstance(i, np.ndarray) and i.dtype == np.bool_:
            if i.shape != x.shape[dim : dim + i.ndim]:
                raise AxisError(
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
    if i is None or isinstance(i, bool):
        return 0
    return i.ndim if isinstance(i, np.ndarray) and i.dtype == np.bool_ else 1


def take_known(x: T, dim: int, positions: Positions) -> T:
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
    return item(x, (*(slice(None),) * dim, key))


@operation
def gather(
    input: Handle, dim: int, index: TensorLike, *, mode: indexing.Beyond = "raise"
) -> Handle:
    """``out[i, j] = input[index[i, j], j]`` for dimension 0 of two; ``index`` is no longer than
    input along the other dimensions.
    """
    i = lift(index, "gather")
    if not input.shape:
        return gather(input.reshape(1), dim, i.reshape(-1), mode=mode).reshape(i.shape)
    return apply("gather", lambda x, n: indexing.gather(x, n, dim, mode), input, i)


@operation
def take_along_dim(
    input: Handle, indices: TensorLike, dim: int | None = None, *, mode: indexing.Beyond = "raise"
) -> Handle:
    """``gather`` with the other dimensions of both broadcast; of all in one row without a
    dimension.
    """
    i = lift(indices, "take_along_dim")
    if dim is None:
        return take_along_dim(input.ravel(), i.ravel(), 0, mode=mode)
    return apply("take_along_dim", lambda x, n: indexing.take_along(x, n, dim, mode), input, i)


@operation
def index_select(
    input: Handle, dim: int, index: TensorLike, *, mode: indexing.Beyond = "raise"
) -> Handle:
    """The slices at the positions of a vector along ``dim``."""
    i = lift(index, "index_select")
    if i.ndim > 1:
        raise ShapeError(f"index_select: index {i.shape} for {input.shape} must be a vector")
    if not input.shape:
        return index_select(input.reshape(1), dim, i, mode=mode).reshape(())
    row = i.reshape(-1)
    return apply("index_select", lambda x, n: indexing.take(x, n, dim, mode), input, row)


@operation
def take(
    input: Handle, index: TensorLike, dim: int | None = None, *, mode: indexing.Beyond = "raise"
) -> Handle:
    """Elements at positions in the row of all; along ``dim``, where that is given, as numpy's.

    The result has the shape of ``index`` there.
    """
    x, at = (input.ravel(), 0) if dim is None else (input, dim)
    return apply("take", lambda n, i: indexing.take(n, i, at, mode), x, lift(index, "take"))


@operation
def scatter(
    input: Handle, dim: int, index: TensorLike, src: TensorLike | None = None,
    *, reduce: Literal["add", "multiply"] | None = None, value: Scalar | None = None,
) -> Handle:  # fmt: skip
    """``input[index[i, j], j] = src[i, j]`` for dimension 0 of two, the last one of several; or
    folded into input.
    """
    mode = "set" if reduce is None else _FOLDS[reduce]
    return _scattered(input, "scatter", dim, index, value if src is None else src, mode)


@operation
def scatter_add(input: Handle, dim: int, index: TensorLike, src: TensorLike) -> Handle:
    """``input[index[i, j], j] += src[i, j]`` for dimension 0 of two."""
    return _scattered(input, "scatter_add", dim, index, src, "add")


@operation
def scatter_reduce(
    input: Handle, dim: int, index: TensorLike, src: TensorLike,
    reduce: Literal["sum", "prod", "amax", "amin", "mean"], *, include_self: bool = True,
) -> Handle:  # fmt: skip
    """Fold input with all elements of ``src`` that are written to the same place; without
    ``include_self`` these alone, where there are any.

    Raises ShapeError for a fold that is not there.
    """
    mode = "add" if reduce == "mean" else _FOLDS.get(reduce)
    if mode is None:
        valid = "'sum', 'prod', 'amax', 'amin', 'mean'"
        raise ShapeError(f"scatter_reduce: reduce={reduce!r} is not supported; valid: {valid}")
    fold = partial(_scattered, op="scatter_reduce", dim=dim, index=index)
    if include_self and reduce != "mean":
        return fold(input, src=src, mode=mode)
    count = fold(Handle.of(constant(0, input.shape, I64)), src=1, mode="add")
    start, kind = input, input.dtype
    if not include_self:
        ends = (-math.inf, math.inf) if kind.is_float else (kind.least, kind.greatest)
        first = {"add": 0, "mul": 1, "max": ends[0], "min": ends[1]}[mode]
        start = choose(count > 0, first, input)
    found = fold(start, src=src, mode=mode)
    if reduce != "mean":
        return found
    count = count + 1 if include_self else choose(count > 0, count, 1)
    return (found // count if kind.is_int else found / count).cast(kind)


def _scattered(
    input: Handle, op: str, dim: int, index: TensorLike, src: TensorLike | None, mode: indexing.Mode
) -> Handle:
    i = lift(index, op)
    if src is None:
        raise ShapeError(f"{op}: neither a source nor a value for {input.shape}")
    s = lift(src, op)
    if not isinstance(src, Handle) and not s.shape:
        s = s.cast(input.dtype).expand(i.shape)
    if not input.shape:
        row = _scattered(input.reshape(1), op, dim, i.reshape(-1), s.reshape(-1), mode)
        return row.reshape(())
    at = axis_of(op, dim, input.shape)
    if s.ndim == i.ndim:  # a source may be longer than the index
        limits = [(0, min(a, b)) for a, b in zip(i.shape, s.shape, strict=True)]
        s = s.shrink(limits)
    return apply(op, lambda x, n, v: indexing.scatter(x, n, v, at, mode), input, i, s)


@operation
def index_add(
    input: Handle, dim: int, index: TensorLike, source: TensorLike, *, alpha: Scalar = 1
) -> Handle:
    """The slices of ``source`` added to those at the positions of a vector."""
    s = lift(source, "index_add")
    return _by_rows(input, dim, index, s if alpha == 1 else s * alpha, "add")


@operation
def index_copy(input: Handle, dim: int, index: TensorLike, source: TensorLike) -> Handle:
    """The slices of ``source`` in the place of those at the positions of a vector."""
    return _by_rows(input, dim, index, lift(source, "index_copy"), "set")


@operation
def index_fill(input: Handle, dim: int, index: TensorLike, value: Scalar) -> Handle:
    """``value`` in the slices at the positions of a vector."""
    if not input.shape:
        return index_fill(input.reshape(1), dim, index, value).reshape(())
    at = axis_of("index_fill", dim, input.shape)
    i = lift(index, "index_fill")
    shape = [i.shape[0] if a == at else s for a, s in enumerate(input.shape)]
    return _by_rows(input, dim, i, lift(value, "").cast(input.dtype).expand(shape), "set")


@operation
def index_reduce(
    input: Handle, dim: int, index: TensorLike, source: TensorLike,
    reduce: Literal["prod", "mean", "amax", "amin"], *, include_self: bool = True,
) -> Handle:  # fmt: skip
    """The slices at the positions of a vector folded with those of ``source``, as
    ``scatter_reduce``.
    """
    s = lift(source, "index_reduce")
    if not input.shape:
        row = index_reduce(
            input.reshape(1), dim, index, s.reshape(-1), reduce, include_self=include_self
        )
        return row.reshape(())
    at = axis_of("index_reduce", dim, input.shape)
    i = lift(index, "index_reduce")
    if i.ndim > 1 or s.shape != (*input.shape[:at], i.node.size, *input.shape[at + 1 :]):
        raise ShapeError(
            f"index_reduce: shapes {input.shape}, {i.shape} and {s.shape} do not fit along {at}"
        )
    i = i.reshape(*(-1 if d == at else 1 for d in range(input.ndim))).expand(s.shape)
    return scatter_reduce(input, at, i, s, reduce, include_self=include_self)


@operation
def index_put(
    input: Handle, indices: Sequence[TensorLike | None], values: TensorLike,
    accumulate: bool = False,
) -> Handle:  # fmt: skip
    """``input[indices] = values`` in a copy, the last one of several; added up where they
    ``accumulate``. An index that is None takes its dimension whole, and a number is a position.
    """
    key = tuple(
        slice(None) if i is None else i if isinstance(i, Handle) else np.asarray(i) for i in indices
    )
    if not key:
        raise ShapeError(f"index_put: no index for shape {input.shape}")
    v, mask = _converted(input, values), key[0]
    if len(key) == 1 and isinstance(mask, Handle) and _is_unknown_mask(mask):
        if not accumulate:
            return _put_where(input, mask, v)
        nothing = constant(-0.0 if input.dtype.is_float else 0, input.shape, input.dtype)
        return input + _put_where(Handle.of(nothing), mask, v)
    y, _, chosen = _picked(input, key)
    if not accumulate:
        return _put("index_put", y, chosen, v).reshape(input.shape)
    at = _read(Handle.of(graph.iota((y.size,), 0, I64)).reshape(y.shape), chosen)
    spread = v.of(_spread("index_put", v, at.shape), v.bindings)
    return scatter_add(input.ravel(), 0, at.ravel(), spread.ravel()).reshape(input.shape)


@operation
def put(input: Handle, index: TensorLike, source: TensorLike, accumulate: bool = False) -> Handle:
    """``source`` at positions in the row of all elements, or added to them."""
    i, s = (lift(a, "put").ravel() for a in (index, source))
    fold = scatter_add if accumulate else scatter
    return fold(input.ravel(), 0, i, s).reshape(input.shape)


def within(input: T, op: str, low: int, high: int) -> T:
    """These positions, held to ``low <= position < high``."""
    return input._with(indexing.within(op, input.node, low, high))


def _by_rows(input: Handle, dim: int, index: TensorLike, s: Handle, mode: indexing.Mode) -> Handle:
    i = lift(index, "index")
    if not input.shape:
        return _by_rows(input.reshape(1), dim, i.reshape(-1), s.reshape(-1), mode).reshape(())
    return apply("index", lambda x, n, v: indexing.put(x, n, v, dim, mode), input, i, s)


_FOLDS: dict[str, indexing.Mode] = {
    "sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "amax": "max", "amin": "min",
}  # fmt: skip


@operation
def one_hot(input: Handle, num_classes: int = -1) -> Handle:
    """i64 ones at the positions that it holds, along a new last dimension.

    Raises ShapeError unless ``num_classes`` is given, DTypeError for positions that are no
    integers, IndexOutOfRange for those that are not from 0 to ``num_classes`` - 1.
    """
    if not input.dtype.is_int:
        raise DTypeError(
            f"one_hot: positions of shape {input.shape} are {input.dtype}, they must be integers"
        )
    if num_classes == -1:
        raise ShapeError(
            f"one_hot: positions of shape {input.shape} without num_classes: how many classes "
            "there are must not depend on values"
        )
    count = integer("one_hot", "num_classes", num_classes, 0)
    positions = Handle.of(graph.iota((count,), 0, input.dtype))
    held = within(input, "one_hot", 0, count)
    return (held.unsqueeze(-1) == positions).cast("i64")
