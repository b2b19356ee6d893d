"""Operators that read and write by position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...creation import arange
from ...functional import embedding
from ...functions import broadcast_shapes, where
from ...ops.indexing import within
from ...tensor import Tensor, lift
from .table import Operator, entries, overloads, unsupported

__all__ = ["TABLE"]

Indices = Sequence[Tensor | None]


def _embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:  # fmt: skip
    del padding_idx, scale_grad_by_freq, sparse
    return embedding(within(indices, "embedding", 0, weight.shape[0]), weight)


def _gather(x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    del sparse_grad
    return x.gather(dim, _positive("gather", x, dim, index))


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
    weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False,
    mode: int = 0, sparse: bool = False, per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False, padding_idx: int = -1,
) -> tuple[Tensor, None, None, None]:  # fmt: skip
    """Rows of a table, summed, averaged or their maximum for each bag.

    ``offsets`` say where bags begin. The other results are for the backward pass.
    """
    del scale_grad_by_freq, sparse
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
    rows: Tensor, values: Any, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Tensor | None = None,
) -> Tensor:  # fmt: skip
    del out_int32
    ordered = rows if sorter is None else rows.gather(-1, sorter)
    return ordered.searchsorted(values, right=right or side == "right")


def _bucketize(
    values: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    del out_int32
    return boundaries.searchsorted(values, right=right)


def _isin(elements: Any, test: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    del assume_unique
    known = lift(test, "isin").reshape((-1,))
    found = (lift(elements, "isin").unsqueeze(-1) == known).any(-1)
    return ~found if invert else found


TABLE: dict[str, Operator] = {
    **_by_positive("default", Tensor.index_select),
    **_by_positive("default", Tensor.scatter_add),
    **_by_positive("default", Tensor.index_add),
    **_by_positive("default", Tensor.index_copy),
    **_by_positive("two", Tensor.scatter_reduce),
    **_by_positive("src value", Tensor.scatter),
    **overloads("default", Tensor.take, Tensor.kthvalue),
    **entries(_bags, "_embedding_bag.default", "_embedding_bag_forward_only.default"),
    **entries(_searchsorted, "searchsorted.Tensor", "searchsorted.Scalar"),
    **entries(_bucketize, "bucketize.Tensor", "bucketize.Scalar"),
    **entries(_isin, "isin.Tensor_Tensor", "isin.Tensor_Scalar", "isin.Scalar_Tensor"),
    **overloads("int_Scalar", Tensor.index_fill),
    **entries(_embedding, "embedding.default"),
    **entries(_gather, "gather.default"),
    **entries(_index, "index.Tensor", "_unsafe_index.Tensor"),
    **entries(_index_put, "index_put.default", "_unsafe_index_put.default"),
}  # fmt: skip
