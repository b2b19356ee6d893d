"""Tensors in f16 that products make or read are f32, where the device multiplies them so.

    before                                              after
    %1 = cast %0 f16[8,64]                              %1 = cast %0 f16[8,64]
    %2 = cast %1 f32[8,64]                              %2 = contiguous (cast %1 f32)  as it is read
    %3 = reduce add (mul %2 w ..) f32[8,32]             %3 = reduce add (mul %2 w ..) f32[8,32]
    %4 = cast %3 f16[8,32]
    %5 = map add (cast %4 f32) b  f32[8,32]             %5 = map add %3 b  f32[8,32]
    %6 = cast %5 f16[8,32]
    %7 = reduce max (cast %6 f32) f32[8,1]              %7 = reduce max %5 f32[8,1]

A product by f32 arithmetic widens each element as often as it multiplies it, and rounds what it has
just summed. Results of products keep the digits that they have, as in ONNX Runtime and XLA, and
another tensor that products read repeatedly is widened once, when it is stored.

What stays rounded: inputs, outputs and constants; what no sum of products leads to, such as an
embedding; a tensor that is compared, or rounded to integers, since equal numbers may be others
then; one that is read in f16; and one that the caches do not hold, of which f16 is half the
traffic.
"""

from __future__ import annotations

from .. import graph as g
from ..dtypes import F16, F32
from ..expr import Op
from ..graph import MOVEMENT, GraphOp, Node, Step, topological
from .sums import applied, chain, stepped, sum_of_products

_JUMPS = frozenset((Op.FLOOR, Op.ROUND, Op.FLOORDIV, Op.MOD, Op.LT, Op.EQ, Op.NE))
"""Operations of which equal numbers have other results than nearly equal ones."""


def widened(
    outputs: tuple[Node, ...], most_bytes: int, steps: list[Step] | None = None
) -> tuple[Node, ...]:
    """The same outputs with such tensors in f32 that take up to ``most_bytes`` so; a graph without
    any keeps its nodes.

    cast(moves(cast(x, f16)), f32)  -->  moves(x)                                    of results
    cast(moves(cast(x, f16)), f32)  -->  moves(contiguous(cast(cast(x, f16), f32)))  of factors
    """
    order = topological(outputs)
    small = {n for n in order if _narrows(n) and n.size * F32.itemsize <= most_bytes}
    if not small:
        return outputs
    wide, factors = (_results(order) & small) - _kept(order), _factors(order)
    new: dict[Node, Node] = {}
    for n in order:
        base, moves = chain(n.srcs[0]) if _widens(n) else (n, ())
        if base is not n and base in wide:
            new[n] = applied(new[base.srcs[0]], moves)
        elif n in factors and base in small:
            new[n] = applied(g.contiguous(g.cast(new[base], F32)), moves)
        else:
            new[n] = g.with_sources(n, tuple(map(new.__getitem__, n.srcs)))
    return stepped(outputs, new, steps)


def _widens(n: Node) -> bool:
    return n.op is GraphOp.CAST and n.dtype == F32 and n.srcs[0].dtype == F16


def _narrows(n: Node) -> bool:
    return n.op is GraphOp.CAST and n.dtype == F16 and n.srcs[0].dtype == F32


def _results(order: list[Node]) -> set[Node]:
    """Floats that sums of products lead to, through floats alone."""
    found = set[Node]()
    for n in order:
        if n.dtype.is_float and (sum_of_products(n) or not found.isdisjoint(n.srcs)):
            found.add(n)
    return found


def _kept(order: list[Node]) -> set[Node]:
    """Tensors of which some reader takes f16, or has results that jump."""
    found = set[Node]()
    for n in order:
        if not (n.op in MOVEMENT or _widens(n)):
            found.update(chain(s)[0] for s in n.srcs)
        jumps = n.arg in _JUMPS if n.op is GraphOp.MAP else not n.dtype.is_float
        for wide in (chain(s)[0] for s in n.srcs) if jumps else ():
            if _widens(wide):
                found.add(chain(wide.srcs[0])[0])
    return found


def _factors(order: list[Node]) -> set[Node]:
    """Widening casts that sums of products read repeatedly."""
    spreads = (GraphOp.EXPAND, GraphOp.WINDOW)
    read = (chain(f) for n in order if (s := sum_of_products(n)) for f in s[0].srcs)
    return {n for n, moves in read if _widens(n) and any(m.op in spreads for m in moves)}
