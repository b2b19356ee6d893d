"""Facts about a kernel that the sketches ask for: how loads walk memory along each axis, how much
work there is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TypeVar, cast

from tunegrad.ir.kernel import Axis, Kernel, Stage, loads

from ..staging import most_packed

__all__ = [
    "Access",
    "accesses",
    "can_be_packed",
    "contiguous_axes",
    "contiguous_itemsize",
    "once",
    "output_stride",
]


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Access:
    """One load of a stage: the elements it moves per step of each axis it depends on; None where
    that varies. ``indirect``: the place depends on data, and no copy can be made beforehand.
    """

    param: str
    role: str
    strides: tuple[tuple[str, int | None], ...]
    masked: bool
    nbytes: int
    indirect: bool = False
    boxed: bool = True
    _by_axis: dict[str, int | None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_axis", dict(self.strides))

    def stride(self, axis: str) -> int | None:
        """Elements per step of ``axis``; 0 when the load does not depend on it."""
        return self._by_axis.get(axis, 0)

    def depends(self, axis: str) -> bool:
        return axis in self._by_axis


@dataclass(slots=True)
class _Known:
    """Facts found out about one kernel: a search draws thousands of schedules of it."""

    kernel: Kernel
    accesses: dict[int, tuple[Access, ...]] = field(default_factory=dict)
    output_strides: dict[str, int | None] = field(default_factory=dict)
    others: dict[Hashable, object] = field(default_factory=dict)


_KNOWN: OrderedDict[int, _Known] = OrderedDict()
"""By the kernel's identity, which hashing its text would cost more than it saves; the latest
few.
"""

_MOST_KNOWN = 128


def _known(kernel: Kernel) -> _Known:
    found = _KNOWN.get(id(kernel))
    if found is None:  # an entry keeps its kernel alive, so that no other one can have its identity
        found = _KNOWN[id(kernel)] = _Known(kernel)
        if len(_KNOWN) > _MOST_KNOWN:
            _KNOWN.popitem(last=False)
    return found


def once(kernel: Kernel, key: Hashable, find: Callable[[], T]) -> T:
    """The answer of ``find`` about a kernel, asked for once; ``key`` names the question.

    No caller may change it.
    """
    others = _known(kernel).others
    if key not in others:
        others[key] = find()
    return cast("T", others[key])


def accesses(kernel: Kernel, stage: Stage) -> tuple[Access, ...]:
    """Every load of a stage."""
    known = _known(kernel).accesses
    place = next((i for i, s in enumerate(kernel.stages) if s is stage), -1)
    if place not in known:
        known[place] = _accesses(kernel, stage) if place >= 0 else ()
    return known[place]


def _accesses(kernel: Kernel, stage: Stage) -> tuple[Access, ...]:
    found = []
    for s, x in loads(kernel):
        if s is stage:
            param = kernel.param(x.param)
            offset = param.layout.offset(x.index)
            names = sorted(offset.names() | x.valid.names())
            strides = tuple((n, offset.coefficient(n)) for n in names)
            indirect = any(True for _ in offset.elements())
            masked = not x.valid.always
            boxed = all(any(d.terms == r.index.terms for d in x.index) for r in x.valid)
            found.append(
                Access(x.param, param.role, strides, masked, param.nbytes, indirect, boxed)
            )
    return tuple(found)


def can_be_packed(kernel: Kernel, reduces: Sequence[Axis], x: Access) -> bool:
    """True if a copy of a constant by its loops is of a legal size, whatever tails pad it.

    Loops that read an element again copy it again: ``w[i % 2]`` by ``i`` is as long as ``i``.
    """
    reads = prod(a.extent for a in (*kernel.axes, *reduces) if x.depends(a.name))
    return 2 * reads * kernel.param(x.param).dtype.itemsize <= most_packed(x.nbytes)


def contiguous_itemsize(kernel: Kernel, stage: Stage, axis: Axis) -> int:
    """Bytes of the widest element that a stage loads side by side along an axis; 0: none are."""
    beside = (x for x in accesses(kernel, stage) if x.stride(axis.name) == 1)
    return max((kernel.param(x.param).dtype.itemsize for x in beside), default=0)


def output_stride(kernel: Kernel, axis: str) -> int | None:
    """Elements that the first store moves per step of ``axis``."""
    known = _known(kernel).output_strides
    if axis not in known:
        s = kernel.stores[0]
        known[axis] = kernel.param(s.param).layout.offset(s.index).coefficient(axis)
    return known[axis]


def contiguous_axes(kernel: Kernel, names: list[str]) -> list[str]:
    """The axes along which the first store is contiguous."""
    return [n for n in names if output_stride(kernel, n) == 1]
