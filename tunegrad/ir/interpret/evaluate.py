"""The plain numpy meaning of a graph, and the float64 references of graphs and kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from typing import Any
from typing import cast as typed

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tunegrad.errors import InternalError, ShapeError

from .. import graph as g
from ..dtypes import F32, F64, DType
from ..expr import PRODUCTS, Apply, Cast, Const, Expr, IndexValue, Inside, Load, Op, Value
from ..graph import MOVEMENT, Bounds, ConstData, GraphOp, Node, topological
from ..index import clamped
from ..kernel import Kernel, Reduce, Stage, Store, identity
from .numeric import FOLDS, Array, bytes_of, compute, convert, to_compute, to_memory

# ---- meaning
#
# The plain numpy meaning of a graph: the oracle that every other way to run one is compared with.
#
# Each tensor has its node's dtype; f16 and bf16 are computed in f32 and rounded after each node.
# Reductions fold in the accumulator's dtype. A sum of products (matmul, convolution) goes through
# einsum, so that whole models can be evaluated without their products ever being in memory.


def evaluate(
    outputs: tuple[Node, ...],
    inputs: Mapping[str, Array] | None = None,
    moved: Callable[[Array], Array] | None = None,
) -> tuple[Array, ...]:
    """The outputs' values as arrays in memory form (bf16 as uint16), for ``inputs`` by name.

    ``moved`` gives what stands for the result of each sum that may round, for questions of how far
    errors of sums spread. Raises ShapeError when an input is missing or has another shape,
    IndexOutOfRange where indices are not within the bounds that the graph asks for.
    """
    values: dict[int, Array] = {}
    order = topological(outputs)
    factors = _factors(order, outputs)
    reads = Counter(id(o) for o in outputs)
    for n in reversed(order):
        reads.update(id(s) for s in _read(n, factors) if id(n) in reads)
    left = reads.copy()  # those that are still to come
    with np.errstate(all="ignore"):
        for node in order:
            if id(node) not in reads:
                continue
            found = _value(node, values, inputs or {}, factors, reads)
            values[id(node)] = moved(found) if moved and _sums_floats(node) else found
            for s in _read(node, factors):
                left[id(s)] -= 1
                if not left[id(s)]:
                    values.pop(id(s))
    return tuple(
        np.ascontiguousarray(to_memory(values[id(o)], o.dtype)).reshape(o.shape) for o in outputs
    )


def _sums_floats(n: Node) -> bool:
    """True for a sum of floats, or of products of bytes as a float, which a variant rounds."""
    if n.op is GraphOp.CAST and n.dtype.is_float:
        x = n.srcs[0]
        while x.op in MOVEMENT or (x.op is GraphOp.MAP and x.arg in (Op.ADD, Op.SUB)):
            x = x.srcs[0]
        return x.op is GraphOp.REDUCE and x.srcs[0].arg is Op.DOT4
    return n.op is GraphOp.REDUCE and n.dtype.is_float and typed(tuple[Op, Any], n.arg)[0] is Op.ADD


def _read(n: Node, factors: Mapping[int, tuple[Node, ...]]) -> tuple[Node, ...]:
    """The nodes whose values ``n`` needs: the factors in the place of a product, and of a part that
    is laid over the rest the part as it was before it was padded.
    """
    if _lays_over(n):
        return n.srcs[1].srcs[0], n.srcs[2]
    return tuple(f for s in n.srcs for f in factors.get(id(s), (s,)))


def _lays_over(n: Node) -> bool:
    """True for ``where(pad(true), pad(part), rest)``, as joining tensors makes it."""
    if n.op is not GraphOp.MAP or n.arg is not Op.WHERE:
        return False
    inside, part, _ = n.srcs
    return (
        inside.op is part.op is GraphOp.PAD
        and inside.arg == part.arg
        and inside.srcs[0].op is GraphOp.FULL
        and _full_value(inside.srcs[0]) is True
    )


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
    reads: Mapping[int, int],
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
    if _lays_over(node):
        part, rest = _read(node, factors)
        own = _lays_over(rest) and reads[id(rest)] == 1  # nothing else sees that array
        return _laid_over(node, values[id(part)], values[id(rest)], copy=not own)
    srcs = [values[id(s)] for s in node.srcs]
    if op is GraphOp.MAP:
        return _rounded(compute(typed(Op, arg), *srcs), node.dtype)
    if op is GraphOp.GATHER:
        return _gathered(srcs[0], srcs[1], typed(int, arg))
    if op is GraphOp.WITHIN:
        return _within(srcs, typed(Bounds, arg))
    if op is GraphOp.CAST:
        return convert(srcs[0], typed(DType, arg))
    if op is GraphOp.IDENTITY:
        return srcs[0]
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
    """The sum of ``a * b`` over the node's axes; broadcast dimensions (stride 0) read once."""
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


def _laid_over(node: Node, part: Array, rest: Array, *, copy: bool) -> Array:
    widths = typed("tuple[tuple[int, int], ...]", node.srcs[1].arg)
    found = np.array(rest) if copy else rest
    found[tuple(slice(a, n - b) for (a, b), n in zip(widths, node.shape, strict=True))] = part
    return found


def _gathered(x: Array, index: Array, dim: int) -> Array:
    extent = x.shape[dim]
    if not index.size:
        return np.zeros(index.shape, x.dtype)
    return np.take_along_axis(x, clamped(index, extent).astype(np.int64), dim)


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


# ---- reference


def unrounded(k: Kernel) -> Kernel:
    """``k`` with what it stores in 16 bits as it is before it is rounded to them, in f32.

    store p0[a, b] = bf16(v0)  -->  store p0[a, b] = v0         with p0 in f32
    """
    stages = tuple(_bare(s) for s in k.stages)
    pairs = zip(stages, k.stages, strict=True)
    bare = {s.param for s, before in pairs if s is not before and isinstance(s, Store)}
    params = tuple(replace(p, dtype=F32) if p.name in bare else p for p in k.params)
    return replace(k, params=params, stages=stages) if bare else k


def _bare(s: Stage) -> Stage:
    if isinstance(s, Reduce) or not isinstance(s.expr, Cast):
        return s
    x = s.expr
    return replace(s, expr=x.x) if x.dtype.is_half and x.x.dtype == F32 else s


def in_float64(k: Kernel) -> Kernel:
    """``k`` computed and stored in f64 where it is floating point; inputs, layouts as before."""
    stages: list[Stage] = []
    outputs = {p.name: p.dtype for p in k.outputs}
    memo: dict[int, Expr] = {}
    for s in k.stages:
        expr = _wide(s.expr, memo)
        if isinstance(s, Reduce):
            stages.append(replace(s, expr=expr, dtype=_wide_type(s.dtype)))
        else:
            if outputs[s.param].is_float and expr.dtype != F64:
                expr = _to_f64(expr)
            stages.append(replace(s, expr=expr))
    params = tuple(
        replace(p, dtype=F64) if p.role == "out" and p.dtype.is_float else p for p in k.params
    )
    return replace(k, params=params, stages=tuple(stages), name=f"{k.name} in f64")


def _product(half: Op, pairs: tuple[Expr, ...]) -> Expr:
    """One of the two products of a DOT2, exactly."""
    return Apply(Op.MUL, tuple(Cast(Apply(half, (p,), F32), F64) for p in pairs), F64)


def _wide_type(dtype: DType) -> DType:
    return F64 if dtype.is_float else dtype


def _to_f64(x: Expr) -> Expr:
    """f16 and bf16 go through f32, the one type they convert to."""
    if x.dtype == F64:
        return x
    if x.dtype.is_half:
        x = Cast(x, F32)
    return Cast(x, F64)


def _to_f32(x: Expr) -> Expr:
    """The operand of a rounding to fewer bits: f64 is narrowed to f32 first."""
    return Cast(x, F32) if x.dtype == F64 else x


def _wide(x: Expr, memo: dict[int, Expr]) -> Expr:
    found = memo.get(id(x))
    if found is None:
        found = memo[id(x)] = _widened(x, memo)
    return found


def _widened(x: Expr, memo: dict[int, Expr]) -> Expr:
    if isinstance(x, Load):
        return _to_f64(x) if x.dtype.is_float else x
    if isinstance(x, Const | Value | IndexValue):
        return replace(x, dtype=_wide_type(x.dtype))
    if isinstance(x, Inside):
        return x
    if isinstance(x, Apply) and x.op is Op.DOT2:
        low, high = (_product(half, x.args) for half in (Op.LOW, Op.HIGH))
        return Apply(Op.ADD, (low, high), F64)
    if isinstance(x, Apply) and x.op is Op.TF32:
        rounded = x.args[0] if isinstance(x.args[0], Load) else _to_f32(_wide(x.args[0], memo))
        return Cast(Apply(x.op, (rounded,), F32), F64)
    if isinstance(x, Apply) and (x.op is Op.PAIR or x.dtype.is_pair):
        return x
    if isinstance(x, Apply):
        return Apply(x.op, tuple(_wide(a, memo) for a in x.args), _wide_type(x.dtype))
    inner = _wide(x.x, memo)
    if x.dtype.is_half:
        return _to_f64(Cast(_to_f32(inner), x.dtype))
    target = _wide_type(x.dtype)
    return inner if inner.dtype == target else Cast(inner, target)


# ---- graph reference
#
# The float64 form of a graph: the same nodes with every float in f64, and a form of graphs that
# travels.
#
#     sum(mul(x f32, w f32)) f32     -->   sum(mul(x f64, w f64)) f64
#     sum(dot2(p pairs, q pairs))    -->   sum(mul(low p, low q)) + sum(mul(high p, high q)) in f64
#
# Casts to f16 and bf16 stay, and so do roundings to tf32: the model asks for them. Without them
# (``rounded`` false) it is what the model would be if nothing in it were rounded but its constants.


FlatNode = tuple[GraphOp, tuple[int, ...], object, tuple[int, ...], DType]
"""A node whose sources are places in a list: pickling deep graphs would exhaust the stack."""


def flat(outputs: tuple[Node, ...]) -> tuple[list[FlatNode], tuple[int, ...]]:
    """The graph as a list, sources first, and where the outputs are in it."""
    order = topological(outputs)
    at = {id(n): i for i, n in enumerate(order)}
    nodes = [(n.op, tuple(at[id(s)] for s in n.srcs), n.arg, n.shape, n.dtype) for n in order]
    return nodes, tuple(at[id(o)] for o in outputs)


def unflat(nodes: list[FlatNode], outputs: tuple[int, ...]) -> tuple[Node, ...]:
    """The outputs of a graph that ``flat`` made a list of."""
    made: list[Node] = []
    for op, srcs, arg, shape, dtype in nodes:
        made.append(Node(op, tuple(made[s] for s in srcs), arg, shape, dtype))
    return tuple(made[o] for o in outputs)


def graph_in_float64(outputs: tuple[Node, ...], *, rounded: bool = True) -> tuple[Node, ...]:
    """The same outputs, floats computed in f64; inputs that are floats have f64, too.

    ``rounded``: casts to 16 bits and to tf32 round, as in the graph; else they do nothing.
    """
    wide: dict[int, tuple[Node, ...]] = {}  # of pairs the first and the second number
    for n in topological(outputs):
        srcs = tuple(wide[id(s)] for s in n.srcs)
        if n.dtype.is_pair or any(s.dtype.is_pair for s in n.srcs):
            wide[id(n)] = _unpaired(n, srcs)
        elif n.op is GraphOp.REDUCE and n.srcs[0].arg is Op.DOT2:
            wide[id(n)] = (_sum_of_dots(n, *(wide[id(s)] for s in n.srcs[0].srcs)),)
        else:
            wide[id(n)] = (_widened_node(n, tuple(s[0] for s in srcs), rounded),)
    return tuple(wide[id(o)][0] for o in outputs)


def _unpaired(n: Node, srcs: tuple[tuple[Node, ...], ...]) -> tuple[Node, ...]:
    """A node of pairs, or of numbers that are made of pairs, as nodes of numbers in f64."""
    if n.op is GraphOp.CONST:
        return tuple(_half(n, half) for half in (Op.LOW, Op.HIGH))
    if n.op is not GraphOp.MAP:  # a movement, or a fence
        return tuple(Node(n.op, (x,), n.arg, n.shape, F64) for x in srcs[0])
    if n.arg is Op.PAIR:
        return srcs[0][0], srcs[1][0]
    if n.arg is Op.DOT2:
        products = [g.elementwise(Op.MUL, a, b) for a, b in zip(*srcs, strict=True)]
        return (g.elementwise(Op.ADD, *products),)
    return (srcs[0][n.arg is Op.HIGH],)


def _half(n: Node, half: Op) -> Node:
    data = typed(ConstData, n.arg)
    array = compute(half, data.array).astype("f8")
    return Node(n.op, (), replace(data, digest=f"{data.digest} {half}", array=array), n.shape, F64)


def _sum_of_dots(n: Node, p: tuple[Node, ...], q: tuple[Node, ...]) -> Node:
    """sum(dot2(p, q)) -> sum(low p * low q) + sum(high p * high q), no product ever in memory."""
    _, axes = typed("tuple[Op, tuple[int, ...]]", n.arg)
    sums = [g.reduce(Op.ADD, g.elementwise(Op.MUL, a, b), axes) for a, b in zip(p, q, strict=True)]
    return g.elementwise(Op.ADD, *sums)


def _widened_node(n: Node, srcs: tuple[Node, ...], rounded: bool) -> Node:
    dtype = F64 if n.dtype.is_float else n.dtype
    if n.op is GraphOp.CONST and n.dtype.is_float:
        data = typed(ConstData, n.arg)
        wide = replace(
            data,
            digest=f"{data.digest} {n.dtype} in f64",
            array=to_compute(data.array, n.dtype).astype("f8"),
        )
        return Node(n.op, (), wide, n.shape, dtype)
    if n.op is GraphOp.CAST and n.dtype.is_float:
        (x,) = srcs
        if n.dtype.is_half and rounded:
            x = g.cast(g.cast(x, F32), n.dtype)
        return g.cast(x, F64)
    if n.op is GraphOp.MAP and n.arg is Op.TF32:
        (x,) = srcs
        return g.cast(g.elementwise(Op.TF32, g.cast(x, F32)), F64) if rounded else x
    if n.op is GraphOp.MAP and typed(Op, n.arg).compares:
        dtype = n.dtype
    return Node(n.op, srcs, n.arg, n.shape, dtype)
