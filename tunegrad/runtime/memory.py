"""The memory planner: buffers that are never alive at the same time share addresses of one arena.

    lifetime  sizes and the first and last launch that touch each buffer
    placed    largest first, each at the lowest offset where nothing that lives with it is
    chosen    the smallest arena of a few such orders; equal input gives equal offsets, in any
              process

Greedy by size is Pisarchyk and Lee 2020, "Efficient Memory Management for Deep Neural Net
Inference".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from tunegrad.errors import InternalError
from tunegrad.ir.fusion import Buffer
from tunegrad.ir.layout import Pack
from tunegrad.lazy import dataclass

if TYPE_CHECKING:
    from tunegrad.devices import Engine, Memory

__all__ = [
    "ALIGN",
    "Arena",
    "Constants",
    "Lifetime",
    "lower_bound",
    "plan_memory",
]

ALIGN = 64
"""Offsets are multiples of a cache line."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """``nbytes`` that are written by launch ``first`` and read until launch ``last``, inclusive.

    ``parts``: what is written in several launches: the offset of each part, and its own lifetime.
    """

    nbytes: int
    first: int
    last: int
    parts: tuple[tuple[int, Lifetime], ...] = ()

    @property
    def pieces(self) -> tuple[tuple[int, Lifetime], ...]:
        """The parts; itself, where there are none."""
        return self.parts or ((0, self),)

    def meets(self, other: Lifetime) -> bool:
        """True if some launch touches both.

        Touching both is enough: a kernel's parameters must not overlap.
        """
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True)
class Arena:
    """Offset of each lifetime, in their order, and the bytes that all of them take."""

    offsets: tuple[int, ...]
    nbytes: int


_Order = Callable[[Lifetime], tuple[int, ...]]

_ORDERS: tuple[_Order, ...] = (
    lambda x: (-x.nbytes, x.first, x.last),
    lambda x: (x.first, -x.nbytes, x.last),
    lambda x: (x.first - x.last, -x.nbytes, x.first),
    lambda x: (-x.nbytes * (x.last - x.first + 1), x.first),
)


def plan_memory(lifetimes: Sequence[Lifetime], align: int = ALIGN) -> Arena:
    """Offsets, multiples of ``align``, at which no two buffers that are alive together overlap."""
    lifetimes = [replace(x, nbytes=-(-x.nbytes // align) * align) for x in lifetimes]
    bound = lower_bound(lifetimes)
    best: Arena | None = None
    for order in _ORDERS:
        arena = _place(lifetimes, order, align)
        if best is None or arena.nbytes < best.nbytes:
            best = arena
        if best.nbytes == bound:
            break
    return best or Arena((), 0)


def lower_bound(lifetimes: Sequence[Lifetime]) -> int:
    """Bytes that no plan can go below: the most that is alive at one launch."""
    pieces = [piece for x in lifetimes for _, piece in x.pieces]
    steps = {x.first for x in pieces}
    return max(
        (sum(x.nbytes for x in pieces if x.first <= step <= x.last) for step in steps), default=0
    )


def _place(lifetimes: Sequence[Lifetime], order: _Order, align: int) -> Arena:
    offsets = [0] * len(lifetimes)
    done: list[int] = []
    for i in sorted(range(len(lifetimes)), key=lambda i: (order(lifetimes[i]), i)):
        mine = lifetimes[i]
        met = [j for j in done if lifetimes[j].meets(mine)]
        taken = sorted(  # offsets between the two would lay a piece of it over a piece of another
            (offsets[j] + there - here - own.nbytes, offsets[j] + there - here + other.nbytes)
            for j in met
            for there, other in lifetimes[j].pieces
            for here, own in mine.pieces
            if other.meets(own)
        )
        at = 0
        for start, end in taken:
            if at <= start:
                break
            at = max(at, -(-end // align) * align)
        offsets[i] = at
        done.append(i)
    return Arena(
        tuple(offsets),
        max((o + x.nbytes for o, x in zip(offsets, lifetimes, strict=True)), default=0),
    )


# ---- constants
#
# Constants in memory: each array once in its buffer's layout, each distinct pack of it once.
#
#     array, layout                     -->   the flat buffer that kernels read
#     array, layout, Pack               -->   the packed copy that a schedule staged at load
#
# An array that every kernel reads through packs alone is not there. What two plans of one model
# (stored winners, defaults) have in common is shared, and needs no elements of constants that it
# has taken before.


Array = NDArray[Any]

_SLAB_BYTES = 1 << 20
"""Small constants share memory of so many bytes: a model has thousands, and an allocation has guard
zones of pages.
"""


class Constants:
    """Memory by content, layout and pack.

    ``untouched``: what is written whole need not be zeroed before.
    """

    def __init__(self, engine: Engine, untouched: bool = False) -> None:
        self._engine, self._touched = engine, not untouched
        self._known: dict[object, Any] = {}
        self._allocated: list[Memory] = []
        self._slab: Any = None
        self._used = 0

    @property
    def nbytes(self) -> int:
        """Bytes of all memory; arrays that are used where they lie are not counted."""
        return sum(memory.nbytes for memory in self._known.values())

    def damage(self) -> str:
        """Describe a write outside of the constants' memory; '' where there was none."""
        return next((found for m in self._allocated if (found := m.damage())), "")

    def flat(self, buffer: Buffer) -> Any:
        """A constant's memory, where kernels read it as it is: a copy, which the caller's array may
        change beside.
        """
        key = self._key(buffer)
        if key in self._known:
            return self._known[key]
        return self._keep(key, _rows(buffer))

    def packed(self, buffer: Buffer, pack: Pack) -> Any:
        """The elements of a constant that ``pack`` picks, in its order."""
        key = self._key(buffer, pack)
        if key in self._known:
            return self._known[key]
        rows = _rows(buffer)
        view = pack.view(rows)
        return self._keep(key, pack.run(rows) if view is None else view)

    def give(self, buffer: Buffer, pack: Pack | None, values: Array) -> None:
        """Keep ``values`` as the result of ``flat`` (no pack) or ``packed``: an array that does not
        change any more. It is used where it lies, if the device can.
        """
        key = self._key(buffer, pack)
        lent = self._engine.borrow(values)
        if lent is None:
            self._keep(key, values)
        else:
            self._known[key] = lent

    def _key(self, buffer: Buffer, pack: Pack | None = None) -> tuple[object, ...]:
        assert buffer.data is not None, buffer
        what = () if pack is None else (replace(pack, name="", source=""),)
        return buffer.data.digest, buffer.layout, *what

    def _keep(self, key: object, values: Array) -> Any:
        memory = self._take(values.nbytes)
        self._engine.write(memory, values)
        self._known[key] = memory
        return memory

    def _take(self, nbytes: int) -> Any:
        """Memory of its own for large ones, a part of a slab for small ones."""
        if nbytes > _SLAB_BYTES // 4:
            return self._allocate(nbytes)
        if self._slab is None or self._used + nbytes > _SLAB_BYTES:
            self._slab, self._used = self._allocate(_SLAB_BYTES), 0
        start, align = self._used, self._engine.align
        self._used = -(-(start + nbytes) // align) * align
        return self._engine.part(self._slab, start, nbytes)

    def _allocate(self, nbytes: int) -> Any:
        self._allocated.append(self._engine.allocate(nbytes, self._touched))
        return self._allocated[-1]


def _rows(buffer: Buffer) -> Array:
    """A constant in its layout, flat; the caller's array, where its layout is that."""
    data = buffer.data
    assert data is not None, buffer
    if data.array.size != prod(buffer.shape):
        raise InternalError(f"constants: {buffer} has no elements any more")
    if buffer.layout.is_row_major:
        return data.array.reshape(-1)
    return buffer.layout.pack(data.array)
