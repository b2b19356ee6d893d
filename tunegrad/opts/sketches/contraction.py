"""Contractions: kernels that are one sum of products of two tensors, as products of matrices and
convolutions are.

    C[both, m, n] = sum over k ..: A[both, m, k ..] * B[both, n, k ..]

m is what one factor follows alone, n what the other does. A unit multiplies m x n results over k;
other reductions are loops around it. ``warp_contraction`` is for the matrix unit of a group's
warps, ``tile_contraction`` for the tile registers of a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from tunegrad.ir.expr import Apply, Cast, Expr, Load, Op
from tunegrad.ir.kernel import Axis, Kernel, Reduce
from tunegrad.ir.target import MatrixUnit, Target, TileUnit
from tunegrad.lazy import dataclass

from ..actions.tensorcore import taken_as
from .analysis import Access, accesses, output_stride

_LEAST = 4
"""Rows, or columns, below which vectors are as good as tiles."""

U = TypeVar("U", MatrixUnit, TileUnit)


@dataclass(frozen=True, slots=True)
class Contraction(Generic[U]):
    """A kernel that a unit can run: the axes of m, of n (results lie side by side), those that both
    factors follow, and the reduction that is k.
    """

    unit: U
    a: Access
    b: Access
    m: tuple[Axis, ...]
    n: tuple[Axis, ...]
    both: tuple[Axis, ...]
    k: Axis

    @property
    def padded(self) -> bool:
        """True if k is padded to whole steps of the unit."""
        return self.k.extent % self.unit.shape[2] > 0

    @property
    def row(self) -> Axis:
        """The axis of m whose points are rows of a tile."""
        return max(self.m, key=lambda x: (self.a.stride(x.name) is not None, x is self.m[-1],
                                          x.extent))  # fmt: skip

    @property
    def filled(self) -> float:
        """The part of a tile's rows that are some: a product takes as long with fewer."""
        extent, most = self.row.extent, self.unit.shape[0]
        return extent / (-(-extent // most) * most)


def warp_contraction(kernel: Kernel, target: Target) -> Contraction[MatrixUnit] | None:
    """The kernel as a product for a matrix unit of the target; None where it is none. Loops of m
    and n hold half of the unit at least, and k whole steps of it.
    """
    found = _factors(kernel, (Op.MUL,))
    stage = kernel.reduces[0] if found else None
    units = (u for u in target.units if isinstance(u, MatrixUnit))
    unit = next((u for u in units if stage is not None and _multiplies(u, stage)), None)
    if unit is None or stage is None:
        return None
    (_, one), (_, other) = found
    k = [a for a in _deep(stage, one, other) if a.extent % unit.shape[2] == 0]
    orders = sorted(((one, other), (other, one)), key=lambda pair: _crosses(kernel, pair[0]))
    for x, y in orders:
        m, n, both = _sides(kernel, x, y)
        if k and _holds(m, unit.shape[0]) and _holds(n, unit.shape[1]):
            return Contraction(unit, x, y, m, n, both, _longest(k, one))
    return None


def tile_contraction(kernel: Kernel, target: Target) -> Contraction[TileUnit] | None:
    """The kernel as a product of words for tile registers of the target; None where it is none, or
    a place depends on data. A reduction that tiles do not divide is padded.
    """
    found = _factors(kernel, (Op.DOT2, Op.DOT4))
    if any(True for x, _ in found for i in x.index for _ in i.elements()):
        return None
    for order in (found, found[::-1]) if found else ():
        (left, x), (right, y) = order
        stage, taken = kernel.reduces[0], (left.dtype.name, right.dtype.name)
        units = (u for u in target.units if isinstance(u, TileUnit))
        unit = next(
            (u for u in units if u.factors == taken and u.dtypes[1] == stage.dtype.name), None
        )
        if unit is None:
            continue
        k = [a for a in _deep(stage, x, y) if a.extent >= unit.shape[2]]
        k = [a for a in k if a.extent % unit.shape[2] == 0] or k
        m, n, both = _sides(kernel, x, y)
        beside = any(output_stride(kernel, a.name) == 1 and a.extent >= _LEAST for a in n)
        if k and beside and any(a.extent >= _LEAST for a in m):
            return Contraction(unit, x, y, m, n, both, _longest(k, x))
    return None


def _factors(kernel: Kernel, ops: tuple[Op, ...]) -> tuple[tuple[Load, Access], ...]:
    """The two tensors whose products a kernel adds up; none where it does anything else."""
    if len(kernel.reduces) != 1 or any(s.axes for s in kernel.stores):
        return ()
    (stage,) = kernel.reduces
    x = stage.expr
    if stage.op is not Op.ADD or not isinstance(x, Apply) or x.op not in ops:
        return ()
    args = map(_stored, x.args) if x.op is Op.MUL else x.args
    loads = [y for y in args if isinstance(y, Load)]
    found = {y.param: y for y in accesses(kernel, stage)}
    if len({y.param for y in loads}) != 2 or len(found) != 2:
        return ()
    return tuple((y, found[y.param]) for y in loads)


def _stored(x: Expr) -> Expr:
    """The expression that is cast, or rounded to tf32, before it is multiplied."""
    if isinstance(x, Cast):
        return x.x
    return x.args[0] if isinstance(x, Apply) and x.op is Op.TF32 else x


def _multiplies(unit: MatrixUnit, stage: Reduce) -> bool:
    """True if a stage, a sum of products of two loads, is of the unit's types."""
    taken, gives = unit.dtypes
    return (
        isinstance(stage.expr, Apply)
        and stage.dtype.name == gives
        and all(taken_as(x) == taken for x in stage.expr.args)
    )


def _sides(
    kernel: Kernel, a: Access, b: Access
) -> tuple[tuple[Axis, ...], tuple[Axis, ...], tuple[Axis, ...]]:
    """The axes that a follows alone, those that b does, and the others."""
    shared = [x for x in kernel.axes if x.extent > 1]
    m, n = (
        tuple(x for x in shared if one.depends(x.name) and not other.depends(x.name))
        for one, other in ((a, b), (b, a))
    )
    return m, n, tuple(x for x in shared if x not in m and x not in n)


def _deep(stage: Reduce, a: Access, b: Access) -> list[Axis]:
    """The reductions that both factors follow."""
    return [x for x in stage.axes if a.depends(x.name) and b.depends(x.name)]


def _longest(k: Sequence[Axis], a: Access) -> Axis:
    """The longest reduction, one along which a factor is contiguous first."""
    return min(k, key=lambda x: (a.stride(x.name) != 1, -x.extent))


def _crosses(kernel: Kernel, a: Access) -> bool:
    """True if results lie side by side along an axis that a factor follows: that of n should."""
    return any(output_stride(kernel, x.name) == 1 and a.depends(x.name) for x in kernel.axes)


def _holds(axes: tuple[Axis, ...], size: int) -> bool:
    """True if a loop of these axes is long enough for the unit: half of it at least."""
    return bool(axes) and 2 * max(a.extent for a in axes) >= size
