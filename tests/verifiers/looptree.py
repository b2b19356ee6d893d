"""Checks a loop tree: its loops run through every point of the kernel, each once, and their kinds
fit.

    loops     distinct names, at least one iteration; axes of the kernel, all of the stage that owns
              the loop
    index     each axis a sum over its own loops, from 0 to at least its own extent; equal axes,
              equal loops
    kinds     thread loops are shared, local ones too or one of each stage; lanes of reductions are
              groups; threads within the target's, a GPU's work-groups one for each iteration
    the rest  what is staged, kept, streamed, prefetched or padded is there

Actions keep these rules; what is checked here is that they do. Staged copies are checked when they
are planned.
"""

from __future__ import annotations

from math import prod
from typing import Never

from tunegrad.errors import IllegalAction, VerifyError
from tunegrad.ir.index import Index
from tunegrad.ir.kernel import Reduce
from tunegrad.ir.looptree import Loop, LoopKind, LoopTree
from tunegrad.ir.verify.races import told

__all__ = ["verify_looptree"]


def verify_looptree(tree: LoopTree) -> None:
    """Raise VerifyError, naming the kernel, the loop or axis and the rule, unless ``tree`` is well
    formed.
    """
    _Verifier(tree).run()


class _Verifier:
    def __init__(self, tree: LoopTree) -> None:
        self.tree = tree
        self.owner = {a.name: -1 for a in tree.kernel.axes}
        for i, s in enumerate(tree.kernel.stages):
            self.owner |= {a.name: i for a in s.axes}

    def _broken(self, what: str, rule: str) -> Never:
        raise VerifyError(f"loop tree of kernel {self.tree.kernel.name}: {what}: {rule}")

    def run(self) -> None:
        names = [x.name for x in self.tree.loops]
        if len(set(names)) != len(names):
            self._broken(f"loops {', '.join(names)}", "a name is there twice")
        for x in self.tree.loops:
            self._loop(x)
            self._kind(x)
        self._points()
        self._team()
        self._rest()
        try:
            self.tree.checked()
        except IllegalAction as error:
            self._broken("order", str(error))

    def _loop(self, x: Loop) -> None:
        if x.extent < 1:
            self._broken(f"loop {x.name}", f"{x.extent} iterations: at least 1")
        if not x.axes or {self.owner.get(a) for a in x.axes} != {x.stage}:
            self._broken(
                f"loop {x.name}", f"axes {', '.join(x.axes)} are not all of stage {x.stage}"
            )
        stage = self.tree.kernel.stages[x.stage] if x.stage >= 0 else None
        folds = [a.name for a in stage.folds] if isinstance(stage, Reduce) else []
        if folds and len({a in folds for a in x.axes}) > 1:
            self._broken(f"loop {x.name}", "fused of what is folded and of what is not")
        reduces = x.axes[0] in folds
        if x.reduce != reduces:
            self._broken(
                f"loop {x.name}",
                f"reduce={x.reduce}, of axes that are {'' if reduces else 'not '}folded",
            )

    def _kind(self, x: Loop) -> None:
        gpu = self.tree.target.has_work_items
        if x.kind is LoopKind.THREAD and (
            x.stage >= 0 or not 1 <= x.count <= x.extent or (gpu and x.count < x.extent)
        ):
            self._broken(
                f"loop {x.name}", f"{x.extent} iterations of stage {x.stage} on {x.count} threads"
            )
        if x.kind is not LoopKind.THREAD and x.count != 1:
            self._broken(f"loop {x.name}", f"count {x.count}, and no thread loop")
        if x.kind is LoopKind.LOCAL and not gpu:
            self._broken(f"loop {x.name}", "local: work-items are a GPU's")
        if x.kind is LoopKind.VECTOR and x.reduce:
            self._broken(f"loop {x.name}", "lanes of a reduction are a group")
        if x.kind is LoopKind.GROUP and not x.reduce:
            self._broken(f"loop {x.name}", "a group is of a reduction")
        if x.kind is LoopKind.UNROLL and x.stage < 0:
            self._broken(f"loop {x.name}", "shared by every stage: upcast, not unrolled")

    def _points(self) -> None:
        """Every axis counts from 0 to its nominal extent, each value once."""
        extents = {x.name: x.extent for x in self.tree.loops}
        index = dict(self.tree.index)
        if list(index) != list(self.owner) or len(index) != len(self.tree.index):
            self._broken(f"axes {', '.join(index)}", f"the kernel's are {', '.join(self.owner)}")
        for axis, i in index.items():
            wrong = [
                v.key for v in i.variables() if (v.lo, v.hi) != (0, extents.get(v.name, 0) - 1)
            ]
            foreign = [
                x.name for x in self.tree.loops if x.name in i.names() and axis not in x.axes
            ]
            if wrong or foreign:
                self._broken(
                    f"axis {axis} = {i}",
                    f"{', '.join(wrong + foreign)}: no loop of it, or of another range",
                )
            if i.lo != 0 or i.hi + 1 < self.tree.extent(axis):
                self._broken(
                    f"axis {axis} = {i}", f"does not run from 0 to {self.tree.extent(axis)}"
                )
        known = told(i.terms for i in index.values())
        lost = [x.name for x in self.tree.loops if x.extent > 1 and x.name not in known]
        if lost:
            self._broken(
                f"loops {', '.join(lost)}",
                "the axes do not tell which iteration runs: points run twice",
            )
        self._counted(index)

    def _counted(self, index: dict[str, Index]) -> None:
        """As many iterations as points: one to one, as they are told apart.

        Fused axes are counted together.
        """
        left = list(index)
        while left:
            together = {left[0]}
            while (
                more := {a for x in self.tree.loops if together & set(x.axes) for a in x.axes}
                - together
            ):
                together |= more
            points = prod(index[a].hi + 1 for a in together)
            iterations = prod(x.extent for x in self.tree.loops if together & set(x.axes))
            if points != iterations:
                axes = ", ".join(sorted(together))
                self._broken(
                    f"axes {axes}", f"{points} points, and {iterations} iterations of their loops"
                )
            left = [a for a in left if a not in together]

    def _team(self) -> None:
        target, loops = self.tree.target, self.tree.loops
        threads = prod(x.count for x in loops if x.kind is LoopKind.THREAD)
        if not target.has_work_items and threads > target.threads:
            self._broken(f"{threads} threads", f"target {target.name} has {target.threads}")
        if target.has_work_items and self.tree.items > target.max_local:
            most = f"target {target.name} has groups of up to {target.max_local}"
            self._broken(f"{self.tree.items} work-items", most)

    def _rest(self) -> None:
        tree = self.tree
        roles = {p.name: p.role for p in tree.kernel.params}
        staged = [s.param for s in tree.staged]
        places = {"", "load", *(x.name for x in tree.loops)}
        inputs = [*staged, *(name for name, _ in tree.prefetched)]
        wrong = [n for n in inputs if roles.get(n) in (None, "out")]
        wrong += [n for n in tree.streamed if roles.get(n) != "out"]
        wrong += [n for n in tree.padded if n not in self.owner]
        wrong += [s.at for s in tree.staged if s.at not in places]
        wrong += [str(i) for i in tree.kept if not 0 <= i < len(tree.kernel.stages)]
        distinct = {(s.param, s.at == "load") for s in tree.staged}
        if wrong or len(distinct) != len(staged):
            self._broken(
                ", ".join(wrong or staged),
                "staged, streamed, prefetched, padded or kept; not there, or twice",
            )
