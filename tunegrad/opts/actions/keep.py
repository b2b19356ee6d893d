"""keep: a reduction's values kept for the stage that needs them again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from tunegrad.ir.looptree import LoopTree

from ..keeping import kept_of
from .base import Action

__all__ = ["Keep"]


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
