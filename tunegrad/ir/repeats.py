"""Reductions of what repeats itself, computed once: broadcasts go after them.

reduce(expand(x))                 -->    expand(reduce(x)), along dimensions that stay
reduce(exp(expand(x)) * expand(y))       the same where both repeat: what is reduced is cut to
                                         one of its copies
"""

from __future__ import annotations

from typing import Any
from typing import cast as typed

from . import graph as g
from .graph import GraphOp, Node

__all__ = ["Repeats"]


class Repeats:
    """Along which dimensions nodes repeat themselves. Mutable: keeps what it has found.

    Nodes are asked for after their sources.
    """

    def __init__(self) -> None:
        self._found: dict[Node, frozenset[int]] = {}

    def reduced_once(self, n: Node) -> Node:
        """A reduction of one copy, spread out; the node itself where nothing repeats."""
        if n.op is not GraphOp.REDUCE:
            return n
        src, (op, axes) = n.srcs[0], typed(tuple[Any, tuple[int, ...]], n.arg)
        twice = self.of(src) - set(axes)
        if not twice or 0 in src.shape:
            return n
        one = g.shrink(src, tuple((0, 1 if d in twice else s) for d, s in enumerate(src.shape)))
        return g.expand(g.reduce(op, one, axes), n.shape)

    def of(self, n: Node) -> frozenset[int]:
        """The dimensions of several positions along which all of its elements are equal."""
        found = self._found.get(n)
        if found is None:
            wide = {d for d, s in enumerate(n.shape) if s > 1}
            found = self._found[n] = self._dims(n) & wide
        return found

    def _dims(self, n: Node) -> frozenset[int]:
        every = frozenset(range(len(n.shape)))
        if n.op is GraphOp.FULL:
            return every
        if n.op is GraphOp.IOTA:
            return every - {typed(int, n.arg)}
        if n.op is GraphOp.MAP:
            return every.intersection(*map(self.of, n.srcs))
        below = self.of(n.srcs[0]) if n.srcs else frozenset[int]()
        if n.op is GraphOp.EXPAND:
            return below | {d for d in every if n.srcs[0].shape[d] == 1}
        if n.op is GraphOp.PERMUTE:
            return frozenset(d for d, s in enumerate(typed(tuple[int, ...], n.arg)) if s in below)
        if n.op in (GraphOp.CAST, GraphOp.FLIP, GraphOp.SHRINK):
            return below
        if n.op in (GraphOp.REDUCE, GraphOp.PAD):
            return below - {d for d in every if n.srcs[0].shape[d] != n.shape[d]}
        return frozenset()
