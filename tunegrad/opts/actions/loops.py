"""Actions on loops: how their iterations run, their extents and their order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import ClassVar

from tunegrad.ir.index import Index, var
from tunegrad.ir.kernel import Reduce
from tunegrad.ir.looptree import Loop, LoopKind, LoopTree, TileLoops, accumulators
from tunegrad.lazy import dataclass

from ..staging import check_copy, kept_of, row_scratch, staged_epilogue
from .base import Action

# ---- kinds
#
# Actions that only change how a loop's iterations run: upcast, vectorize, unroll, thread, local,
# group.
#
# ``set_kind`` and ``set_items`` have the rules that they share.


MAX_COPIES = 512
"""Most instances of a statement that register loops make: past it programs spill."""


def rechecked(tree: LoopTree) -> LoopTree:
    """The tree itself, or IllegalAction when what is staged, kept or a row no longer fits it."""
    for staged in tree.staged:
        check_copy(tree, staged)
    for stage in tree.kept:
        kept_of(tree, stage)
    for r in tree.kernel.reduces:
        if r.rows:
            row_scratch(tree, r.name)
    if tree.epilogue:
        staged_epilogue(tree, tree.epilogue)
    return tree


def set_kind(
    action: Action, tree: LoopTree, name: str, kind: LoopKind, *, count: int = 1
) -> LoopTree:
    """The tree with a serial loop of another kind, checked for register pressure.

    IllegalAction in ``action``'s name.
    """
    loop = tree.loop(name)
    if loop.kind is not LoopKind.SERIAL:
        raise action.fail(tree, f"loop {name} is already {loop.kind}")
    if kind.is_register:
        _check_register(action, tree, loop)
    changed = tree.with_loop(loop, loop.run_as(kind, count)).checked()
    rechecked(changed)
    for i, s in enumerate(changed.kernel.stages):
        if not kind.is_register or loop.stage not in (-1, i):
            continue  # its registers are what they were
        lane = changed.lane_loop(i)
        copies = prod(
            x.extent
            for x in (*changed.shared_registers, *changed.own(i))
            if x.kind.is_register and x is not lane
        )
        if copies > MAX_COPIES:
            raise action.fail(
                tree,
                f"stage {i} would have {copies} copies of its statement, more than {MAX_COPIES}",
            )
        if isinstance(s, Reduce) and lane is not None and not isinstance(tree.matrix, TileLoops):
            wide = -(-lane.extent * s.dtype.itemsize // tree.target.vector_bytes)
            if accumulators(changed, i) * wide > 2 * tree.target.registers:
                raise action.fail(
                    tree,
                    f"{accumulators(changed, i) * wide} accumulators need over twice the registers",
                )
    return changed


def set_items(action: Action, tree: LoopTree, name: str) -> LoopTree:
    """The tree with the iterations of a loop on work-items.

    IllegalAction, in ``action``'s name, where they are more than the target's.
    """
    changed, most = set_kind(action, tree, name, LoopKind.LOCAL), tree.target.max_local
    if changed.items > most:
        raise action.fail(tree, f"{changed.items} work-items are more than the target's {most}")
    return changed


def _check_register(action: Action, tree: LoopTree, loop: Loop) -> None:
    if loop.extent > 256:
        raise action.fail(
            tree, f"extent {loop.extent} of loop {loop.name} is more than 256 register copies"
        )


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


@dataclass(frozen=True, slots=True)
class Local(Action):
    """Gives each iteration of a loop, shared or of a store's own, to one work-item of a group.

    Of several local loops the innermost varies fastest in the numbers of the work-items, so
    neighbouring work-items should touch neighbouring elements along it.

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
        if loop.reduce:
            rule = f"loop {loop.name} is a reduce loop; group() shares a reduction over work-items"
            raise self.fail(tree, rule)
        if loop.stage >= 0 and len(loop.axes) > 1:
            raise self.fail(tree, f"loop {loop.name} is fused from several axes of one stage")
        return set_items(self, tree, self.axis)

    @classmethod
    def options(cls, tree: LoopTree) -> Iterator[Action]:
        loops = tree.loops if tree.target.has_work_items else ()
        return cls.legal(tree, (cls(x.name) for x in loops))


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


# ---- extents and order
#
# Actions on the extents and the order of loops: tile, fuse, reorder, pad.


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
