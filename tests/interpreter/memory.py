"""Memory of one thread at a time: indices as functions; bounds, first writes and races at each
access.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Never, Protocol

import numpy as np
from numpy.typing import NDArray

from tunegrad.ir.index import Element, FloorDiv, Index, Valid, Var
from tunegrad.ir.program import Load, Store

__all__ = [
    "Env",
    "IndexCompiler",
    "Memory",
    "Number",
    "Step",
    "Tracker",
    "Values",
    "load_step",
    "store_step",
]


# ---- index
#
# Indices and conditions as Python functions of an environment, a list that holds each variable's
# value in its slot.
#
# A lane variable has a slot of its own that holds ``arange(lanes)``, so the same functions give
# arrays.


Env = list[Any]
Number = Callable[[Env], Any]


class Readable(Protocol):
    """A buffer: all its elements, flat."""

    data: Any


class IndexCompiler:
    """Gives variables their slots (from ``first`` on) and makes functions of indices, each distinct
    one once.
    """

    __slots__ = ("_first", "_lanes", "_made", "_memory", "slots")

    def __init__(self, first: int, memory: Mapping[str, Readable]) -> None:
        """``memory``: the buffers by name, for indices that are elements of one."""
        self._memory = memory
        self.slots: dict[str, int] = {}
        self._first = first
        self._lanes: list[tuple[int, int]] = []
        self._made: dict[tuple[str, str, int], Number] = {}

    def env(self, head: list[int]) -> Env:
        """A fresh environment: ``head`` fills the slots before the variables'."""
        env: Env = head + [None] * len(self.slots)
        for slot, lanes in self._lanes:
            env[slot] = np.arange(lanes, dtype=np.int64)
        return env

    def slot(self, name: str) -> int:
        """The slot of a loop variable."""
        return self.slots.setdefault(name, self._first + len(self.slots))

    def index(self, index: Index, lane: str = "", lanes: int = 1) -> Number:
        """``index`` as a function of env; an array of ``lanes`` numbers when it depends on
        ``lane``.
        """
        key = (index.key, lane, lanes)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = self._index(index, lane, lanes)
        return made

    def valid(self, valid: Valid, lane: str = "", lanes: int = 1, *, rows: bool = False) -> Number:
        """``valid`` as a function of env, giving a bool, or an array of them when it depends on
        ``lane``; or of variables that are arrays themselves (``rows``).
        """
        if valid.never:
            return lambda _: False
        ranges = [(self.index(r.index, lane, lanes), r.lo, r.hi) for r in valid]
        if rows or (lane and lane in valid.names()):

            def many(e: Env) -> Any:
                keep: Any = True
                for at, lo, hi in ranges:
                    x = at(e)
                    keep = keep & (x >= lo) & (x < hi)
                return keep

            return many

        def one(e: Env) -> bool:
            for at, lo, hi in ranges:  # noqa: SIM110  # all() over a generator takes twice as long
                if not lo <= at(e) < hi:
                    return False
            return True

        return one

    def _lane_slot(self, lane: str, lanes: int) -> int:
        name = f"{lane}:{lanes}"
        if name not in self.slots:
            self._lanes.append((self.slot(name), lanes))
        return self.slots[name]

    def _index(self, index: Index, lane: str, lanes: int) -> Number:
        pairs: list[tuple[int, int]] = []
        hard: list[tuple[Number, int]] = []
        for atom, c in index.terms:
            if isinstance(atom, Var):
                pairs.append(
                    (self._lane_slot(lane, lanes) if atom.name == lane else self.slot(atom.name), c)
                )
            else:
                num = self.index(atom.num, lane, lanes)
                if isinstance(atom, Element):
                    hard.append((_element(num, atom, self._memory[atom.buffer].data), c))
                    continue
                hard.append(
                    (
                        _floordiv(num, atom.den)
                        if isinstance(atom, FloorDiv)
                        else _mod(num, atom.den),
                        c,
                    )
                )
        if hard:
            return _general(_linear(index.const, pairs), tuple(hard))
        return _linear(index.const, pairs)


def _linear(const: int, pairs: list[tuple[int, int]]) -> Number:
    if not pairs:
        return lambda _: const
    (s0, c0), rest = pairs[0], pairs[1:]
    if not rest:
        return (lambda e: e[s0]) if (c0, const) == (1, 0) else (lambda e: c0 * e[s0] + const)
    if len(rest) == 1:
        s1, c1 = rest[0]
        return lambda e: c0 * e[s0] + c1 * e[s1] + const
    if len(rest) == 2:
        (s1, c1), (s2, c2) = rest
        return lambda e: c0 * e[s0] + c1 * e[s1] + c2 * e[s2] + const
    if len(rest) == 3:
        (s1, c1), (s2, c2), (s3, c3) = rest
        return lambda e: c0 * e[s0] + c1 * e[s1] + c2 * e[s2] + c3 * e[s3] + const

    head, tail = _linear(const, pairs[:4]), _linear(0, pairs[4:])
    return lambda e: head(e) + tail(e)


def _general(head: Number, hard: tuple[tuple[Number, int], ...]) -> Number:
    def total(e: Env) -> Any:
        sum_ = head(e)
        for at, c in hard:
            sum_ = sum_ + c * at(e)
        return sum_

    return total


def _element(num: Number, e: Element, memory: Any) -> Number:
    return lambda env: e.value(memory, num(env))


def _floordiv(num: Number, den: int) -> Number:
    return lambda e: num(e) // den


def _mod(num: Number, den: int) -> Number:
    return lambda e: num(e) % den


# ---- memory
#
# Memory that records its accesses: bounds, first writes, and races between threads or work-items.
#
# A race is two actors touching one element between two barriers, at least one of them writing,
# unless all of them write the same value (code outside ``thread`` and ``local`` loops runs
# everywhere) and each that reads it wrote it first.


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


# ---- access
#
# Loads and stores as closures: bounds, first writes and races are checked at every access.
#
# one     a scalar                      key is an int
# slice   lanes next to each other      key is a slice
# gather  any other lanes, or a mask    key is an array


Values = list[Any]
Step = Callable[[Values, Env], None]
Fault = Callable[[str, Env], Never]
Find = Callable[[Env, Any], Any]


def load_step(
    i: Load, memory: Memory, names: IndexCompiler, to: int, mask: int | None, fault: Fault
) -> Step:
    """The closure that runs ``i``: reads ``memory`` into value slot ``to`` where the value in slot
    ``mask`` holds.
    """
    lanes, zero = i.vtype.lanes, memory.data.dtype.type(0)
    if lanes == 1 or i.lane not in i.offset.names():
        one = _load_one(i, memory, names, to, fault)

        def scalar(v: Values, e: Env) -> None:
            if mask is None or v[mask].all():
                one(v, e)
            elif lanes == 1 or not v[mask].any():
                v[to] = zero if lanes == 1 else np.full(lanes, zero)
            else:
                one(v, e)
                v[to] = np.where(v[mask], v[to], zero)

        return one if mask is None else scalar
    find = _finder(i, memory, names, fault)
    read, data = _reader(memory, fault), memory.data

    def whole(v: Values, e: Env) -> None:
        key = find(e, None)
        read(key, e)
        v[to] = data[key].copy()

    def masked(v: Values, e: Env) -> None:
        keep = v[mask]  # type: ignore[index]  # whole is returned where there is no mask
        if keep.all():
            whole(v, e)
            return
        v[to] = out = np.zeros(lanes, data.dtype)
        if keep.any():
            key = find(e, keep)
            read(key, e)
            out[keep] = data[key]

    return whole if mask is None else masked


def _load_one(i: Load, memory: Memory, names: IndexCompiler, to: int, fault: Fault) -> Step:
    at, size, data, lanes = (
        names.index(i.offset, i.lane, 1),
        memory.size,
        memory.data,
        i.vtype.lanes,
    )
    written, trackers, private = memory.written, memory.trackers, memory.copies > 0

    def plain(v: Values, e: Env) -> None:
        k = at(e)
        if not 0 <= k < size:
            fault(_outside(memory, k), e)
        v[to] = data[k]

    def checked(v: Values, e: Env) -> None:
        k = at(e)
        if not 0 <= k < size:
            fault(_outside(memory, k), e)
        if private:
            k += e[0] * size
        if not written[k]:  # type: ignore[index]  # plain is returned where nothing is to be written first
            fault(f"reads {memory.name}[{k % size}], which was never written", e)
        for t in trackers:
            if why := t.read_one(k, e):
                fault(f"race: {why} ({memory.name}[{k}])", e)
        v[to] = data[k]

    one = plain if written is None else checked

    def splat(v: Values, e: Env) -> None:
        one(v, e)
        v[to] = np.full(lanes, v[to])

    return one if lanes == 1 else splat


def store_step(
    i: Store, memory: Memory, names: IndexCompiler, source: int, mask: int | None, fault: Fault
) -> Step:
    """The closure that runs ``i``: writes the value in slot ``source`` to ``memory`` where that in
    ``mask`` holds.
    """
    if i.vtype.lanes == 1:
        return _store_one(i, memory, names, source, mask, fault)
    find, data, trackers = _finder(i, memory, names, fault), memory.data, memory.trackers

    def write(key: Any, x: Any, e: Env) -> None:
        for t in trackers:
            if why := t.write_many(key, x, data, e):
                fault(f"race: {why} ({memory.name})", e)
        data[key] = x
        memory.written[key] = True  # type: ignore[index]  # writable memory has it

    def whole(v: Values, e: Env) -> None:
        write(find(e, None), v[source], e)

    def masked(v: Values, e: Env) -> None:
        keep = v[mask]  # type: ignore[index]  # whole is returned where there is no mask
        if keep.all():
            whole(v, e)
        elif keep.any():
            write(find(e, keep), v[source][keep], e)

    return whole if mask is None else masked


def _store_one(
    i: Store, memory: Memory, names: IndexCompiler, source: int, mask: int | None, fault: Fault
) -> Step:
    at, size, data = names.index(i.offset, i.lane, 1), memory.size, memory.data
    trackers, private = memory.trackers, memory.copies > 0

    def step(v: Values, e: Env) -> None:
        if mask is not None and not v[mask]:
            return
        k = at(e)
        if not 0 <= k < size:
            fault(_outside(memory, k), e)
        if private:
            k += e[0] * size
        x = v[source]
        for t in trackers:
            if why := t.write_one(k, x, data, e):
                fault(f"race: {why} ({memory.name}[{k}])", e)
        data[k] = x
        memory.written[k] = True  # type: ignore[index]  # writable memory has it

    return step


def _finder(i: Load | Store, memory: Memory, names: IndexCompiler, fault: Fault) -> Find:
    """A function of env and the lanes kept (None: all of them) that gives the key, in bounds."""
    lanes, size, private = i.vtype.lanes, memory.size, memory.copies > 0
    at = names.index(i.offset, i.lane, lanes)
    contiguous = i.offset.coefficient(i.lane) == 1
    first = names.index(i.offset.substitute({i.lane: i.offset * 0})) if contiguous else at

    def find(e: Env, keep: Any) -> Any:
        if contiguous and keep is None:
            k = first(e)
            if k < 0 or k + lanes > size:
                fault(_outside(memory, k if k < 0 else k + lanes - 1), e)
            if private:
                k += e[0] * size
            return slice(k, k + lanes)
        key = at(e)
        if keep is not None:
            key = key[keep]
        low, high = int(key.min()), int(key.max())
        if low < 0 or high >= size:
            fault(_outside(memory, low if low < 0 else high), e)
        return key + e[0] * size if private else key

    return find


def _reader(memory: Memory, fault: Fault) -> Callable[[Any, Env], None]:
    written, trackers = memory.written, memory.trackers

    def free(key: Any, e: Env) -> None:
        pass

    def checked(key: Any, e: Env) -> None:
        if not written[key].all():  # type: ignore[index]  # free is returned where there is none
            fault(f"reads elements of {memory.name} that were never written", e)
        for t in trackers:
            if why := t.read_many(key, e):
                fault(f"race: {why} ({memory.name})", e)

    return free if written is None else checked


def _outside(memory: Memory, k: int) -> str:
    return f"out of bounds: {memory.name}[{k}] of {memory.size} elements"
