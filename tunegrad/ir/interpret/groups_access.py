"""Loads, stores and copies in flight of work-groups that run all at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Never

import numpy as np
from numpy.typing import NDArray

from tunegrad.errors import VerifyError

from .. import program as p
from ..program import Instr, Program, VType
from .groups_memory import Access, GroupMemory
from .index import Env, IndexCompiler, Number

__all__ = ["GroupAccesses"]

Array = NDArray[Any]
Mask = NDArray[np.bool_]
Step = Callable[[], None]

_ROWS = 4096
"""Items that run together, about: more do not fit a core's second cache."""


@dataclass(slots=True)
class _Copy:
    """A copy in flight: elements, values and rows, flat; the batch of each."""

    memory: GroupMemory
    elements: Array
    values: Array
    rows: Array
    batch: Array
    instr: Instr


class GroupAccesses:
    """The memory of some groups of a program, and their active items. Mutable."""

    def __init__(
        self,
        program: Program,
        params: Mapping[str, tuple[Array, bool]],
        describe: Callable[[Instr], str],
    ) -> None:
        """``params`` are the parameters and packs, with whether they are outputs."""
        self.program, self.describe = program, describe
        self.items, self.groups = program.local, program.threads
        self.together = max(1, min(self.groups, _ROWS // self.items))
        self.rows = self.items * self.together
        self.env: Env = []
        self.values: dict[int, Array] = {}
        self.types: dict[int, VType] = {}
        self.registers: dict[str, Array] = {}
        self.known: dict[str, Mask | None] = {}
        self.active: Mask | None = None
        self.count = self.time = self.first = self.barriers = 0
        self.memory: dict[str, GroupMemory] = {}
        self.names = IndexCompiler(0, self.memory)
        many = self.items > 1
        for name, (data, out) in params.items():
            self.memory[name] = GroupMemory(
                name, data, writable=out, copies=1, items=self.items, checked=out and many,
                between=out and self.groups > 1,
            )  # fmt: skip
        for a in program.allocs:
            copies = {"thread": self.rows, "shared": self.together, "team": 1}[a.space]
            data = np.zeros(a.size * copies, a.dtype.numpy)
            self.memory[a.name] = GroupMemory(
                a.name, data, writable=True, private=a.space == "thread", copies=copies,
                items=self.items,
                checked=many and a.space != "thread",
                between=a.space == "team" and self.groups > 1,
            )  # fmt: skip
        self.copies: list[_Copy] = []
        self.batches = np.zeros(self.rows, np.int64)
        self.actor = np.arange(self.rows, dtype=np.int64)[:, None]

    def fault(self, instr: Instr, why: str, row: int, at: Env | None = None) -> Never:
        env = self.env if at is None else at
        found = []
        for name, slot in self.names.slots.items():
            x = env[slot] if slot < len(env) else None
            if isinstance(x, np.ndarray) and x.ndim == 2:
                x = int(np.broadcast_to(x, (self.rows, 1))[row, 0])
            if isinstance(x, int):
                found.append(f"{name}={x}")
        raise VerifyError(
            f"program {self.program.name}: `{self.describe(instr)}`: {why}; work-item "
            f"{row % self.items} of group {self.first + row // self.items}"
            f"{', ' if found else ''}{' '.join(found)}"
        )

    def _first_of(self, bad: Mask) -> int:
        """The first active row of which some lane is bad."""
        rows = np.broadcast_to(bad, (self.rows, bad.shape[1])).any(axis=1)
        if self.active is not None:
            rows = rows & self.active[:, 0]
        return int(rows.argmax())

    def _all(self) -> Mask:
        return np.ones((self.rows, 1), np.bool_) if self.active is None else self.active

    def _decided(self, x: Any) -> bool | None:
        """The answer that all active rows give; None where some say yes and some no."""
        if not isinstance(x, np.ndarray):
            return bool(x)
        here = x
        if self.active is not None:
            here = np.broadcast_to(x, (self.rows, x.shape[1]))[self.active[:, 0]]
        return True if here.all() else None if here.any() else False

    def _find(self, i: p.Load | p.Store) -> Number:
        return self.names.index(i.offset, i.lane, i.vtype.lanes)

    def _key(self, i: Instr, memory: GroupMemory, at: Any, keep: Mask | None) -> Array:
        """Elements of the data, in bounds for the active rows and the lanes kept; 0 elsewhere."""
        key = np.asarray(at, np.int64)
        if key.ndim < 2:
            key = key.reshape(1, -1)
        good = keep
        if self.active is not None:
            good = self.active if good is None else good & self.active
        if good is not None:
            key = np.where(good, key, 0)
        if key.min() < 0 or key.max() >= memory.size:
            bad = (key < 0) | (key >= memory.size)
            row = self._first_of(bad)
            k = int(np.broadcast_to(key, (self.rows, key.shape[1]))[row][
                np.broadcast_to(bad, (self.rows, bad.shape[1]))[row]].max())  # fmt: skip
            of = f"{memory.name}[{k}] of {memory.size} elements"
            self.fault(i, f"out of bounds: {of}", row)
        if memory.copies == 1:
            return key
        which = self.actor if memory.private else self.actor // self.items
        return key + which * memory.size

    def _touch(self, i: Instr, memory: GroupMemory, key: Array, keep: Mask | None) -> None:
        """Note a read; what was never written, or is about to be, may not be read."""
        if memory.written is None:
            return
        elements, rows = self._flat(key, keep)
        self._check_flying(i, memory, elements, rows)
        unwritten = ~memory.written[elements]
        if unwritten.any():
            at = int(unwritten.argmax())
            k = int(elements[at]) % memory.size
            which = (
                f"{memory.name}[{k}], which was"
                if key.shape[1] == 1
                else (f"elements of {memory.name} that were")
            )
            self.fault(i, f"reads {which} never written", int(rows[at]))
        if memory.checked or self.groups > 1:
            memory.note_read(self._access(i, elements, rows, None), self.first)

    def _check_flying(self, i: Instr, memory: GroupMemory, elements: Array, rows: Array) -> None:
        if memory.flying is not None:
            flying = memory.flying[elements]
            if flying.any():
                at = int(flying.argmax())
                k = int(elements[at]) % memory.size
                why = f"touches {memory.name}[{k}], to which a copy is in flight"
                self.fault(i, why, int(rows[at]))

    def _flat(self, key: Array, keep: Mask | None) -> tuple[Array, Array]:
        """Elements and rows, one after the other, of active rows and the lanes kept."""
        shape = (self.rows, key.shape[1])
        elements, rows = np.broadcast_to(key, shape), np.broadcast_to(self.actor, shape)
        good = keep
        if self.active is not None:
            good = self.active if good is None else good & self.active
        if good is None:
            return elements.reshape(-1), rows.reshape(-1)
        good = np.broadcast_to(good, shape)
        return elements[good], rows[good]

    def _access(self, i: Instr, elements: Array, rows: Array, values: Array | None) -> Access:
        self.time += 1
        at = list(self.env)
        return Access(
            elements, rows, self.time, lambda why, row: self.fault(i, why, row, at), values
        )

    def _load(self, i: p.Load) -> Step:
        memory, find, lanes = self.memory[i.buffer], self._find(i), i.vtype.lanes
        zero = memory.data.dtype.type(0)

        def load() -> None:
            keep = None if i.mask is None else self.values[i.mask]
            key = self._key(i, memory, find(self.env), keep)
            self._touch(i, memory, key, keep)
            x = memory.data[key]
            if keep is not None:
                x = np.where(keep, x, zero)
            self.values[i.id] = np.broadcast_to(x, (x.shape[0], lanes))

        return load

    def _store(self, i: p.Store) -> Step:
        memory, find = self.memory[i.buffer], self._find(i)

        def store() -> None:
            keep = None if i.mask is None else self.values[i.mask]
            key = self._key(i, memory, find(self.env), keep)
            elements, rows = self._flat(key, keep)
            x = np.broadcast_to(self.values[i.value], (self.rows, i.vtype.lanes))
            at = rows * i.vtype.lanes if x.shape[1] == 1 else None
            values = x.reshape(-1)[at] if at is not None else self._flat(x, keep)[0]
            self._put(i, memory, elements, rows, values)

        return store

    def _put(
        self, i: Instr, memory: GroupMemory, elements: Array, rows: Array, values: Array
    ) -> None:
        self._check_flying(i, memory, elements, rows)
        if memory.checked or self.groups > 1:
            memory.note_write(self._access(i, elements, rows, values), self.first)
        memory.data[elements] = values
        memory.written[elements] = True  # type: ignore[index]  # writable memory has it

    def _copy_async(self, i: p.CopyAsync) -> Step:
        to, source, lanes = self.memory[i.buffer], self.memory[i.source], i.vtype.lanes
        into = self.names.index(i.into, i.lane, lanes)
        offset = self.names.index(i.offset, i.lane, lanes)
        zero = source.data.dtype.type(0)
        if to.flying is None:
            to.flying = np.zeros(len(to.data), np.bool_)

        def start() -> None:
            keep = None if i.mask is None else self.values[i.mask]
            read = self._key(i, source, offset(self.env), keep)
            values = source.data[read]
            if keep is not None:
                values = np.where(keep, values, zero)
            key = self._key(i, to, into(self.env), None)
            elements, rows = self._flat(key, None)
            values = self._flat(values, None)[0]
            self._check_flying(i, to, elements, rows)
            to.note_write(self._access(i, elements, rows, values), self.first)
            to.flying[elements] = True  # type: ignore[index]
            self.copies.append(_Copy(to, elements, values, rows, self.batches[rows], i))

        return start

    def _commit(self) -> None:
        self.batches += 1 if self.active is None else self.active[:, 0]

    def _await(self, left: int) -> None:
        """Batches older than the ``left`` newest arrive, as if their item stored them now."""
        waiting = self._all()[:, 0]
        still: list[_Copy] = []
        for c in self.copies:
            here = waiting[c.rows] & (c.batch < self.batches[c.rows] - left)
            if here.any():
                elements, rows = c.elements[here], c.rows[here]
                c.memory.flying[elements] = False  # type: ignore[index]
                self._put(c.instr, c.memory, elements, rows, c.values[here])
            if not here.all():
                no = ~here
                still.append(
                    _Copy(c.memory, c.elements[no], c.values[no], c.rows[no], c.batch[no], c.instr)
                )
        self.copies = still
