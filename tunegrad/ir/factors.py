"""Sums of products in a graph, and what their factors are: what the rewrites to pairs, fours and
tf32 share.

    sum over axes of left * right            left, right: movements of a tensor, the last one last
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from .expr import Op
from .graph import MOVEMENT, GraphOp, Node, topological

__all__ = ["Moves", "applied", "chain", "is_known", "rewritten", "sum_of_products"]

Moves = tuple[Node, ...]
"""Movements of a tensor, the last one last; what they are of is not looked at."""


def rewritten(outputs: tuple[Node, ...], rule: Callable[[Node], Node | None]) -> tuple[Node, ...]:
    """The same outputs with what ``rule`` makes of each node in its place, sources first; where it
    is None the node stays. A graph that it changes nowhere keeps its nodes.
    """
    new: dict[Node, Node] = {}
    for n in topological(outputs):
        srcs = tuple(new[s] for s in n.srcs)
        made = n if srcs == n.srcs else Node(n.op, srcs, n.arg, n.shape, n.dtype)
        new[n] = rule(made) or made
    return tuple(new[o] for o in outputs)


def sum_of_products(n: Node) -> tuple[Node, tuple[int, ...]] | None:
    """The product that ``n`` is the sum of, and along which axes; None where it is no such sum."""
    if n.op is not GraphOp.REDUCE or n.srcs[0].op is not GraphOp.MAP:
        return None
    op, axes = cast(tuple[Op, tuple[int, ...]], n.arg)
    return (n.srcs[0], axes) if op is Op.ADD and n.srcs[0].arg is Op.MUL else None


def chain(x: Node) -> tuple[Node, Moves]:
    """What ``x`` is the movements of, and those."""
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
    """Whether no input reaches ``n``; ``known`` keeps what was found."""
    for m in topological((n,)) if n not in known else ():
        known[m] = m.op is not GraphOp.INPUT and all(known[s] for s in m.srcs)
    return known[n]
