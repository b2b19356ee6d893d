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
from dataclasses import dataclass, replace

__all__ = ["ALIGN", "Arena", "Lifetime", "lower_bound", "plan_memory"]

ALIGN = 64
"""Offsets are multiples of a cache line."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """``nbytes`` that are written by launch ``first`` and read until launch ``last``, inclusive."""

    nbytes: int
    first: int
    last: int

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
        arena = _place(lifetimes, order)
        if best is None or arena.nbytes < best.nbytes:
            best = arena
        if best.nbytes == bound:
            break
    return best or Arena((), 0)


def lower_bound(lifetimes: Sequence[Lifetime]) -> int:
    """Bytes that no plan can go below: the most that is alive at one launch."""
    steps = {x.first for x in lifetimes}
    return max(
        (sum(x.nbytes for x in lifetimes if x.first <= step <= x.last) for step in steps), default=0
    )


def _place(lifetimes: Sequence[Lifetime], order: _Order) -> Arena:
    offsets = [0] * len(lifetimes)
    done: list[int] = []
    for i in sorted(range(len(lifetimes)), key=lambda i: (order(lifetimes[i]), i)):
        mine = lifetimes[i]
        taken = sorted(
            (offsets[j], offsets[j] + lifetimes[j].nbytes) for j in done if lifetimes[j].meets(mine)
        )
        at = 0
        for start, end in taken:
            if at + mine.nbytes <= start:
                break
            at = max(at, end)
        offsets[i] = at
        done.append(i)
    return Arena(
        tuple(offsets),
        max((o + x.nbytes for o, x in zip(offsets, lifetimes, strict=True)), default=0),
    )
