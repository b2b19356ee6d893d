"""stage: an operand copied to scratch in the order it is used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from tunegrad.errors import IllegalAction
from tunegrad.ir.looptree import LoopTree, Staged, operand

from ..staging import check_copy, needed_loops
from .base import Action

__all__ = ["Stage"]


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
