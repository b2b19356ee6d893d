"""Sums of products in a graph with their factors, and sums of repeated terms.

sum over axes of left * right            left, right: movements of a tensor, the last one last
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from typing import Any, cast
from typing import cast as typed

from .. import graph as g
from ..expr import Op
from ..graph import MOVEMENT, GraphOp, Node, Step, topological

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
    changed = False
    for n in topological(outputs):
        made = g.with_sources(n, tuple(map(new.__getitem__, n.srcs))) if changed else n
        new[n] = made = rule(made) or made
        changed = changed or made is not n
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
    stack = [n]
    while stack:
        m = stack[-1]
        if m not in known and (left := [s for s in m.srcs if s not in known]):
            stack += left
            continue
        known.setdefault(m, m.op is not GraphOp.INPUT and all(known[s] for s in m.srcs))
        stack.pop()
    return known[n]


def stored_once(
    outputs: tuple[Node, ...],
    order: Iterable[Node],
    stored: Set[Node],
    steps: list[Step] | None = None,
) -> tuple[Node, ...]:
    """The same outputs, each node of ``stored`` that repeats itself as one copy, spread out again
    by its readers; the same nodes where none does. ``order`` is topological.
    """
    repeats, new = Repeats(), dict[Node, Node]()
    memory: set[Node] = set()
    for n in order:
        srcs = tuple(new[s] for s in n.srcs)
        made = g.with_sources(n, srcs)
        dims = repeats.of(made)
        if n in stored:
            if dims and made.size:
                small = repeats.one(made, dims, memory)
                made = g.expand(small, n.shape)
                repeats.of(small)
            memory.add(made)
            repeats.of(made)
        new[n] = made
    return stepped(outputs, new, steps)


class Repeats:
    """Along which dimensions nodes repeat themselves. Mutable: keeps what it has found.

    reduce(expand(x))                   -->  expand(reduce(x)), along dimensions that stay
    reduce(exp(expand(x)) * expand(y))  -->  the same where both repeat: one copy is reduced
    exp(expand(x)), stored              -->  expand(exp(x)), the smaller one stored
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

    def one(self, n: Node, dims: frozenset[int], memory: Set[Node]) -> Node:
        """One of the copies of ``n`` along ``dims``, of one copy of each source."""
        dims &= self.of(n)
        shape = tuple(1 if d in dims else s for d, s in enumerate(n.shape))
        made: Node | None = None
        if not dims:
            return n
        if n.op in (GraphOp.FULL, GraphOp.IOTA):
            made = Node(n.op, (), n.arg, shape, n.dtype)
        elif n not in memory and n.op in (GraphOp.MAP, GraphOp.CAST):
            srcs = tuple(self.one(s, dims, memory) for s in n.srcs)
            made = Node(n.op, srcs, n.arg, shape, n.dtype)
        elif n.op is GraphOp.EXPAND:
            made = g.expand(self.one(n.srcs[0], dims, memory), shape)
        if made is None:
            made = g.shrink(n, tuple((0, s) for s in shape))
        self.of(made)
        return made

    def of(self, n: Node) -> frozenset[int]:
        """The dimensions of several positions along which all of its elements are equal.

        What a tensor without such dimensions is made of is not looked at: an unrolled recurrence is
        steps of bytes whose scale, one number, depends on all steps before.
        """
        stack = [n]
        while stack:
            m = stack[-1]
            wide = {d for d, s in enumerate(m.shape) if s > 1}
            left = [s for s in m.srcs if s not in self._found] if wide else []
            if left and m not in self._found:
                stack += left
                continue
            if m not in self._found:
                self._found[m] = self._dims(m) & wide if wide else frozenset()
            stack.pop()
        return self._found[n]

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
        if n.op is GraphOp.GATHER:
            dim = typed(int, n.arg)
            anywhere = dim in below or n.srcs[0].shape[dim] == 1  # the index does not matter
            return below | {dim} if anywhere else self.of(n.srcs[1]) & (below | {dim})
        if n.op in (GraphOp.REDUCE, GraphOp.PAD):
            return below - {d for d in every if n.srcs[0].shape[d] != n.shape[d]}
        return frozenset()
