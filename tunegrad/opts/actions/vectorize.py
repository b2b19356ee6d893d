"""vectorize: iterations as SIMD lanes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tunegrad.ir.looptree import LoopKind, LoopTree

from .base import Action
from .kinds import set_kind

__all__ = ["Vectorize"]


@dataclass(frozen=True, slots=True)
class Vectorize(Action):
    """Makes the iterations of a shared or own spatial loop the lanes of vector instructions.

    rewrite:  vectorize(axis=i1)       i = 16*i0 + i1
        for i0 in N/16:                for i0 in N/16:
            for i1 in 16:       -->        C[16*i0 : 16*i0+16] = f(16*i0 + <0, 1 ... 15>)
                C[...] = f(...)
    """

    name: ClassVar[str] = "vectorize"
    axis: str

    def apply(self, tree: LoopTree) -> LoopTree:
        loop = tree.loop(self.axis)
        if loop.reduce:
            raise self.fail(
                tree, f"loop {loop.name} is a reduce loop; group() splits a reduction over lanes"
            )
        if loop.extent not in (2, 4, 8, 16, 32, 64) or len(loop.axes) > 1:
            raise self.fail(
                tree,
                f"extent {loop.extent} of loop {loop.name} must be 2, 4, 8, 16, 32 or 64, of "
                "one axis",
            )
        return set_kind(self, tree, self.axis, LoopKind.VECTOR)

    @classmethod
    def options(cls, tree: LoopTree) -> Iterator[Action]:
        return cls.legal(tree, (cls(x.name) for x in tree.loops if x.extent > 1))
