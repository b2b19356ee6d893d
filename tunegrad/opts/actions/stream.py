"""stream: an output written past the caches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from tunegrad.ir.looptree import LoopTree

from .base import Action

__all__ = ["Stream"]


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
            raise self.fail(tree, f"{self.param} is no output that is not streamed yet")
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
