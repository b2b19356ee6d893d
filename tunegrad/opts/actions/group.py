"""group: one reduction shared by lanes or work-items."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tunegrad.ir.looptree import LoopKind, LoopTree

from .base import Action
from .kinds import set_items, set_kind

__all__ = ["Group"]


@dataclass(frozen=True, slots=True)
class Group(Action):
    """Splits a reduction over vector lanes (CPU) or work-items (GPU), and combines the partial
    results at the end.

    This reassociates the sum. Work-items combine their results in shared memory, in two rounds
    where they are many.

    rewrite:  group(axis=k1)           k = 16*k0 + k1
        acc = 0                        acc[16] = 0
        for k0 in K/16:                for k0 in K/16:
            for k1 in 16:       -->        acc[:] += f(16*k0 + <0, 1 ... 15>)
                acc += f(...)          acc = fold(acc[:])
    """

    name: ClassVar[str] = "group"
    axis: str

    def apply(self, tree: LoopTree) -> LoopTree:
        loop = tree.loop(self.axis)
        if not loop.reduce:
            raise self.fail(tree, f"loop {loop.name} is not a reduce loop")
        if len(loop.axes) > 1:
            raise self.fail(tree, f"loop {loop.name} is fused from several axes")
        if tree.target.has_work_items:
            return set_items(self, tree, self.axis)
        if loop.extent not in (2, 4, 8, 16, 32, 64):
            raise self.fail(
                tree, f"extent {loop.extent} of loop {loop.name} must be 2, 4, 8, 16, 32 or 64"
            )
        return set_kind(self, tree, self.axis, LoopKind.GROUP)

    @classmethod
    def options(cls, tree: LoopTree) -> Iterator[Action]:
        return cls.legal(tree, (cls(x.name) for x in tree.loops if x.reduce and x.extent > 1))
