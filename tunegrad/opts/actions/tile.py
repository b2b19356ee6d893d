"""tile: one loop into an outer and an inner one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from tunegrad.ir.index import Index, var
from tunegrad.ir.looptree import Loop, LoopKind, LoopTree

from .base import Action

__all__ = ["Tile", "sizes"]


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
