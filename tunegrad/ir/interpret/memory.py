"""Memory that records its accesses: bounds, first writes, and races between threads or work-items.

A race is two actors touching one element between two barriers, at least one of them writing, unless
all of them write the same value (code outside ``thread`` and ``local`` loops runs everywhere) and
each that reads it wrote it first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Memory", "Tracker"]

Key = Any  # an int, a slice or an array of ints


class Tracker:
    """Readers and writers of each element of one buffer since the last barrier.

    The actor is ``env[slot]``. Actors run one after the other between barriers, so "the last writer
    is me" means "I wrote this since the barrier". An entry is a stamp ``epoch * span + actor``;
    ``span - 1`` stands for many actors.
    """

    __slots__ = ("_actor", "_base", "_first", "_last", "_read", "_slot", "_span")

    def __init__(self, size: int, actors: int, slot: int, actor: str) -> None:
        self._span, self._slot, self._actor = actors + 1, slot, actor
        self._base = self._span
        self._first = np.zeros(size, np.int64)
        self._last = np.zeros(size, np.int64)
        self._read = np.zeros(size, np.int64)

    def advance(self) -> None:
        """A barrier: what was touched before it conflicts with nothing after it."""
        self._base += self._span

    def read_one(self, i: int, env: list[Any]) -> str:
        """Note a read of element ``i``; the conflict in words, or ''."""
        base = self._base
        me = base + env[self._slot]
        if self._first[i] >= base:
            other = self._last[i]
            return (
                ""
                if other == me
                else f"reads what {self._actor} {other - base} wrote since the last barrier"
            )
        seen = self._read[i]
        if seen != me:
            self._read[i] = me if seen < base else base + self._span - 1
        return ""

    def write_one(self, i: int, value: Any, data: NDArray[Any], env: list[Any]) -> str:
        """Note a write of ``value`` to element ``i`` (``data`` still holds the old one); the
        conflict, or ''.
        """
        base = self._base
        me = base + env[self._slot]
        seen = self._read[i]
        if seen >= base and seen != me:
            return f"writes what {self._name(seen)} read since the last barrier"
        first = self._first[i]
        if first < base:
            self._first[i] = me
        elif first != me:
            if data[i].tobytes() != value.tobytes():
                return (
                    f"writes another value than {self._actor} {self._last[i] - base} did "
                    "since the last barrier"
                )
            self._first[i] = base + self._span - 1
        self._last[i] = me
        return ""

    def read_many(self, key: Key, env: list[Any]) -> str:
        """``read_one`` for the elements ``key``."""
        base = self._base
        me = base + env[self._slot]
        first = self._first[key]
        written = first >= base
        if written.any():
            foreign = written & (self._last[key] != me)
            if foreign.any():
                other = self._last[key][foreign][0] - base
                return f"reads what {self._actor} {other} wrote since the last barrier"
        seen = self._read[key]
        now = np.where((seen < base) | (seen == me), me, base + self._span - 1)
        self._read[key] = np.where(written, seen, now)
        return ""

    def write_many(self, key: Key, value: NDArray[Any], data: NDArray[Any], env: list[Any]) -> str:
        """``write_one`` for the elements ``key``."""
        base = self._base
        me = base + env[self._slot]
        seen = self._read[key]
        foreign = (seen >= base) & (seen != me)
        if foreign.any():
            return f"writes what {self._name(seen[foreign][0])} read since the last barrier"
        first = self._first[key]
        shared = (first >= base) & (first != me)
        if shared.any():
            if data[key][shared].tobytes() != value[shared].tobytes():
                other = self._last[key][shared][0] - base
                return f"writes another value than {self._actor} {other} did since the last barrier"
            self._first[key] = np.where(shared, base + self._span - 1, me)
        else:
            self._first[key] = me
        self._last[key] = me
        return ""

    def _name(self, stamp: int) -> str:
        actor = stamp - self._base
        return "several others" if actor == self._span - 1 else f"{self._actor} {actor}"


class Memory:
    """One buffer while a program runs.

    ``written`` is None where every element is defined from the start.

    ``copies`` > 0: private memory, that many copies of ``size`` elements in one array.
    """

    __slots__ = ("copies", "data", "name", "size", "trackers", "writable", "written")

    def __init__(self, name: str, data: NDArray[Any], writable: bool, copies: int = 0) -> None:
        self.name, self.data, self.writable, self.copies = name, data, writable, copies
        self.size = len(data) // copies if copies else len(data)
        self.written: NDArray[np.bool_] | None = np.zeros(len(data), np.bool_) if writable else None
        self.trackers: tuple[Tracker, ...] = ()

    def forget(self) -> None:
        """Nothing is written any more: the memory of the next work-group."""
        if self.written is not None:
            self.written.fill(False)
