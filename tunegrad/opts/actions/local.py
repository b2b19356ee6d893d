"""local: a loop over the work-items of a GPU work-group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from tunegrad.ir.looptree import LoopKind, LoopTree

from .base import Action
from .kinds import set_kind

__all__ = ["Local"]


@dataclass(frozen=True, slots=True)
class Local(Action):
    """Gives each iteration of a shared loop to one work-item of a group.

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
        if loop.stage >= 0:
            raise self.fail(tree, f"loop {loop.name} belongs to one stage; group() shares a reduction over work-items")
        items = loop.extent * prod(x.extent for x in tree.loops if x.kind is LoopKind.LOCAL)
        if items > tree.target.max_local:
            raise self.fail(tree, f"{items} work-items are more than the target's {tree.target.max_local}")
        return set_kind(self, tree, self.axis, LoopKind.LOCAL)

    @classmethod
    def options(cls, tree: LoopTree) -> Iterator[Action]:
        loops = tree.loops if tree.target.has_work_items else ()
        return cls.legal(tree, (cls(x.name) for x in loops))
