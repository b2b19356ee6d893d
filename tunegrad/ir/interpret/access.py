"""Loads and stores as closures: bounds, first writes and races are checked at every access.

one     a scalar                      key is an int
slice   lanes next to each other      key is a slice
gather  any other lanes, or a mask    key is an array
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Never

import numpy as np

from ..program import Load, Store
from .index import Env, IndexCompiler
from .memory import Memory

__all__ = ["Step", "Values", "load_step", "store_step"]

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
