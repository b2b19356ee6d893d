"""The plain numpy meaning of a graph: the oracle that every other way to run one is compared with.

Each tensor has its node's dtype; f16 and bf16 are computed in f32 and rounded after each node.
Reductions fold in the accumulator's dtype. A sum of products (matmul, convolution) goes through
einsum, so that whole models can be evaluated without their products ever being in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any
from typing import cast as typed

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tunegrad.errors import InternalError, ShapeError

from ..dtypes import DType
from ..expr import PRODUCTS, Op
from ..graph import Bounds, ConstData, GraphOp, Node, topological
from ..kernel import identity
from .numeric import FOLDS, Array, bytes_of, compute, convert, to_compute, to_memory

__all__ = ["evaluate"]


def evaluate(
    outputs: tuple[Node, ...], inputs: Mapping[str, Array] | None = None
) -> tuple[Array, ...]:
    """The outputs' values as arrays in memory form (bf16 as uint16), for ``inputs`` by name.

    Raises ShapeError when an input is missing or has another shape, IndexOutOfRange where indices
    are not within the bounds that the graph asks for.
    """
    values: dict[int, Array] = {}
    order = topological(outputs)
    factors = _factors(order, outputs)
    last: dict[int, int] = {}
    for i, n in enumerate(order):
        for s in _read(n, factors):
            last[id(s)] = i
    keep = {id(o) for o in outputs}
    with np.errstate(all="ignore"):
        for i, node in enumerate(order):
            if id(node) in factors:
                continue
            values[id(node)] = _value(node, values, inputs or {}, factors)
            for s in _read(node, factors):
                if last[id(s)] == i and id(s) not in keep:
                    values.pop(id(s), None)
    return tuple(
        np.ascontiguousarray(to_memory(values[id(o)], o.dtype)).reshape(o.shape) for o in outputs
    )


def _read(n: Node, factors: Mapping[int, tuple[Node, ...]]) -> tuple[Node, ...]:
    """The nodes whose values ``n`` needs: the factors in the place of a product."""
    return tuple(f for s in n.srcs for f in factors.get(id(s), (s,)))


def _factors(order: list[Node], outputs: tuple[Node, ...]) -> dict[int, tuple[Node, ...]]:
    """Products that only sums read: they are never computed by themselves."""
    found = {
        id(n): n.srcs
        for n in order
        if n.op is GraphOp.MAP and n.arg in PRODUCTS and n.size and not n.dtype.is_half
    }
    for n in order:
        op = typed(tuple[Op, Any], n.arg)[0] if n.op is GraphOp.REDUCE else None
        if op is not Op.ADD:
            for s in n.srcs:
                found.pop(id(s), None)
    for o in outputs:
        found.pop(id(o), None)
    return found


def _value(
    node: Node,
    values: dict[int, Array],
    inputs: Mapping[str, Array],
    factors: Mapping[int, tuple[Node, ...]],
) -> Array:
    """The value in the compute type of the node's dtype (already rounded to the dtype)."""
    op, arg = node.op, node.arg
    if op is GraphOp.INPUT:
        return _input(node, inputs)
    if op is GraphOp.CONST:
        return to_compute(typed(ConstData, arg).array, node.dtype)
    if op is GraphOp.FULL:
        return np.broadcast_to(np.asarray(_full_value(node), node.dtype.compute.numpy), node.shape)
    if op is GraphOp.IOTA:
        return _iota(node)
    if op is GraphOp.REDUCE and id(node.srcs[0]) in factors:
        a, b = (values[id(f)] for f in factors[id(node.srcs[0])])
        return _sum_of_products(node, a, b)
    srcs = [values[id(s)] for s in node.srcs]
    if op is GraphOp.MAP:
        return _rounded(compute(typed(Op, arg), *srcs), node.dtype)
    if op is GraphOp.GATHER:
        return _gathered(srcs[0], srcs[1], typed(int, arg))
    if op is GraphOp.WITHIN:
        return _within(srcs, typed(Bounds, arg))
    if op is GraphOp.CAST:
        return convert(srcs[0], typed(DType, arg))
    if op is GraphOp.REDUCE:
        return _rounded(_reduce(node, srcs[0]), node.dtype)
    return _moved(node, srcs[0])


def _rounded(x: Array, dtype: DType) -> Array:
    return convert(x, dtype) if dtype.is_half else np.asarray(x, dtype.numpy)


def _input(node: Node, inputs: Mapping[str, Array]) -> Array:
    name = typed(str, node.arg)
    if name not in inputs:
        raise ShapeError(f"input {name!r} is missing; given: {', '.join(inputs) or 'none'}")
    if inputs[name].shape != node.shape:
        raise ShapeError(
            f"input {name!r} has shape {inputs[name].shape}, the graph needs {node.shape}"
        )
    return to_compute(inputs[name], node.dtype)


def _full_value(node: Node) -> float | int | bool:
    """The number of a FULL node."""
    return typed(tuple[str, str, Any], node.arg)[2]  # type: ignore[no-any-return]


def _iota(node: Node) -> Array:
    dim = typed(int, node.arg)
    shape = [1] * len(node.shape)
    shape[dim] = node.shape[dim]
    line = convert(np.arange(node.shape[dim], dtype=np.int64), node.dtype)
    return np.broadcast_to(line.reshape(shape), node.shape)


def _reduce(node: Node, x: Array) -> Array:
    op, axes = typed(tuple[Op, tuple[int, ...]], node.arg)
    acc = node.dtype.compute
    if 0 in (x.shape[a] for a in axes):
        return np.full(node.shape, identity(op, acc), acc.numpy)
    return np.asarray(FOLDS[op].reduce(x, axis=axes, dtype=acc.numpy, keepdims=True))


def _sum_of_products(node: Node, a: Array, b: Array) -> Array:
    """The sum of ``a * b`` over the node's axes, where broadcast dimensions (stride 0) are read
    once.
    """
    axes = typed(tuple[Op, tuple[int, ...]], node.arg)[1]
    shape = a.shape
    dims = [[d for d, n in enumerate(shape) if n > 1 and x.strides[d]] for x in (a, b)]
    small = [
        x[tuple(slice(None) if d in ds else 0 for d in range(len(shape)))]
        for x, ds in zip((a, b), dims, strict=True)
    ]
    kept = [d for d in range(len(shape)) if d not in axes and (d in dims[0] or d in dims[1])]
    repeats = prod(shape[d] for d in axes if d not in dims[0] and d not in dims[1])
    if node.srcs[0].arg is Op.DOT2:
        halves = [[compute(half, x) for x in small] for half in (Op.LOW, Op.HIGH)]
        result = sum(np.einsum(x, dims[0], y, dims[1], kept, optimize=True) for x, y in halves)
    elif node.srcs[0].arg is Op.DOT4:
        # in float64 they are exact, and what BLAS multiplies
        wide: list[Array] = [bytes_of(x).astype(np.float64) for x in small]
        both = [[*ds, len(shape)] for ds in dims]
        total = np.einsum(wide[0], both[0], wide[1], both[1], kept, optimize=True)
        result = np.asarray(total).astype(np.int64).astype(np.int32)
    else:
        result = np.einsum(small[0], dims[0], small[1], dims[1], kept, optimize=True)
    if repeats > 1:
        result = result * np.asarray(repeats, node.dtype.numpy)
    return np.broadcast_to(
        result.reshape([shape[d] if d in kept else 1 for d in range(len(shape))]), node.shape
    )


def _gathered(x: Array, index: Array, dim: int) -> Array:
    extent = x.shape[dim]
    if not index.size:
        return np.zeros(index.shape, x.dtype)
    if index.dtype.kind == "u":
        at = np.minimum(index, np.uint64(extent - 1)).astype(np.int64)
    else:
        signed = index.astype(np.int64)
        at = np.clip(np.where(signed < 0, signed + extent, signed), 0, extent - 1)
    return np.take_along_axis(x, at, dim)


def _within(srcs: list[Array], bounds: Bounds) -> Array:
    """The indices. Raises IndexOutOfRange."""
    index, *when = srcs
    if index.size and all(w.item() for w in when):
        for bad in (int(index.min()), int(index.max())):
            if not bounds.low <= bad < bounds.high:
                raise bounds.fault(bad)
    return index


def _moved(node: Node, x: Array) -> Array:
    op, arg = node.op, typed(Any, node.arg)
    if op is GraphOp.RESHAPE:
        return x.reshape(node.shape)
    if op is GraphOp.EXPAND:
        return np.broadcast_to(x, node.shape)
    if op is GraphOp.PERMUTE:
        return x.transpose(arg)
    if op is GraphOp.PAD:
        return np.pad(x, arg)
    if op is GraphOp.SHRINK:
        return x[tuple(slice(a, b) for a, b in arg)]
    if op is GraphOp.FLIP:
        return np.flip(x, arg)
    if op is GraphOp.WINDOW:
        dim, size, stride, dilation = arg
        view = sliding_window_view(x, dilation * (size - 1) + 1, axis=dim)[..., ::dilation]
        return np.asarray(view[(slice(None),) * dim + (slice(None, None, stride),)])
    if op is GraphOp.CONTIGUOUS:
        return x
    raise InternalError(f"graph operation {op} has no meaning here")
