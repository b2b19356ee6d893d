"""The float64 form of a graph: the same nodes with every float in f64, and a form of graphs that
travels.

    sum(mul(x f32, w f32)) f32   -->   sum(mul(x f64, w f64)) f64

Casts to f16 and bf16 stay: they are roundings that the model asks for. A graph with pairs of bf16
stays as it is: its words hold bits, not numbers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast as typed

from .dtypes import F32, F64, DType
from .expr import Op
from .graph import ConstData, GraphOp, Node, topological
from .numeric import to_compute

__all__ = ["FlatNode", "flat", "graph_in_float64", "unflat"]

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


def graph_in_float64(outputs: tuple[Node, ...]) -> tuple[Node, ...]:
    """The same outputs, floats computed in f64; inputs that are floats have f64, too."""
    order = topological(outputs)
    if any(n.dtype.is_pair for n in order):
        return outputs
    wide: dict[int, Node] = {}
    for n in order:
        wide[id(n)] = _widened(n, tuple(wide[id(s)] for s in n.srcs))
    return tuple(wide[id(o)] for o in outputs)


def _widened(n: Node, srcs: tuple[Node, ...]) -> Node:
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
        if n.dtype.bits == 16:
            x = Node(
                n.op,
                (x if x.dtype == F32 else Node(n.op, (x,), F32, n.shape, F32),),
                n.dtype,
                n.shape,
                n.dtype,
            )
        return x if x.dtype == F64 else Node(n.op, (x,), F64, n.shape, F64)
    if n.op is GraphOp.MAP and typed(Op, n.arg).compares:
        dtype = n.dtype
    return Node(n.op, srcs, n.arg, n.shape, dtype)
