"""Shared rules of the actions that only change how a loop's iterations run."""

from __future__ import annotations

from math import prod

from tunegrad.ir.kernel import Reduce
from tunegrad.ir.looptree import Loop, LoopKind, LoopTree, TileLoops, accumulators

from ..epilogues import staged_epilogue
from ..keeping import kept_of, row_scratch
from ..staging import check_copy
from .base import Action

__all__ = ["MAX_COPIES", "rechecked", "set_items", "set_kind"]

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
