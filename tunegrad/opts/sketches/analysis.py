"""Facts about a kernel that the sketches ask for: how loads walk memory along each axis, how much work there is."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tunegrad.ir.kernel import Kernel, Reduce, Stage, loads

__all__ = ["Access", "accesses", "contiguous_axes", "output_stride", "reduce_work"]


@dataclass(frozen=True, slots=True)
class Access:
    """One load of a stage: the elements it moves per step of each axis it depends on; None where that varies."""

    param: str
    role: str
    strides: tuple[tuple[str, int | None], ...]
    masked: bool
    nbytes: int

    def stride(self, axis: str) -> int | None:
        """Elements per step of ``axis``; 0 when the load does not depend on it."""
        return dict(self.strides).get(axis, 0)

    def depends(self, axis: str) -> bool:
        return any(a == axis for a, _ in self.strides)


def accesses(kernel: Kernel, stage: Stage) -> tuple[Access, ...]:
    """Every load of a stage."""
    found = []
    for s, x in loads(kernel):
        if s is stage:
            param = kernel.param(x.param)
            offset = param.layout.offset(x.index)
            names = sorted(offset.names() | x.valid.names())
            strides = tuple((n, offset.coefficient(n)) for n in names)
            found.append(Access(x.param, param.role, strides, not x.valid.always, param.nbytes))
    return tuple(found)


def output_stride(kernel: Kernel, axis: str) -> int | None:
    """Elements that the first store moves per step of ``axis``."""
    s = kernel.stores[0]
    return kernel.param(s.param).layout.offset(s.index).coefficient(axis)


def contiguous_axes(kernel: Kernel, names: list[str]) -> list[str]:
    """The axes along which the first store is contiguous."""
    return [n for n in names if output_stride(kernel, n) == 1]


def reduce_work(kernel: Kernel) -> int:
    """Fold steps of the whole kernel."""
    return sum(kernel.points * prod(a.extent for a in s.axes) for s in kernel.stages if isinstance(s, Reduce))
