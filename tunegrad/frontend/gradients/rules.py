"""Gradients of graph nodes other than elementwise ones: folds, movements, reads, casts."""

from __future__ import annotations

from math import prod
from types import MappingProxyType
from typing import Any, cast

from tunegrad.errors import DTypeError
from tunegrad.ir import graph
from tunegrad.ir.expr import Op
from tunegrad.ir.graph import GraphOp, Node

from ..nodes import folds, indexing
from ..nodes.elementwise import binary, compare, constant, where
from ..nodes.movement import inverse
from .cotangent import Cotangent
from .elementwise import ELEMENTWISE, Flow, Rule


def flow(n: Node, g: Cotangent) -> Flow:
    """The cotangents that flow from a node to each of its sources.

    Raises DTypeError for an operation that has no gradient.
    """
    rule = ELEMENTWISE.get(cast(Op, n.arg)) if n.op is GraphOp.MAP else _RULES.get(n.op)
    if rule is None:
        raise DTypeError(
            f"grad: {n.arg if n.op is GraphOp.MAP else n.op} of {n.dtype}{list(n.shape)} has no "
            "gradient; detach() what it reads"
        )
    return rule(n, g)


def _reduce(n: Node, g: Cotangent) -> Flow:
    """d(fold x) by what folds: sum, product, maximum or minimum"""
    op, axes = cast(tuple[Op, tuple[int, ...]], n.arg)
    if op is Op.ADD:
        return (g.spread(n.srcs[0].shape),)
    if op is Op.MUL:
        return (_product(n.srcs[0], axes, g),)
    return (_extremum(n, axes, g),)


def _extremum(n: Node, axes: tuple[int, ...], g: Cotangent) -> Cotangent:
    """d(max x): in equal parts to all that are the largest"""
    x = n.srcs[0]
    best = compare("eq", x, graph.expand(n, x.shape))
    hits = where(best, graph.full(1, x.shape, x.dtype), 0.0)
    count = graph.reduce(Op.ADD, hits, axes)
    part = graph.expand(binary(Op.DIV, g.node(), count), x.shape)
    return Cotangent.of(where(best, part, 0.0))


def _product(x: Node, axes: tuple[int, ...], g: Cotangent) -> Cotangent:
    """d(x1 x2 ... xn) = sum of dxi times the product of the others"""
    kept = tuple(d for d in range(len(x.shape)) if d not in axes)
    order = (*kept, *axes)
    moved = graph.permute(x, order)
    lead = tuple(x.shape[d] for d in kept)
    rows = graph.reshape(moved, (*lead, prod(x.shape[d] for d in axes)))
    if not rows.size:
        return g.spread(x.shape)
    last = len(lead)
    before = _products_before(rows, last)
    after = graph.flip(_products_before(graph.flip(rows, (last,)), last), (last,))
    others = graph.reshape(binary(Op.MUL, before, after), moved.shape)
    return g.spread(x.shape).times(graph.permute(others, inverse(order)))


def _products_before(rows: Node, last: int) -> Node:
    """The product of all elements before each one along the last dimension; 1 before the first."""
    n = rows.shape[last]
    ends = tuple((0, s) for s in rows.shape[:last])
    one = graph.full(1, (*rows.shape[:last], 1), rows.dtype)
    if n == 1:
        return one
    found = folds.cumulative("prod", graph.shrink(rows, (*ends, (0, n - 1))), last)
    widths = (*((0, 0) for _ in ends), (1, 0))
    first = graph.pad(one, (*((0, 0) for _ in ends), (0, n - 1)))
    return binary(Op.ADD, graph.pad(found, widths), first)


def _cast(n: Node, g: Cotangent) -> Flow:
    """d(cast x) = cast(dx); integers and truths stop"""
    x = n.srcs[0]
    if not x.dtype.is_float:
        return (None,)
    return (Cotangent(g.shape, (graph.cast(g.added_up().factors[0], x.dtype),)),)


def _reshape(n: Node, g: Cotangent) -> Flow:
    """RESHAPE back"""
    return (g.reshaped(n.srcs[0].shape),)


def _expand(n: Node, g: Cotangent) -> Flow:
    """EXPAND -> sum"""
    return (g.repeated(n.srcs[0].shape),)


def _permute(n: Node, g: Cotangent) -> Flow:
    """PERMUTE -> the inverse permutation"""
    return (g.permuted(cast(tuple[int, ...], n.arg)),)


def _pad(n: Node, g: Cotangent) -> Flow:
    """PAD -> SHRINK"""
    return (g.cut(cast(Any, n.arg), n.srcs[0].shape),)


def _shrink(n: Node, g: Cotangent) -> Flow:
    """SHRINK -> PAD"""
    return (g.padded(cast(Any, n.arg), n.srcs[0].shape),)


def _flip(n: Node, g: Cotangent) -> Flow:
    """FLIP -> FLIP"""
    return (g.flipped(cast(tuple[int, ...], n.arg)),)


def _window(n: Node, g: Cotangent) -> Flow:
    """WINDOW -> the sum of all that reads an element"""
    dim, size, stride, dilation = cast(tuple[int, int, int, int], n.arg)
    padded = n.srcs[0]
    while padded.op is GraphOp.WINDOW and cast(Any, padded.arg)[0] != dim:
        padded = padded.srcs[0]
    known = padded.op is GraphOp.PAD and dim < len(padded.shape)
    padding = cast(Any, padded.arg)[dim][0] if known else 0
    return (g.unwindowed(dim, size, stride, dilation, n.srcs[0].shape, padding),)


def _gather(n: Node, g: Cotangent) -> Flow:
    """GATHER -> added to the places that were read"""
    x, index = n.srcs
    at = cast(int, n.arg)
    whole = g.node()
    if not n.size:
        return Cotangent.of(constant(0, x.shape, x.dtype)), None
    places = indexing.clamped(index, x.shape[at])
    if index.shape[at] == 1:  # one place of each row
        here = compare("eq", graph.expand(places, x.shape), graph.iota(x.shape, at, places.dtype))
        return Cotangent.of(where(here, graph.expand(whole, x.shape), 0.0)), None
    nothing = constant(0, x.shape, x.dtype)
    line = _line(places, at)
    if line is not None:
        return Cotangent.of(indexing.put(nothing, line, whole, at, "add")), None
    return Cotangent.of(indexing.scatter(nothing, places, whole, at, "add")), None


def _line(places: Node, at: int) -> Node | None:
    """Places that are the same in all rows, as a vector; None where they are not."""
    if places.op is GraphOp.EXPAND:
        places = places.srcs[0]
    extents = places.shape
    if any(s != 1 for d, s in enumerate(extents) if d != at):
        return None
    return graph.reshape(places, (extents[at],))


def _pass(_: Node, g: Cotangent) -> Flow:
    """A node that stores a tensor lets all through"""
    return (g,)


_RULES: MappingProxyType[GraphOp, Rule] = MappingProxyType(
    {
        GraphOp.REDUCE: _reduce, GraphOp.CAST: _cast, GraphOp.RESHAPE: _reshape,
        GraphOp.EXPAND: _expand, GraphOp.PERMUTE: _permute, GraphOp.PAD: _pad,
        GraphOp.SHRINK: _shrink, GraphOp.FLIP: _flip, GraphOp.WINDOW: _window,
        GraphOp.GATHER: _gather, GraphOp.CONTIGUOUS: _pass,
    }
)  # fmt: skip
