"""fuse: two neighbouring loops into one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

from tunegrad.ir.index import var
from tunegrad.ir.looptree import Loop, LoopKind, LoopTree

from .base import Action

__all__ = ["Fuse"]


@dataclass(frozen=True, slots=True)
class Fuse(Action):
    """Makes one loop of two neighbouring serial loops without tails, mostly to share both over
    threads.

    rewrite:  fuse(outer=i, inner=j)
        for i in N:                   for ijf in N*M:
            for j in M:        -->        C[ijf // M, ijf % M] = ...
                C[i, j] = ...
    """

    name: ClassVar[str] = "fuse"
    outer: str
    inner: str

    def apply(self, tree: LoopTree) -> LoopTree:
        a, b = tree.loop(self.outer), tree.loop(self.inner)
        if tree.staged:
            raise self.fail(tree, "loops can not be fused once something is staged")
        if tree.loops.index(b) != tree.loops.index(a) + 1:
            raise self.fail(tree, f"loop {b.name} does not directly follow loop {a.name}")
        if (
            a.kind is not LoopKind.SERIAL
            or b.kind is not LoopKind.SERIAL
            or (a.stage, a.reduce) != (b.stage, b.reduce)
        ):
            raise self.fail(tree, "needs two serial loops of one stage")
        for axis in (*a.axes, *b.axes):
            if tree.nominal(axis) != tree.extent(axis):
                raise self.fail(tree, f"axis {axis} of extent {tree.extent(axis)} has a tail")
        name = f"{a.name}{b.name}f"
        extent = a.extent * b.extent
        v = var(name, extent)
        env = {a.name: v // b.extent, b.name: v % b.extent}
        fused = Loop(name, extent, a.axes + b.axes, a.stage, a.reduce)
        at = tree.loops.index(a)
        loops = (*tree.loops[:at], fused, *tree.loops[at + 2 :])
        index = tuple((x, i.substitute(env)) for x, i in tree.index)
        return replace(tree, loops=loops, index=index).checked()

    @classmethod
    def options(cls, tree: LoopTree) -> Iterator[Action]:
        return cls.legal(tree, (cls(a.name, b.name) for a, b in pairwise(tree.loops)))
