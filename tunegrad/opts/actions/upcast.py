"""upcast: neighbouring iterations side by side in registers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tunegrad.ir.looptree import LoopKind, LoopTree

from .base import Action
from .kinds import set_kind

__all__ = ["Upcast"]


@dataclass(frozen=True, slots=True)
class Upcast(Action):
    """Computes the iterations of a loop side by side in registers.

    On a reduce loop each iteration gets an accumulator of its own, and they are combined at the
    end: this reassociates the sum, and hides the latency of the adds.

    rewrite:  upcast(axis=i1)          i = 4*i0 + i1
        for i0 in N/4:                 for i0 in N/4:
            for i1 in 4:        -->        C[4*i0+0] = f(4*i0+0)
                C[...] = f(...)            ... C[4*i0+3] = f(4*i0+3)
    """

    name: ClassVar[str] = "upcast"
    axis: str

    def apply(self, tree: LoopTree) -> LoopTree:
        loop = tree.loop(self.axis)
        if loop.extent > 64:
            raise self.fail(tree, f"extent {loop.extent} of loop {loop.name} is more than 64")
        return set_kind(self, tree, self.axis, LoopKind.UPCAST)

    @classmethod
    def options(cls, tree: LoopTree) -> Iterator[Action]:
        return cls.legal(tree, (cls(x.name) for x in tree.loops if x.extent > 1))
