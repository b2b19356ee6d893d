"""Actions on where values are between two uses: staged copies, their pipelines, staged epilogues,
kept values, prefetches, streaming stores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from tunegrad.errors import IllegalAction
from tunegrad.ir.looptree import LoopKind, LoopTree, Staged, operand
from tunegrad.lazy import dataclass

from ..staging import check_copy, kept_of, needed_loops, shared_bytes, staged_epilogue
from .base import Action


@dataclass(frozen=True, slots=True)
class Stage(Action):
    """Copies what loop ``at`` uses of a parameter into scratch (GPU: shared memory) at the start of
    each iteration.

    ``at=()`` is once per run, ``at=load`` once when the model is loaded (constants only).
    ``layout`` names the loops that index the copy, outermost first, which packs it; ``layout=()``
    keeps the parameter's own dimensions and fills padding with zeros. A constant that was staged at
    load can be staged once more, by loops: the copy is of what was packed. Loops can not be tiled,
    fused or reordered afterwards.

    rewrite:  stage(param=B, at=k0, layout=(n0, k1, n1))
        for k0 in K/256:                      for k0 in K/256:
            for n0, k1, n1:                       for n0, k1, n1:
                acc += ... * B[k, n]   -->            Bp[n0, k1, n1] = B[256*k0+k1, 32*n0+n1]
                                                  for n0, k1, n1:
                                                      acc += ... * Bp[n0, k1, n1]
    """

    name: ClassVar[str] = "stage"
    param: str
    at: str
    layout: tuple[str, ...] = ()

    def apply(self, tree: LoopTree) -> LoopTree:
        before = [s.at for s in tree.staged if s.param == self.param]
        if before and (before != ["load"] or self.at == "load"):
            raise self.fail(tree, f"parameter {self.param} is staged already")
        staged = Staged(self.param, self.at, self.layout)
        grown = replace(tree, staged=(*tree.staged, staged))
        check_copy(grown, staged)
        return grown

    def __str__(self) -> str:
        return f"stage(param={self.param}, at={self.at or '()'}, layout=({', '.join(self.layout)}))"

    @classmethod
    def options(cls, tree: LoopTree) -> Iterator[Action]:
        for p in tree.kernel.params:
            before = [s.at for s in tree.staged if s.param == p.name]
            again = before == ["load"] and tree.target.has_work_items
            if p.role == "out" or (before and not again):
                continue
            try:
                stage, _ = operand(tree, p.name)
            except IllegalAction:
                continue
            if not tree.kernel.reduces:
                continue
            places = ["load"] if p.role == "const" and not before else []
            places += [
                "",
                *(x.name for x in tree.outer),
                *(x.name for x in tree.own(stage) if not x.kind.is_register),
            ]
            layouts = (
                (at, layout) for at in places for layout in _layouts(tree, Staged(p.name, at))
            )
            yield from cls.legal(tree, (cls(p.name, at, layout) for at, layout in layouts))


def _layouts(tree: LoopTree, staged: Staged) -> tuple[tuple[str, ...], ...]:
    needed = needed_loops(tree, staged)
    if not needed:
        return ()
    return (needed,) if staged.at == "load" else (needed, ())


_MOST = 8
"""Slots that a copy may have: no memory is so far away that more would wait less."""


@dataclass(frozen=True, slots=True)
class Pipeline(Action):
    """Copies what later iterations of a reduce loop need, while this one computes.

    A copy staged at ``loop`` in shared memory gets ``slots`` places: one is read, the others are
    copied into, by asynchronous copies where the target has them and the vectors are aligned. There
    is one barrier an iteration. The reduction has no tail there, but of padding.

    rewrite:  pipeline(loop=k0, slots=3)
        for k0 in 8:                          copies of k0 = 0, 1
            barrier                           for k0 in 8:
            copy A -> A.k0           -->          wait for the copies of k0; barrier
            barrier                               copies of k0 + 2
            acc += A.k0 * ...                     acc += A.k0[k0 % 3] * ...
    """

    name: ClassVar[str] = "pipeline"
    loop: str
    slots: int

    def apply(self, tree: LoopTree) -> LoopTree:
        if not tree.target.has_work_items:
            raise self.fail(
                tree, f"target {tree.target.name} has no shared memory to copy ahead to"
            )
        if tree.pipelined is not None:
            raise self.fail(tree, f"loop {tree.pipelined[0]} is pipelined already")
        if not 2 <= self.slots <= _MOST:
            raise self.fail(tree, f"{self.slots} slots: 2 to {_MOST}")
        tree.loop(self.loop)
        at = [s for s in tree.staged if s.at == self.loop]
        if not at:
            raise self.fail(tree, f"nothing is staged at loop {self.loop}")
        made = replace(tree, pipelined=(self.loop, self.slots)).checked()
        for s in at:
            check_copy(made, s)
        total = shared_bytes(made)
        if made.epilogue:
            total += staged_epilogue(made, made.epilogue).nbytes
        if total > tree.target.shared_bytes:
            raise self.fail(tree, f"{total} bytes of shared memory: {tree.target.shared_bytes}")
        return made

    @classmethod
    def options(cls, tree: LoopTree) -> Iterator[Action]:
        if tree.pipelined is not None:
            return
        loops = [x.name for x in tree.loops if x.kind is LoopKind.SERIAL and x.reduce]
        places = [n for n in loops if any(s.at == n for s in tree.staged)]
        yield from cls.legal(tree, (cls(n, slots) for n in places for slots in (2, 3, 4)))


@dataclass(frozen=True, slots=True)
class Epilogue(Action):
    """Passes the sums of a matrix unit through shared memory to work-items that finish neighbours.

    A work-item of a unit holds two results of a row here, and two there. Through shared memory it
    gets 16 bytes of ``param`` that lie side by side: it reads what else the results are made of,
    and stores them, in wide accesses. A slice of the group's results is in memory at a time.

    rewrite:  epilogue(param=C)            items (row, column) hold C[row, 2*column + <0, 1>]
        C[row, 2*column + <0, 1>]            slice[row, 2*column + <0, 1>] = acc
            = f(acc, D[...])       -->       barrier
                                             for q, item by item:
                                                 C[q // 16, 8*(q % 16) + <0 ... 7>] =
                                                     f(slice[...], D[...])
    """

    name: ClassVar[str] = "epilogue"
    param: str

    def apply(self, tree: LoopTree) -> LoopTree:
        if tree.epilogue:
            raise self.fail(tree, f"sums go through shared memory for {tree.epilogue} already")
        made = replace(tree, epilogue=self.param)
        total = staged_epilogue(made, self.param).nbytes + shared_bytes(made)
        if total > tree.target.shared_bytes:
            raise self.fail(tree, f"{total} bytes of shared memory: {tree.target.shared_bytes}")
        return made

    @classmethod
    def options(cls, tree: LoopTree) -> Iterator[Action]:
        if tree.matrix is None or tree.epilogue:
            return
        yield from cls.legal(tree, (cls(p.name) for p in tree.kernel.outputs))


@dataclass(frozen=True, slots=True)
class Keep(Action):
    """Writes what reduce stage ``stage`` computes to scratch, where later stages read it.

    rewrite:  keep(stage=1)
        for r in N:                           for r in N:
            s1 += exp(x[i, r] - s0)               kept[r] = exp(x[i, r] - s0); s1 += kept[r]
        for p in N:                    -->    for p in N:
            y[i, p] = exp(x[i, p] - s0) / s1      y[i, p] = kept[p] / s1
    """

    name: ClassVar[str] = "keep"
    stage: int

    def apply(self, tree: LoopTree) -> LoopTree:
        if self.stage in tree.kept:
            raise self.fail(tree, f"stage {self.stage} is kept already")
        kept_of(tree, self.stage)
        return replace(tree, kept=(*tree.kept, self.stage))

    @classmethod
    def options(cls, tree: LoopTree) -> Iterator[Action]:
        return cls.legal(tree, (cls(i) for i in range(len(tree.kernel.stages))))


@dataclass(frozen=True, slots=True)
class Prefetch(Action):
    """Asks, with the loads of each line of a parameter or of its packed copy, for the line
    ``distance`` bytes further on.

    It pays where memory is read faster than the hardware looks ahead.

    rewrite:  prefetch(param=A, distance=512)
        v = A[i : i+16]        -->        v = A[i : i+16]; prefetch A[i + 128]
    """

    name: ClassVar[str] = "prefetch"
    param: str
    distance: int

    def apply(self, tree: LoopTree) -> LoopTree:
        if not tree.target.can_prefetch:
            raise self.fail(tree, f"target {tree.target.name} has no such hint")
        if self.param not in [p.name for p in tree.kernel.params if p.role != "out"]:
            raise self.fail(tree, f"{self.param} is not an input")
        if any(name == self.param for name, _ in tree.prefetched):
            raise self.fail(tree, f"{self.param} is prefetched already")
        if not 64 <= self.distance <= 1 << 16:
            raise self.fail(tree, "the distance must be from 64 to 65536 bytes")
        return replace(tree, prefetched=(*tree.prefetched, (self.param, self.distance)))

    @classmethod
    def options(cls, tree: LoopTree) -> Iterator[Action]:
        if not tree.target.can_prefetch:
            return
        for p in tree.kernel.params:
            if (
                p.role != "out"
                and p.nbytes > tree.target.l2_bytes
                and not any(n == p.name for n, _ in tree.prefetched)
            ):
                for distance in (64, 256, 512, 1024, 4096):
                    yield cls(p.name, distance)


@dataclass(frozen=True, slots=True)
class Stream(Action):
    """Writes an output with non-temporal stores where whole aligned vectors are stored.

    No line is read before it is written, and none stays in the caches: it pays for outputs larger
    than those.

    rewrite:  stream(param=C)
        C[i : i+16] = v        -->        C[i : i+16] = v  past the caches
    """

    name: ClassVar[str] = "stream"
    param: str

    def apply(self, tree: LoopTree) -> LoopTree:
        if not tree.target.can_stream:
            raise self.fail(tree, f"target {tree.target.name} has no such stores")
        if self.param not in [p.name for p in tree.kernel.outputs] or self.param in tree.streamed:
            raise self.fail(tree, f"{self.param} must be an output that is not streamed yet")
        if tree.partial:
            raise self.fail(tree, "partial sums are read again")
        return replace(tree, streamed=(*tree.streamed, self.param))

    @classmethod
    def options(cls, tree: LoopTree) -> Iterator[Action]:
        if not tree.target.can_stream or tree.partial:
            return
        for p in tree.kernel.outputs:
            if p.name not in tree.streamed and p.nbytes > tree.target.l2_bytes:
                yield cls(p.name)
