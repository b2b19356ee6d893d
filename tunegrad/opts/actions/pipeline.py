"""pipeline: the copies of a loop run ahead of what uses them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from tunegrad.ir.looptree import LoopKind, LoopTree

from ..epilogues import staged_epilogue
from ..staging import check_copy, shared_bytes
from .base import Action

__all__ = ["Pipeline"]

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
