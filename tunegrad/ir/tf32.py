"""Products of f32 whose factors are rounded to tf32, where the user has allowed it.

    sum over k: a[m, k] * b[k, n]
        -->
    sum over k: tf32(a)[m, k] * tf32(b)[k, n]      10 bits of a fraction, the sum in f32 as before

A matrix unit multiplies such numbers: products of 11 digits are exact in f32. The rounding is an
operation of the graph, so the text and the key of a kernel say it, and it means the same on every
device. Rounded are contractions in f32 alone, whose factors are both read repeatedly, and which add
up whole steps of the unit along some axis. What no unit could multiply stays f32: the first
convolution of an image of three channels, a matrix times a vector.
"""

from __future__ import annotations

from typing import cast

from . import graph as g
from .dtypes import F32
from .expr import Op
from .graph import MOVEMENT, GraphOp, Node, topological

__all__ = ["round_factors"]

_STEP = 8
"""Terms that the unit adds at a time."""


def round_factors(outputs: tuple[Node, ...]) -> tuple[Node, ...]:
    """The same outputs with the factors of f32 contractions rounded; others keep their nodes.

    ``outputs`` are folded, so that what is rounded is no part of a product of constants.
    """
    new: dict[Node, Node] = {}
    for n in topological(outputs):
        srcs = tuple(new[s] for s in n.srcs)
        made = n if srcs == n.srcs else Node(n.op, srcs, n.arg, n.shape, n.dtype)
        new[n] = _rounded_sum(made) or made
    return tuple(new[o] for o in outputs)


def _rounded_sum(n: Node) -> Node | None:
    """The sum ``n`` of rounded factors; None where it is no contraction that a unit can do."""
    if n.op is not GraphOp.REDUCE or n.dtype != F32:
        return None
    op, axes = cast(tuple[Op, tuple[int, ...]], n.arg)
    product = n.srcs[0]
    if op is not Op.ADD or product.op is not GraphOp.MAP or product.arg is not Op.MUL:
        return None
    chains = [_chain(x) for x in product.srcs]
    if not all(product.shape[a] % _STEP for a in axes) and all(map(_is_factor, chains)):
        factors = (_rounded(base, moves) for base, moves in chains)
        return g.reduce(Op.ADD, g.elementwise(Op.MUL, *factors), axes)
    return None


def _chain(x: Node) -> tuple[Node, list[Node]]:
    """What a factor is of, and the movements after that, the last one last."""
    moves: list[Node] = []
    while x.op in MOVEMENT:
        moves.append(x)
        x = x.srcs[0]
    return x, moves[::-1]


def _is_factor(chain: tuple[Node, list[Node]]) -> bool:
    """Whether elements are f32 of their own, and each is multiplied several times."""
    base, moves = chain
    spread = any(m.op in (GraphOp.EXPAND, GraphOp.WINDOW) for m in moves)
    return spread and base.dtype == F32 and not g.converts_reads(base)


def _rounded(base: Node, moves: list[Node]) -> Node:
    """A factor that is rounded before it is moved."""
    made = g.elementwise(Op.TF32, base)
    for m in moves:
        made = Node(m.op, (made,), m.arg, m.shape, m.dtype)
    return made
