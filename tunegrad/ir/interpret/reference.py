"""The float64 reference of a kernel: the same computation with every float in f64, inputs as they
are.

    v0 = add over ra in f32: mul(p1[a, ra], p2[ra, b])
    store p0[a, b] = max(v0, 0.0)
        -->
    v0 = add over ra in f64: mul(f64(p1[a, ra]), f64(p2[ra, b]))
    store p0[a, b] = max(v0, 0.0)                                   with p0 in f64

Casts to f16 and bf16 stay, and so do roundings to tf32: the model asks for them. Products of bf16
pairs are written out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast as typed

from .. import graph as g
from ..dtypes import F32, F64, DType
from ..expr import Apply, Cast, Const, Expr, IndexValue, Inside, Load, Op, Value
from ..graph import ConstData, GraphOp, Node, topological
from ..kernel import Kernel, Reduce, Stage, Store
from .numeric import compute, to_compute

__all__ = ["FlatNode", "flat", "graph_in_float64", "in_float64", "unflat", "unrounded"]


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
    """``k`` computed and stored in f64 (where it is floating point); inputs and layouts
    unchanged.
    """
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
"""A node whose sources are positions in a list: pickling a deep graph node by node would
exhaust the stack.
"""


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
