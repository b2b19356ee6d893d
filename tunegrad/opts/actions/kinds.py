"""Actions that only change how a loop's iterations run: upcast, vectorize, unroll, thread, local,
group.

``set_kind`` and ``set_items`` have the rules that they share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from tunegrad.ir.kernel import Reduce
from tunegrad.ir.looptree import Loop, LoopKind, LoopTree, TileLoops, accumulators

from ..epilogues import staged_epilogue
from ..keeping import kept_of, row_scratch
from ..staging import check_copy
from .base import Action

__all__ = [
    "MAX_COPIES",
    "Group",
    "Local",
    "Thread",
    "Unroll",
    "Upcast",
    "Vectorize",
    "rechecked",
    "set_items",
    "set_kind",
]

MAX_COPIES = 512
"""Most instances of one statement that register loops may make: past it programs are huge and
spill.
"""


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
