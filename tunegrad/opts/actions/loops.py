"""Actions on the extents and the order of loops: tile, fuse, reorder, pad."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar

from tunegrad.ir.index import Index, var
from tunegrad.ir.looptree import Loop, LoopKind, LoopTree

from .base import Action
from .kinds import rechecked

__all__ = [
    "Fuse",
    "Pad",
    "Reorder",
    "Tile",
    "sizes",
]


@dataclass(frozen=True, slots=True)
class Tile(Action):
    """Splits a serial loop into an outer loop and an inner one of ``size`` steps.

    The loops of an axis are numbered outermost first, so deeper ones are renumbered. Only the
    outermost loop of an axis may be left with a tail. A size past the extent is for lanes: at most
    twice the extent, one vector of f32, or one row of a tile register.

    rewrite:  tile(axis=i, size=4)
        for i in N:               for i0 in ceil(N/4):
            C[i] = f(i)    -->        for i1 in min(4, N - 4*i0):
                                          C[4*i0+i1] = f(4*i0+i1)
    """

    name: ClassVar[str] = "tile"
    axis: str
    size: int

    def apply(self, tree: LoopTree) -> LoopTree:
        loop = tree.loop(self.axis)
        if loop.kind is not LoopKind.SERIAL:
            raise self.fail(
                tree, f"loop {loop.name} is {loop.kind}, only a serial loop can be tiled"
            )
        if tree.staged:
            raise self.fail(tree, "loops can not be tiled once something is staged")
        if tree.matrix is not None:
            raise self.fail(tree, "loops can not be tiled beside a matrix unit")
        if self.size < 1:
            raise self.fail(tree, "the size must be at least 1")
        if self.size > 1 and loop.extent == 1:
            raise self.fail(tree, f"loop {loop.name} has one iteration: nothing depends on it")
        if self.size > max(2 * loop.extent, tree.target.widest_lanes):
            raise self.fail(
                tree,
                f"extent {loop.extent} of loop {loop.name} would more than double to {self.size}",
            )
        if loop.extent % self.size and not self.outermost(tree, loop):
            raise self.fail(
                tree,
                f"{self.size} does not divide extent {loop.extent}, which is not the axis's "
                "outermost loop",
            )
        root, level = split_name(loop.name)
        env: dict[str, Index] = {}
        names: dict[str, str] = {}
        for x in tree.loops:
            stem, depth = split_name(x.name)
            if stem == root and depth is not None and level is not None and depth > level:
                names[x.name] = f"{stem}{depth + 1}"
                env[x.name] = var(names[x.name], x.extent)
        at = level or 0
        outer = loop.resized(f"{root}{at}", -(-loop.extent // self.size))
        inner = loop.resized(f"{root}{at + 1}", self.size)
        env[loop.name] = var(outer.name, outer.extent) * self.size + var(inner.name, inner.extent)
        loops: list[Loop] = []
        for x in tree.loops:
            new = names.get(x.name)
            loops += [outer, inner] if x is loop else [x if new is None else x.renamed(new)]
        index = tuple([(a, i.substitute(env)) for a, i in tree.index])
        return tree.with_loops(tuple(loops), index).checked()

    @staticmethod
    def outermost(tree: LoopTree, loop: Loop) -> bool:
        """True if the loop is the outermost of a single axis, the one that may have a tail."""
        if len(loop.axes) != 1:
            return False
        index = tree.axis_index(loop.axes[0])
        step = index.coefficient(loop.name)
        return step is not None and step * loop.extent >= index.hi + 1

    @classmethod
    def options(cls, tree: LoopTree) -> Iterator[Action]:
        if tree.staged:
            return
        for loop in tree.loops:
            if loop.kind is LoopKind.SERIAL and loop.extent > 1:
                for size in sizes(loop.extent, cls.outermost(tree, loop), tree.target.lanes(4)):
                    yield cls(loop.name, size)


def sizes(extent: int, tails: bool, lanes: int) -> list[int]:
    """Sensible inner sizes for a loop: its divisors up to 1024; with tails also lane multiples and
    2 ...

    16.
    """
    found = {d for d in range(2, min(extent, 1025)) if extent % d == 0}
    if tails:
        found |= {
            s
            for s in (2, 3, 4, 5, 6, 7, 8, 12, 14, 16, lanes, 2 * lanes, 4 * lanes, 8 * lanes)
            if s < extent
        }
        if extent < lanes:
            found.add(lanes)
    return sorted(found)


_NAME = re.compile(r"(.*?)(\d+)?$")


@lru_cache(maxsize=4096)
def split_name(name: str) -> tuple[str, int | None]:
    """The axis root of a loop name and its level: ("m", 1) of "m1", ("m", None) of "m"."""
    m = _NAME.fullmatch(name)
    assert m is not None
    return m.group(1), None if m.group(2) is None else int(m.group(2))


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
