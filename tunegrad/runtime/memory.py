"""The memory planner: buffers that are never alive at the same time share addresses of one arena.

    lifetime  sizes and the first and last launch that touch each buffer
    placed    largest first, each at the lowest offset where nothing that lives with it is
    mended    what ends highest is placed earlier, and all again, a few times
    chosen    the smallest arena of a few such orders; equal input gives equal offsets, in any
              process

Greedy by size is Pisarchyk and Lee 2020, "Efficient Memory Management for Deep Neural Net
Inference".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, product
from math import prod
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from tunegrad.errors import InternalError
from tunegrad.ir.fusion import Buffer
from tunegrad.ir.layout import Pack
from tunegrad.lazy import dataclass

if TYPE_CHECKING:
    from tunegrad.devices import Engine, Memory

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


_TRIES, _FRONTS = 7, (2, 1 << 30)
"""How often an order is mended, and what the place of what ends highest is divided by: that moves
half way to the front, or to the front.

Over the lower bound, without and with: steps of GPT-2 3.7 and 0.0 %, of an encoder 3.0 and 0.0 %.
"""

_PAIRS = 1 << 18
"""Most pairs of buffers that live together, for all tries but the first: some 0.05 s."""


def plan_memory(lifetimes: Sequence[Lifetime], align: int = ALIGN) -> Arena:
    """Offsets, multiples of ``align``, at which no two buffers that are alive together overlap.

    What the last one lacks to a multiple is not counted: that of the largest one is looked for.
    """
    padding = [-x.nbytes % align for x in lifetimes]
    lifetimes = [
        replace(x, nbytes=x.nbytes + pad) for x, pad in zip(lifetimes, padding, strict=True)
    ]
    bound = -(-lower_bound(lifetimes) // align) * align
    bound -= max(zip((x.nbytes for x in lifetimes), padding, strict=True), default=(0, 0))[1]
    best: Arena | None = None
    for arena in _tried(lifetimes, padding, align):
        if best is None or arena.nbytes < best.nbytes:
            best = arena
        if best.nbytes <= bound:
            break
    return best or Arena((), 0)


def _tried(lifetimes: Sequence[Lifetime], padding: Sequence[int], align: int) -> Iterator[Arena]:
    """Every order as it is, then each as it is mended; ``padding`` is in the bytes of each."""
    places, apart = range(len(lifetimes)), _apart(lifetimes)

    def placed(order: list[int]) -> tuple[list[int], Arena]:
        offsets = _place(apart, order, align)
        ends = [o + x.nbytes - pad for o, x, pad in zip(offsets, lifetimes, padding, strict=True)]
        return ends, Arena(tuple(offsets), max(ends, default=0))

    begun = []
    for rank in _ORDERS:
        order = sorted(places, key=lambda i: (rank(lifetimes[i]), i))
        ends, arena = placed(order)
        yield arena
        begun.append((order, ends))
    left = _PAIRS // max(1, sum(map(len, apart)))
    for front, (first, ends) in product(_FRONTS, begun):
        order, tries = [*first], min(_TRIES, left)
        left -= tries
        for _ in range(tries):
            most = max(ends)
            at = next(n for n, i in enumerate(order) if ends[i] == most)
            order.insert(at // front, order.pop(at))
            ends, arena = placed(order)
            yield arena


def lower_bound(lifetimes: Sequence[Lifetime]) -> int:
    """Bytes that no plan can go below: the most that is alive at one launch."""
    changes: dict[int, int] = {}
    for piece in (piece for x in lifetimes for _, piece in x.pieces):
        changes[piece.first] = changes.get(piece.first, 0) + piece.nbytes
        changes[piece.last + 1] = changes.get(piece.last + 1, 0) - piece.nbytes
    return max(accumulate(changes[step] for step in sorted(changes)), default=0)


def _apart(lifetimes: Sequence[Lifetime]) -> list[list[tuple[int, int, int]]]:
    """For each lifetime, others and the differences between which its offset may not lie above
    theirs: there a piece of it would lie over a piece of them.
    """
    found: list[list[tuple[int, int, int]]] = [[] for _ in lifetimes]
    alive: list[int] = []
    for i in sorted(range(len(lifetimes)), key=lambda i: lifetimes[i].first):
        mine = lifetimes[i]
        alive = [j for j in alive if lifetimes[j].last >= mine.first]
        for j in alive:
            for there, other in lifetimes[j].pieces:
                for here, own in mine.pieces:
                    if other.meets(own):
                        low, high = there - here - own.nbytes, there - here + other.nbytes
                        found[i].append((j, low, high))
                        found[j].append((i, -high, -low))
        alive.append(i)
    return found


def _place(
    apart: Sequence[Sequence[tuple[int, int, int]]], order: Sequence[int], align: int
) -> list[int]:
    """The lowest offset that is free for each lifetime, in an order."""
    offsets = [-1] * len(apart)
    for i in order:
        taken = sorted(
            (offsets[j] + low, offsets[j] + high) for j, low, high in apart[i] if offsets[j] >= 0
        )
        at = 0
        for start, end in taken:
            if at <= start:
                break
            at = max(at, -(-end // align) * align)
        offsets[i] = at
    return offsets


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
"""Small constants share memory of so many bytes: each allocation has guard zones of pages."""


class Constants:
    """Memory by content, layout and pack.

    ``untouched``: what is written whole need not be zeroed before.
    """

    def __init__(self, engine: Engine, untouched: bool = False) -> None:
        self._engine, self._touched = engine, not untouched
        self.nbytes = 0
        """Bytes of all memory, and of arrays that are used where they lie."""
        self._known: dict[object, Any] = {}
        self._allocated: list[Memory] = []
        self._slab: Any = None
        self._used = 0

    def damage(self) -> str:
        """Describe a write outside of the constants' memory; '' where there was none."""
        return next((found for m in self._allocated if (found := m.damage())), "")

    def flat(self, buffer: Buffer) -> Any:
        """A constant's memory, where kernels read it as it is: a copy of the caller's array."""
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
            self._hold(key, lent)

    def _key(self, buffer: Buffer, pack: Pack | None = None) -> tuple[object, ...]:
        assert buffer.data is not None, buffer
        what = () if pack is None else (replace(pack, name="", source=""),)
        return buffer.data.digest, buffer.layout, *what

    def _keep(self, key: object, values: Array) -> Any:
        memory = self._take(values.nbytes)
        self._engine.write(memory, values)
        return self._hold(key, memory)

    def _hold(self, key: object, memory: Any) -> Any:
        self.nbytes += 0 if key in self._known else int(memory.nbytes)
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
