"""Operators that move elements, convert them, and read and write by position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tunegrad.ir.dtypes import BOOL, I64, DType

from ...creation import arange
from ...functional import embedding
from ...functions import broadcast_shapes, cat, stack, where
from ...nodes.movement import inverse
from ...ops.indexing import within
from ...tensor import Tensor, lift
from .table import Operator, entries, overloads, unsupported


def _same(x: Any, *_: Any, **options: Any) -> Any:
    dtype = options.get("dtype")
    return x if dtype is None else lift(x, "_to_copy").cast(dtype)


def _to(x: Tensor, dtype: DType, *_: Any, **__: Any) -> Tensor:
    return x.cast(dtype)


def _to_device(x: Tensor, _: Any, dtype: DType, *__: Any, **___: Any) -> Tensor:
    return x.cast(dtype)


def _dropout(x: Tensor, p: float, train: bool) -> Tensor:
    if train and p:
        raise unsupported("dropout", "training")
    return x


def span(extent: int, start: int | None, end: int | None) -> tuple[int, int]:
    """Begin and end of a slice, by PyTorch's rules."""
    first, last, _ = slice(start, end).indices(extent)
    return first, max(first, last)


def _slice(
    x: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    at = dim % x.ndim
    return x[(*(slice(None),) * at, slice(start, end, step))]


def _slice_scatter(
    x: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None,
    step: int = 1,
) -> Tensor:  # fmt: skip
    at = dim % x.ndim
    first, last = span(x.shape[at], start, end)
    inner = src.cast(x.dtype)
    if step != 1:
        inner = _spread(_slice(x, at, first, last), inner, at, step)
    return cat([_slice(x, at, 0, first), inner, _slice(x, at, last)], at)


def _spread(x: Tensor, src: Tensor, at: int, step: int) -> Tensor:
    """``x`` with ``src`` at every ``step``-th place along a dimension."""
    behind = 2 * (x.ndim - at - 1)
    holed = src.unsqueeze(at + 1).pad([0] * behind + [0, step - 1])
    shape = (*src.shape[:at], src.shape[at] * step, *src.shape[at + 1 :])
    taken = np.arange(x.shape[at]) % step == 0
    mask = Tensor.constant(taken.reshape((-1, *(1,) * (x.ndim - at - 1))), BOOL)
    return where(mask, _slice(holed.reshape(shape), at, 0, x.shape[at]), x)


def _diagonal_scatter(
    x: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    rows, columns = dim1 % x.ndim, dim2 % x.ndim
    order = [*(d for d in range(x.ndim) if d not in (rows, columns)), rows, columns]
    moved = x.permute(*order)
    n, m = moved.shape[-2:]
    i, j = np.indices((n, m))
    place = np.clip(np.arange(n) - max(0, -offset), 0, max(0, src.shape[-1] - 1))
    if not src.size:
        return x
    line = src.cast(x.dtype).index_select(-1, Tensor.constant(place, I64)).unsqueeze(-1)
    found = where(Tensor.constant(j - i == offset, BOOL), line, moved)
    return found.permute(*inverse(order))


def _select_scatter(x: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    at = dim % x.ndim
    first = index % x.shape[at]
    return _slice_scatter(x, src.unsqueeze(at), at, first, first + 1)


def _constant_pad(x: Tensor, pad: Sequence[int], value: Any = 0) -> Tensor:
    return x.pad(list(pad), "constant", _filling(x, value))


def _filling(x: Tensor, value: Any) -> Any:
    """The number that PyTorch pads with: of integers a float without its fraction."""
    return int(value) if x.dtype.is_int and isinstance(value, float) else value


def _pad(x: Tensor, pad: Sequence[int], mode: Any = "constant", value: Any = None) -> Tensor:
    return x.pad(list(pad), mode, _filling(x, value))


def _roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    return x.roll(tuple(shifts), tuple(dims) or None)


def _repeat_interleave(
    x: Tensor, repeats: int, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    del output_size
    return x.repeat_interleave(repeats, dim)


def _copy(x: Tensor, src: Tensor) -> Tensor:
    return lift(src, "copy").cast(x.dtype).expand(*x.shape)


def _in_memory(op: str, x: Tensor, held: Sequence[int]) -> list[int]:
    """The dimensions of ``x`` in the order in which its memory has them, by its strides ``held``.

    Raises ModelError for memory with gaps.
    """
    dims = sorted((d for d in range(x.ndim) if x.shape[d] != 1), key=lambda d: -held[d])
    step = 1
    for d in reversed(dims):
        if held[d] != step:
            raise unsupported(op, f"memory of strides {tuple(held)} and shape {x.shape}")
        step *= x.shape[d]
    return [*(d for d in range(x.ndim) if x.shape[d] == 1), *dims]


def strided_scatter(
    x: Tensor, source: Tensor, held: Sequence[int], size: Sequence[int], stride: Sequence[int],
    offset: int,
) -> Tensor:  # fmt: skip
    """``x``, whose memory has the strides ``held``, with ``source`` where ``strided`` reads.

    Raises:
        ModelError: memory with gaps, or an element that is written twice.
    """
    dims = _in_memory("as_strided_scatter", x, held)
    steps = np.asarray(stride, np.int64).reshape((-1, *(1,) * len(size)))
    at = (np.indices(tuple(size)) * steps).sum(0).reshape(-1) + offset
    if np.unique(at).size != at.size:
        raise unsupported("as_strided_scatter", f"size {tuple(size)} of strides {tuple(stride)}")
    place = np.full(x.size, -1, np.int64)
    place[at] = np.arange(at.size)
    taken = source.reshape((-1,))
    if not np.array_equal(place, np.arange(x.size)):
        taken = taken[Tensor.constant(place.clip(0), I64)]
    if (place < 0).any():
        old = x.permute(*dims).reshape((x.size,))
        taken = where(Tensor.constant(place >= 0, BOOL), taken, old)
    made = taken.reshape(tuple(x.shape[d] for d in dims))
    return made.permute(*inverse(dims))


def strided(
    x: Tensor, held: Sequence[int], size: Sequence[int], stride: Sequence[int], offset: int
) -> Tensor:
    """A tensor whose memory has the strides ``held``, read with others from ``offset`` on.

    A permutation where it is one; otherwise elements are gathered by their computed positions.

    Raises:
        ModelError: memory with gaps, or elements that lie there more than once.
    """
    flat = x.permute(*_in_memory("as_strided", x, held)).reshape((x.size,))
    wide = [d for d in range(len(size)) if size[d] != 1 and stride[d]]
    order, step = sorted(wide, key=lambda d: -stride[d]), 1
    dense = offset == 0
    for d in reversed(order):
        dense, step = dense and stride[d] == step, step * size[d]
    if dense and step == x.size:
        made = flat.reshape(tuple(size[d] for d in order))
        made = made.permute(*(order.index(d) for d in wide)) if wide else made
        kept = tuple(n if n == 1 or stride[d] else 1 for d, n in enumerate(size))
        return made.reshape(kept).expand(*size)
    at: Any = offset
    for d, (n, s) in enumerate(zip(size, stride, strict=True)):
        at = arange(n).reshape((n, *(1,) * (len(size) - d - 1))) * s + at
    return flat[at] if isinstance(at, Tensor) else flat[at].reshape(tuple(size))


def _masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """The elements of ``source``, one after another, where the mask is true."""
    chosen = mask.expand(*x.shape).reshape((-1,))
    place = (chosen.cast("i64").cumsum(0) - 1).clamp(0, max(0, source.size - 1))
    taken = source.reshape((-1,))[place].cast(x.dtype)
    return where(chosen, taken, x.reshape((-1,))).reshape(x.shape)


_VIEWS = (
    "view.default", "_unsafe_view.default", "reshape.default", "view_copy.default",
    "_reshape_alias.default",
)  # fmt: skip

MOVEMENT: dict[str, Operator] = {
    **overloads(
        "default", Tensor.t, Tensor.unsqueeze, Tensor.diagonal, Tensor.tril, Tensor.triu,
        Tensor.unfold, Tensor.narrow, Tensor.chunk, Tensor.pixel_shuffle,
        Tensor.pixel_unshuffle,
    ),
    **overloads("int", Tensor.transpose, Tensor.select),
    **overloads("using_ints", Tensor.flatten),
    **overloads("default", Tensor.channel_shuffle, Tensor.diag_embed),
    **entries(Tensor.reshape, *_VIEWS),
    **entries(
        _same, "clone.default", "alias.default", "detach.default", "lift_fresh_copy.default",
        "lift_fresh.default", "contiguous.default", "_to_copy.default",
        "to.dtype_layout", "alias_copy.default", "detach_copy.default",
    ),
    **entries(_to, "to.dtype", "prims.convert_element_type.default"),
    **entries(_masked_scatter, "masked_scatter.default"),
    **entries(_to_device, "to.device"),
    **entries(_dropout, "dropout.default"),
    **entries(Tensor.expand, "expand.default"),
    **entries(Tensor.expand_as, "expand_as.default"),
    **entries(_slice, "slice.Tensor"),
    **entries(_slice_scatter, "slice_scatter.default"),
    **entries(_select_scatter, "select_scatter.default"),
    **entries(_diagonal_scatter, "diagonal_scatter.default"),
    **entries(Tensor.unbind, "unbind.int"),
    **entries(_constant_pad, "constant_pad_nd.default"),
    **entries(_pad, "pad.default"),
    **{f"reflection_pad{n}d.default": partial(Tensor.pad, mode="reflect") for n in (1, 2, 3)},
    **{f"replication_pad{n}d.default": partial(Tensor.pad, mode="replicate") for n in (1, 2, 3)},
    **entries(_roll, "roll.default"),
    **entries(Tensor.repeat, "repeat.default"),
    **entries(Tensor.flip, "flip.default"),
    **entries(Tensor.permute, "permute.default"),
    **entries(Tensor.squeeze, "squeeze.default", "squeeze.dim", "squeeze.dims"),
    **entries(Tensor.unflatten, "unflatten.int"),
    **entries(_repeat_interleave, "repeat_interleave.self_int"),
    **entries(_copy, "copy.default"),
    **entries(cat, "cat.default"),
    **entries(stack, "stack.default"),
    **entries(Tensor.split, "split.Tensor", "split_with_sizes.default", "split.sizes"),
}  # fmt: skip

Indices = Sequence[Tensor | None]


def _embedding(weight: Tensor, indices: Tensor, padding_idx: int = -1) -> Tensor:
    padding = None if padding_idx < 0 else padding_idx
    return embedding(within(indices, "embedding", 0, weight.shape[0]), weight, padding)


def _positive(op: str, x: Tensor, dim: int, index: Tensor) -> Tensor:
    """An index of an operator for which negative positions are an error."""
    return within(index, op, 0, x.shape[dim]) if x.ndim else index


def _by_positive(kinds: str, method: Operator) -> dict[str, Operator]:
    """A method of a tensor, a dimension, such an index and more."""

    def operator(x: Tensor, dim: int, index: Tensor, *rest: Any, **options: Any) -> Any:
        place = _positive(method.__name__, x, dim, index)
        return method(x, dim, place, *rest, **options)

    return entries(operator, *(f"{method.__name__}.{kind}" for kind in kinds.split()))


def _index(x: Tensor, indices: Indices) -> Tensor:
    if any(i is not None and i.dtype.is_bool for i in indices):
        raise unsupported("index.Tensor", "a mask, whose result has a shape that depends on values")
    return x[tuple(slice(None) if i is None else i for i in indices)]


def _index_put(x: Tensor, indices: Indices, values: Tensor, accumulate: bool = False) -> Tensor:
    """Positions of the first dimensions as positions in one row of them; a mask as a choice."""
    known = [(d, i) for d, i in enumerate(indices) if i is not None]
    if len(known) == 1 and known[0][1].dtype.is_bool:
        ((at, mask),) = known
        if values.size != 1 or accumulate or at:
            raise unsupported("index_put", f"a mask and values of shape {values.shape}")
        shaped = mask.reshape((*mask.shape, *(1,) * (x.ndim - mask.ndim)))
        return x.masked_fill(shaped, values.reshape(()).cast(x.dtype))
    if any(i.dtype.is_bool for _, i in known):
        raise unsupported("index_put", "a mask beside positions")
    dims = [d for d, _ in known]
    if dims != list(range(dims[0], dims[0] + len(dims))):
        raise unsupported("index_put", f"positions of dimensions {dims}, which are parted")
    at, shape = dims[0], broadcast_shapes(*(i.shape for _, i in known))
    row: Any = 0
    for d, i in known:
        extent = x.shape[d]
        i = within(i, "index_put", -extent, extent)
        row = row * extent + where(i < 0, i + extent, i)
    before, after = x.shape[:at], x.shape[at + len(dims) :]
    extents = x.shape[at : at + len(dims)]
    flat = x.reshape((*before, math.prod(extents), *after))
    spread = values.cast(x.dtype).expand(*before, *shape, *after)
    source = spread.reshape((*before, math.prod(shape), *after))
    line = row.expand(*shape).reshape((math.prod(shape),))
    put = flat.index_add(at, line, source) if accumulate else flat.index_copy(at, line, source)
    return put.reshape(x.shape)


def _bags(
    weight: Tensor, indices: Tensor, offsets: Tensor, mode: int = 0,
    per_sample_weights: Tensor | None = None, include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Tensor, None, None, None]:  # fmt: skip
    """Rows of a table, summed, averaged or their maximum for each bag.

    ``offsets`` say where bags begin. The other results are for the backward pass.
    """
    count = offsets.size - int(include_last_offset)
    bag = offsets.narrow(0, 0, count).searchsorted(arange(indices.size), right=True) - 1
    rows = _embedding(weight, indices)
    inside = bag.unsqueeze(0) == arange(count).unsqueeze(1)
    if include_last_offset:
        inside = inside & (arange(indices.size) < offsets[count])
    if padding_idx >= 0:
        inside = inside & (indices != padding_idx)
    if mode == _MAX:
        shown = where(inside.unsqueeze(-1), rows.unsqueeze(0), -math.inf).amax(1)
        return where(inside.any(1).unsqueeze(1), shown, 0.0).cast(weight.dtype), None, None, None
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    total = where(inside.unsqueeze(-1), rows.unsqueeze(0), 0.0).sum(1)
    if mode == _MEAN:
        total = total / inside.cast(weight.dtype).sum(1).clamp(1).unsqueeze(1)
    return total.cast(weight.dtype), None, None, None


_MEAN, _MAX = 1, 2
"""PyTorch's numbers of the ways to join a bag."""


def _searchsorted(
    rows: Tensor, values: Any, *, right: bool = False, side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:  # fmt: skip
    ordered = rows if sorter is None else rows.gather(-1, sorter)
    return ordered.searchsorted(values, right=right or side == "right")


def _isin(elements: Any, test: Any, *, invert: bool = False) -> Tensor:
    known = lift(test, "isin").reshape((-1,))
    found = (lift(elements, "isin").unsqueeze(-1) == known).any(-1)
    return ~found if invert else found


INDEXING: dict[str, Operator] = {
    **_by_positive("default", Tensor.index_select),
    **_by_positive("default", Tensor.scatter_add),
    **_by_positive("default", Tensor.index_add),
    **_by_positive("default", Tensor.index_copy),
    **_by_positive("two", Tensor.scatter_reduce),
    **_by_positive("src value", Tensor.scatter),
    **overloads("default", Tensor.take, Tensor.kthvalue, Tensor.one_hot),
    **entries(_bags, "_embedding_bag.default", "_embedding_bag_forward_only.default"),
    **entries(_searchsorted, "searchsorted.Tensor", "searchsorted.Scalar"),
    **overloads("Tensor Scalar", Tensor.bucketize),
    **entries(_isin, "isin.Tensor_Tensor", "isin.Tensor_Scalar", "isin.Scalar_Tensor"),
    **overloads("int_Scalar", Tensor.index_fill),
    **entries(_embedding, "embedding.default"),
    **_by_positive("default", Tensor.gather),
    **entries(_index, "index.Tensor", "_unsafe_index.Tensor"),
    **entries(_index_put, "index_put.default", "_unsafe_index_put.default"),
}  # fmt: skip
