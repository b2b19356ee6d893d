"""reorder: loops in another order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from tunegrad.ir.looptree import LoopTree

from .base import Action

__all__ = ["Reorder"]


@dataclass(frozen=True, slots=True)
class Reorder(Action):
    """Permutes the named loops among the places they hold; the others stay.

    A reduce loop that ends up around a shared serial loop keeps partial sums in the output.

    rewrite:  reorder(order=(j, i))
        for i in N:                   for j in M:
            for j in M:        -->        for i in N:
                C[i, j] = ...                 C[i, j] = ...
    """

    name: ClassVar[str] = "reorder"
    order: tuple[str, ...]

    def apply(self, tree: LoopTree) -> LoopTree:
        if tree.staged:
            raise self.fail(tree, "loops can not be reordered once something is staged")
        if len(set(self.order)) != len(self.order) or len(self.order) < 2:
            raise self.fail(tree, "needs two or more different loops")
        positions = [tree.position(n) for n in self.order]
        loops = list(tree.loops)
        for to, at in zip(sorted(positions), positions, strict=True):
            loops[to] = tree.loops[at]
        return tree.with_loops(tuple(loops)).checked()

    @classmethod
    def options(cls, tree: LoopTree) -> Iterator[Action]:
        """Swaps of neighbouring serial loops."""
        plain = () if tree.staged else [x for x in tree.loops if not x.kind.is_register]
        return cls.legal(tree, (cls((b.name, a.name)) for a, b in pairwise(plain)))
