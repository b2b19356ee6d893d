"""thread: a loop shared out over CPU cores, or over GPU work-groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from tunegrad.ir.looptree import LoopKind, LoopTree

from .base import Action
from .kinds import set_kind

__all__ = ["Thread"]


@dataclass(frozen=True, slots=True)
class Thread(Action):
    """Splits the iterations of a shared loop into ``count`` contiguous shares, one per thread of
    the team.

    A count of 0 means as many as the target has (GPU: one work-group per iteration). One or two
    loops may be threaded. A count past the iterations is refused: a loop of one iteration shares
    nothing out.

    rewrite:  thread(axis=i, count=2)
        for i in N:                   on thread t of 2:
            C[i] = f(i)        -->        for i in N*t/2 .. N*(t+1)/2:
                                              C[i] = f(i)
    """

    name: ClassVar[str] = "thread"
    axis: str
    count: int = 0

    def apply(self, tree: LoopTree) -> LoopTree:
        loop = tree.loop(self.axis)
        if loop.stage >= 0:
            raise self.fail(
                tree, f"loop {loop.name} belongs to one stage; only a shared loop can be threaded"
            )
        others = [x for x in tree.loops if x.kind is LoopKind.THREAD]
        grid = tree.target.has_work_items
        if not grid and len(others) > 1:
            raise self.fail(tree, "two loops are threaded already")
        count = self.count or (loop.extent if grid else min(tree.target.threads, loop.extent))
        if grid and count != loop.extent:
            raise self.fail(
                tree, f"a work-group runs one iteration, so count must be the extent {loop.extent}"
            )
        if not 1 <= count <= loop.extent:
            raise self.fail(
                tree, f"count {count}: loop {loop.name} has {loop.extent} iterations to share out"
            )
        if not grid and prod(x.count for x in others) * count > tree.target.threads:
            raise self.fail(tree, f"more threads than the target's {tree.target.threads}")
        return set_kind(self, tree, self.axis, LoopKind.THREAD, count=count)

    @classmethod
    def options(cls, tree: LoopTree) -> Iterator[Action]:
        alone = tree.target.threads < 2 and not tree.target.has_work_items
        loops = () if alone else tree.loops
        return cls.legal(tree, (cls(x.name) for x in loops if x.extent > 1 and x.stage < 0))
