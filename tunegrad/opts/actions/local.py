"""local: a loop over the work-items of a GPU work-group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tunegrad.ir.looptree import LoopTree

from .base import Action
from .kinds import set_items

__all__ = ["Local"]


@dataclass(frozen=True, slots=True)
class Local(Action):
    """Gives each iteration of a loop, shared or of a store's own, to one work-item of a group.

    Of several local loops the innermost varies fastest in the numbers of the work-items, so
    neighbouring work-items should touch neighbouring elements along it.

    rewrite:  local(axis=i1)           i = 64*i0 + i1
        for i0 in N/64:                for i0 on work-groups:
            for i1 in 64:       -->        i1 = local id
                C[...] = f(...)            C[64*i0+i1] = f(64*i0+i1)
    """

    name: ClassVar[str] = "local"
    axis: str

    def apply(self, tree: LoopTree) -> LoopTree:
        loop = tree.loop(self.axis)
        if not tree.target.has_work_items:
            raise self.fail(tree, f"target {tree.target.name} has no work-items")
        if loop.reduce:
            rule = f"loop {loop.name} is a reduce loop; group() shares a reduction over work-items"
            raise self.fail(tree, rule)
        if loop.stage >= 0 and len(loop.axes) > 1:
            raise self.fail(tree, f"loop {loop.name} is fused from several axes of one stage")
        return set_items(self, tree, self.axis)

    @classmethod
    def options(cls, tree: LoopTree) -> Iterator[Action]:
        loops = tree.loops if tree.target.has_work_items else ()
        return cls.legal(tree, (cls(x.name) for x in loops))
