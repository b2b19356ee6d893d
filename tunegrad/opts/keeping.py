"""Values of a reduction's expression that a later stage needs again: where they are kept between
the two.

s1 = sum over r of exp(x[i, r] - s0)             kept[r] = exp(x[i, r] - s0);  s1 = sum of kept[r]
store y[i, p] = exp(x[i, p] - s0) / s1    -->    store y[i, p] = kept[p] / s1
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tunegrad.errors import IllegalAction
from tunegrad.ir.dtypes import DType
from tunegrad.ir.expr import Apply, Expr, IndexValue, Inside, Load, nodes, rebuild
from tunegrad.ir.index import Index, as_index, var
from tunegrad.ir.kernel import Axis, Kernel, Reduce
from tunegrad.ir.looptree import LoopKind, LoopTree

__all__ = ["Kept", "kept_of", "readers_of"]


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
        """Where a value is, over the loops of ``stage``: the producer or a reader.

        Lanes are next to each other.
        """
        axes = dict(tree.index)
        own: Index = as_index(0)
        for a, extent in zip(tree.kernel.stages[stage].axes, self.extents, strict=True):
            own = own * extent + axes[a.name]
        shared, count = as_index(0), 1
        registers = tree.shared_registers
        for x in sorted(registers, key=lambda x: x.kind is LoopKind.VECTOR):
            shared = shared * x.extent + var(x.name, x.extent)
            count *= x.extent
        if any(x.kind is LoopKind.VECTOR for x in registers):
            return own * count + shared
        return shared * prod(self.extents) + own


def readers_of(kernel: Kernel, stage: int) -> dict[int, list[Expr]]:
    """By later stage, the nodes that compute what reduce ``stage`` folds, at the same place of
    their own axes.
    """
    made = kernel.stages[stage]
    if not isinstance(made, Reduce) or not isinstance(made.expr, Apply):
        return {}
    found: dict[int, list[Expr]] = {}
    for j, later in enumerate(kernel.stages):
        if j > stage and [a.extent for a in later.axes] == [a.extent for a in made.axes]:
            wanted = _renamed(made.expr, made.axes, later.axes)
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
        return Inside(y.valid.substitute(env)) if isinstance(y, Inside) else y

    return rebuild(x, leaf)


def kept_of(tree: LoopTree, stage: int) -> Kept:
    """How the values of ``stage`` are kept; IllegalAction names the rule that forbids it."""
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
        max(tree.nominal(s.axes[d].name) for s in stages) for d in range(len(stages[0].axes))
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
