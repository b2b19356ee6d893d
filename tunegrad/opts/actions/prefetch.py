"""prefetch: a parameter's cache lines asked for ahead of their use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from tunegrad.ir.looptree import LoopTree

from .base import Action

__all__ = ["Prefetch"]


@dataclass(frozen=True, slots=True)
class Prefetch(Action):
    """Asks, with every vector load of a parameter, for the line ``distance`` bytes further on.

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
            raise self.fail(tree, f"{self.param} is no input")
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
                for distance in (256, 512, 1024, 4096):
                    yield cls(p.name, distance)
