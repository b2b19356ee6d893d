"""unroll: a loop body repeated in place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tunegrad.ir.looptree import LoopKind, LoopTree

from .base import Action
from .kinds import set_kind

__all__ = ["Unroll"]


@dataclass(frozen=True, slots=True)
class Unroll(Action):
    """Repeats the body of a reduce loop, or of a loop that only one stage has, in place of looping.

    The order of the sum stays.

    rewrite:  unroll(axis=k1)          k = 2*k0 + k1
        for k0 in K/2:                 for k0 in K/2:
            for k1 in 2:        -->        acc += f(2*k0+0)
                acc += f(...)              acc += f(2*k0+1)
    """

    name: ClassVar[str] = "unroll"
    axis: str

    def apply(self, tree: LoopTree) -> LoopTree:
        loop = tree.loop(self.axis)
        if loop.stage < 0:
            raise self.fail(
                tree, f"loop {loop.name} is shared by every stage; upcast() puts it in registers"
            )
        if loop.extent > 64:
            raise self.fail(tree, f"extent {loop.extent} of loop {loop.name} is more than 64")
        return set_kind(self, tree, self.axis, LoopKind.UNROLL)

    @classmethod
    def options(cls, tree: LoopTree) -> Iterator[Action]:
        return cls.legal(tree, (cls(x.name) for x in tree.loops if x.extent > 1))
