"""Expressions of a kernel over its axes, as sums over the loops of one tree: each is rewritten
once.
"""

from __future__ import annotations

from tunegrad.ir.expr import Load
from tunegrad.ir.index import Index, Valid
from tunegrad.ir.looptree import LoopTree

__all__ = ["Over"]


class Over:
    """Indices, conditions and offsets over loops.

    Mutable: it remembers them by the identity of what they are of.
    """

    def __init__(self, tree: LoopTree) -> None:
        self.axes = dict(tree.index)
        self._layouts = {p.name: p.layout for p in tree.kernel.params}
        self._indices: dict[int, tuple[Index, Index]] = {}
        self._conditions: dict[int, tuple[Valid, Valid]] = {}
        self._offsets: dict[int, tuple[Load, Index, frozenset[str]]] = {}

    def index(self, index: Index) -> Index:
        """An index over axes as one over loops."""
        found = self._indices.get(id(index))
        if (
            found is None
        ):  # the entry keeps what it is of, so that nothing else can have its identity
            found = self._indices[id(index)] = index, index.substitute(self.axes)
        return found[1]

    def condition(self, valid: Valid) -> Valid:
        """A condition over axes as one over loops."""
        if not valid.ranges:
            return valid
        found = self._conditions.get(id(valid))
        if found is None:
            found = self._conditions[id(valid)] = valid, valid.substitute(self.axes)
        return found[1]

    def offset(self, x: Load) -> tuple[Index, frozenset[str]]:
        """The element that a load reads, over loops, and the axes that say so."""
        found = self._offsets.get(id(x))
        if found is None:
            offset = self._layouts[x.param].offset([self.index(i) for i in x.index])
            axes = frozenset[str]().union(*[i.names() for i in x.index])
            found = self._offsets[id(x)] = x, offset, axes
        return found[1], found[2]
