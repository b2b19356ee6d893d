"""Values that one stage makes and later ones need: where they are between the two.

A row is always there. Values of a reduction's expression are where ``keep`` asks for it:

                                               kept[r] = exp(x[i, r] - s0)
s1 = sum over r of exp(x[i, r] - s0)      -->  s1 = sum over r of kept[r]
store y[i, p] = exp(x[i, p] - s0) / s1         store y[i, p] = kept[p] / s1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from tunegrad.errors import IllegalAction
from tunegrad.ir.dtypes import DType
from tunegrad.ir.expr import Apply, Expr, IndexValue, Inside, Load, Value, nodes, rebuild
from tunegrad.ir.index import Index, as_index, var
from tunegrad.ir.kernel import Axis, Kernel, Reduce, own_axes
from tunegrad.ir.looptree import Loop, LoopKind, LoopTree

from .staging import MAX_SCRATCH_BYTES

__all__ = ["ROW", "Kept", "RowScratch", "kept_of", "readers_of", "row_scratch"]

ROW = ".row"
"""End of the names of the buffers of rows."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The values of one reduce stage in scratch; ``extents`` are of its own axes, padded up to what
    loops cover.
    """

    stage: int
    buffer: str
    dtype: DType
    extents: tuple[int, ...]
    size: int

    def offset(self, tree: LoopTree, stage: int) -> Index:
        """Offset of a value, over the loops of ``stage``: the producer or a reader.

        Lanes are next to each other.
        """
        axes = dict(tree.index)
        places = [axes[a.name] for a in own_axes(tree.kernel.stages[stage])]
        return _offset(tree, places, self.extents)


@dataclass(frozen=True, slots=True)
class RowScratch:
    """A row of a reduction in scratch, for each point of the shared register loops, and for each
    work-item of shared ones; ``extents`` are of its axes, padded up to what loops cover.
    """

    buffer: str
    dtype: DType
    extents: tuple[int, ...]
    size: int
    space: Literal["thread", "shared"]

    def offset(self, tree: LoopTree, place: Sequence[Index]) -> Index:
        """Offset of the element at ``place``, over loops; lanes are next to each other."""
        return _offset(tree, place, self.extents)


def row_scratch(tree: LoopTree, name: str) -> RowScratch:
    """The scratch that holds the row of that reduction. IllegalAction where it is larger than
    scratch may be.
    """
    made = next(r for r in tree.kernel.reduces if r.name == name)
    extents = tuple(tree.nominal(a.name) for a in made.row)
    size = prod(extents) * prod(x.extent for x in _beside(tree))
    space: Literal["thread", "shared"] = "shared" if tree.target.has_work_items else "thread"
    most = tree.target.shared_bytes if space == "shared" else MAX_SCRATCH_BYTES
    if size * made.dtype.itemsize > most:
        raise IllegalAction(
            f"row {made.name} of kernel {tree.kernel.name}: {size * made.dtype.itemsize} bytes of "
            f"scratch exceed {most}"
        )
    return RowScratch(f"{made.name}{ROW}", made.dtype, extents, size, space)


def _offset(tree: LoopTree, place: Sequence[Index], extents: Sequence[int]) -> Index:
    """The offset of a place for one point of the shared registers; lanes are next to each other."""
    own: Index = as_index(0)
    for i, extent in zip(place, extents, strict=True):
        own = own * extent + i
    shared, count = as_index(0), 1
    registers = _beside(tree)
    for x in sorted(registers, key=lambda x: x.kind is LoopKind.VECTOR):
        shared = shared * x.extent + var(x.name, x.extent)
        count *= x.extent
    if any(x.kind is LoopKind.VECTOR for x in registers):
        return own * count + shared
    return shared * prod(extents) + own


def _beside(tree: LoopTree) -> list[Loop]:
    """The shared loops that have values of their own at a time: registers, and work-items."""
    items = [x for x in tree.loops if x.kind is LoopKind.LOCAL and x.stage < 0]
    return [*items, *tree.shared_registers]


def readers_of(kernel: Kernel, stage: int) -> dict[int, list[Expr]]:
    """By later stage, the nodes that compute what reduce ``stage`` folds, at the same place of
    their own axes.
    """
    made = kernel.stages[stage]
    if not isinstance(made, Reduce) or made.rows or not isinstance(made.expr, Apply):
        return {}
    found: dict[int, list[Expr]] = {}
    for j, later in enumerate(kernel.stages):
        if j > stage and [a.extent for a in own_axes(later)] == [a.extent for a in made.axes]:
            wanted = _renamed(made.expr, made.axes, own_axes(later))
            same = [x for x in nodes(later.expr) if x == wanted]
            if same:
                found[j] = same
    return found


def _renamed(x: Expr, old: tuple[Axis, ...], new: tuple[Axis, ...]) -> Expr:
    env = {a.name: b.index for a, b in zip(old, new, strict=True)}

    def leaf(y: Expr) -> Expr:
        if isinstance(y, Load):
            return Load(
                y.param, tuple(i.substitute(env) for i in y.index), y.dtype, y.valid.substitute(env)
            )
        if isinstance(y, IndexValue):
            return IndexValue(y.index.substitute(env), y.dtype)
        if isinstance(y, Value):
            return Value(y.stage, y.dtype, tuple(i.substitute(env) for i in y.index))
        return Inside(y.valid.substitute(env)) if isinstance(y, Inside) else y

    return rebuild(x, leaf)


def kept_of(tree: LoopTree, stage: int) -> Kept:
    """Plan how the values of ``stage`` are kept; IllegalAction names the rule that forbids it."""
    where = f"keep(stage={stage})"
    if not 0 <= stage < len(tree.kernel.stages) or not isinstance(
        tree.kernel.stages[stage], Reduce
    ):
        raise IllegalAction(f"{where}: kernel {tree.kernel.name} has no reduction at that place")
    readers = readers_of(tree.kernel, stage)
    if not readers:
        raise IllegalAction(
            f"{where}: no later stage of kernel {tree.kernel.name} computes its values again"
        )
    if not tree.target.can_keep or tree.partial:
        rule = "needs a thread with scratch, and no reduce loop around shared loops"
        raise IllegalAction(f"{where}: {rule}")
    stages = [tree.kernel.stages[i] for i in (stage, *readers)]
    extents = tuple(
        max(tree.nominal(own_axes(s)[d].name) for s in stages) for d in range(len(stages[0].axes))
    )
    made = tree.kernel.stages[stage]
    size = prod(extents) * prod(x.extent for x in tree.shared_registers)
    dtype = made.expr.dtype
    if size * dtype.itemsize > tree.target.l2_bytes:
        raise IllegalAction(
            f"{where}: {size * dtype.itemsize} bytes exceed the {tree.target.l2_bytes} of the "
            "L2 cache"
        )
    return Kept(stage, f"kept{stage}", dtype, extents, size)
