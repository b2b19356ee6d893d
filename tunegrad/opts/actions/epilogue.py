"""epilogue: the sums of a matrix unit go through shared memory before they are stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from tunegrad.ir.looptree import LoopTree

from ..epilogues import staged_epilogue
from ..staging import shared_bytes
from .base import Action

__all__ = ["Epilogue"]


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
