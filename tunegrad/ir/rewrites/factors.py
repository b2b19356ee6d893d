"""Sums of products in a graph, and what their factors are: what the rewrites to pairs, fours, tf32
and 16 bits share.

    sum over axes of left * right            left, right: movements of a tensor, the last one last
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from .. import graph as g
from ..expr import Op
from ..graph import MOVEMENT, GraphOp, Node, Step, topological

__all__ = [
    "Moves",
    "applied",
    "chain",
    "is_known",
    "rewritten",
    "stepped",
    "sum_of_products",
    "with_factors",
]

Moves = tuple[Node, ...]
"""Movements of a tensor, the last one last; what they are of is not looked at."""


def rewritten(
    outputs: tuple[Node, ...],
    rule: Callable[[Node], Node | None],
    steps: list[Step] | None = None,
) -> tuple[Node, ...]:
    """The same outputs with what ``rule`` makes of each node in its place, sources first; where it
    is None the node stays. A graph that it changes nowhere keeps its nodes.
    """
    new: dict[Node, Node] = {}
    for n in topological(outputs):
        srcs = tuple(map(new.__getitem__, n.srcs))
        made = n if srcs == n.srcs else Node(n.op, srcs, n.arg, n.shape, n.dtype)
        new[n] = rule(made) or made
    return stepped(outputs, new, steps)


def stepped(
    outputs: tuple[Node, ...], new: Step, steps: list[Step] | None = None
) -> tuple[Node, ...]:
    """Apply a rewrite to outputs; it is added to ``steps`` where it changes any."""
    made = tuple(new[o] for o in outputs)
    if steps is not None and made != outputs:
        steps.append(new)
    return made


def sum_of_products(n: Node) -> tuple[Node, tuple[int, ...]] | None:
    """The product that ``n`` is the sum of, and along which axes; None where it is no such sum."""
    if n.op is not GraphOp.REDUCE or n.srcs[0].op is not GraphOp.MAP:
        return None
    op, axes = cast(tuple[Op, tuple[int, ...]], n.arg)
    return (n.srcs[0], axes) if op is Op.ADD and n.srcs[0].arg is Op.MUL else None


def with_factors(n: Node, step: int, change: Callable[[Node], Node | None]) -> Node | None:
    """The sum of products ``n`` with other factors. None where it is no such sum, where no axis is
    whole steps of ``step`` terms, as a matrix unit adds them, and where ``change`` gives none.
    """
    found = sum_of_products(n)
    if found is None or all(found[0].shape[a] % step for a in found[1]):
        return None
    product, axes = found
    factors = [f for f in map(change, product.srcs) if f is not None]
    if len(factors) < len(product.srcs):
        return None
    return g.reduce(Op.ADD, g.elementwise(Op.MUL, *factors), axes)


def chain(x: Node) -> tuple[Node, Moves]:
    """The node below all movements of ``x``, and these movements in order."""
    moves: list[Node] = []
    while x.op in MOVEMENT:
        moves.append(x)
        x = x.srcs[0]
    return x, tuple(reversed(moves))


def applied(x: Node, moves: Moves) -> Node:
    """The movements of another tensor of the same shape, on ``x``."""
    for m in moves:
        x = Node(m.op, (x,), m.arg, m.shape, x.dtype)
    return x


def is_known(n: Node, known: dict[Node, bool]) -> bool:
    """True if no input reaches ``n``; ``known`` keeps what was found."""
    if n not in known:
        for m in (n,) if all(s in known for s in n.srcs) else topological((n,)):
            known[m] = m.op is not GraphOp.INPUT and all(known[s] for s in m.srcs)
    return known[n]
