"""pad: an extent up to a multiple, masked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from tunegrad.ir.index import var
from tunegrad.ir.looptree import LoopKind, LoopTree

from .base import Action
from .kinds import rechecked

__all__ = ["Pad"]


@dataclass(frozen=True, slots=True)
class Pad(Action):
    """Runs an untiled axis up to a multiple of ``multiple``.

    Points past the true extent are masked: they load zeros or the reduction's identity, and store
    nothing. One body in place of a main one and a tail.

    rewrite:  pad(axis=i, multiple=4)
        for i in 7:                   for i in 8:
            C[i] = f(A[i])     -->        if i < 7: C[i] = f(A[i])
    """

    name: ClassVar[str] = "pad"
    axis: str
    multiple: int

    def apply(self, tree: LoopTree) -> LoopTree:
        loop = tree.loop(self.axis)
        if (
            loop.axes != (loop.name,)
            or loop.kind is not LoopKind.SERIAL
            or loop.name in tree.padded
        ):
            raise self.fail(tree, f"{loop.name} is not an untiled, unpadded axis")
        if loop.extent == 1:
            raise self.fail(tree, f"axis {loop.name} has one point: nothing depends on it")
        if self.multiple < 2 or loop.extent % self.multiple == 0:
            raise self.fail(tree, f"extent {loop.extent} is a multiple of {self.multiple} already")
        extent = -(-loop.extent // self.multiple) * self.multiple
        if extent > 2 * loop.extent and extent > tree.target.lanes(4):
            raise self.fail(tree, f"extent {loop.extent} would more than double to {extent}")

        index = tuple((a, var(a, extent) if a == loop.name else i) for a, i in tree.index)
        grown = tree.with_loop(loop, replace(loop, extent=extent))
        return rechecked(replace(grown, index=index, padded=(*tree.padded, loop.name)).checked())

    @classmethod
    def options(cls, tree: LoopTree) -> Iterator[Action]:
        lanes = tree.target.lanes(4)
        growth = ((x, -(-x.extent // lanes) * lanes) for x in tree.loops)
        return cls.legal(
            tree, (cls(x.name, lanes) for x, extent in growth if extent <= 2 * x.extent)
        )
