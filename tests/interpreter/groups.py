"""Runs a program of work-groups exactly, all items of several groups at once.

A value is an array of a row for each item (one row where all have the same) and a column for each
lane; a loop variable an int, or a column of them. Every instruction becomes one closure that is
called once for all items; those that skip a branch or an iteration are masked out, and what is
computed for them meanwhile is never seen.

    rows     items of group 0, items of group 1, ...   as many groups as fit _ROWS, then the next
    active   the rows that run a block; None: all
    flying   what asynchronous copies are about to write: no item may touch it until the one that
             started a copy waits for its batch

What a compiled candidate could do silently is an error here: an access out of bounds, a read of
memory or a register that was never written, a loop longer than its extent, a race between items or
groups, a copy that is touched in flight or never waited for, a barrier, a product or a shuffle that
not every item of a group reaches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Never

import numpy as np
from numpy.typing import NDArray

from tests.interpreter.memory import Env, IndexCompiler, Number
from tests.interpreter.values import constant, converter, folder, load_matrices, multiply, operation
from tunegrad.errors import VerifyError
from tunegrad.ir import program as p
from tunegrad.ir.dtypes import BOOL
from tunegrad.ir.program import Instr, Program, VType

__all__ = ["GroupMachine"]


# ---- groups memory
#
# Memory of work-groups that run all at once: the accesses since the last barrier.
#
#     log      the elements and the items of each access, until the barrier after it
#     settle   at a barrier: two items of a group touched one element, one of them wrote it: a race,
#              unless all wrote the same value and each that read it had written it before
#     groups   between groups there is no barrier: what one wrote no other may touch, at any time
#
# Most stretches between two barriers only read a buffer, or only write it: then there is little to
# compare.


Ints = NDArray[np.int64]
Fault = Callable[[str, int], Never]
"""Raises VerifyError for what went wrong, at a row: an item of a group."""


@dataclass(frozen=True, slots=True)
class Access:
    """Elements that rows touched at one time, both flat; the values, where they were written.

    ``when`` counts accesses: a later one has a larger number.
    """

    elements: Ints
    rows: Ints
    when: int
    fault: Fault
    values: NDArray[Any] | None = None


Race = tuple[str, Access, int]
"""In words, with the access that is at fault and its row."""

_NOBODY, _MANY = -1, -2


class GroupMemory:
    """One buffer of the groups that run together.

    ``copies`` of ``size`` elements: one a group (shared memory), one an item (``private``), or one.
    ``rows`` of ``items`` each are groups. ``checked`` says that items can race, ``between`` that
    groups can. ``flying`` are elements that an asynchronous copy is about to write.
    """

    __slots__ = (
        "_groups", "_items", "_read_by", "_reads", "_writes", "_written_by", "checked", "copies",
        "data", "flying", "name", "private", "size", "writable", "written",
    )  # fmt: skip

    def __init__(
        self, name: str, data: NDArray[Any], *, writable: bool, copies: int, items: int,
        checked: bool, between: bool, private: bool = False,
    ) -> None:  # fmt: skip
        self.name, self.data, self.writable, self.copies = name, data, writable, copies
        self.private = private
        self.size = len(data) // copies
        self.written = np.zeros(len(data), np.bool_) if writable else None
        self.flying: NDArray[np.bool_] | None = None
        self.checked, self._items = checked, items
        self._reads: list[Access] = []
        self._writes: list[Access] = []
        self._groups = between
        self._written_by = np.full(len(data) if between else 0, _NOBODY, np.int32)
        self._read_by = np.full(len(data) if between else 0, _NOBODY, np.int32)

    def forget(self) -> None:
        """Nothing is written any more: the memory of the next groups."""
        if self.written is not None:
            self.written.fill(False)

    def note_read(self, access: Access, first_group: int) -> None:
        """Raise at once where another group wrote it; items are looked at when they meet."""
        if self.checked:
            self._reads.append(access)
        if self._groups:
            mine = self._foreign(access, first_group, self._written_by, "reads what {} wrote")
            self._mark(self._read_by, access.elements, mine)

    def _foreign(self, access: Access, first_group: int, by: NDArray[np.int32], why: str) -> Ints:
        """The groups of an access. Raise where another group is noted for one of its elements."""
        mine = access.rows // self._items + first_group
        others = by[access.elements]
        foreign = (others != _NOBODY) & (others != mine)
        if foreign.any():
            at = int(foreign.argmax())
            access.fault(f"race: {why.format(_group(others[at]))}", int(access.rows[at]))
        return mine

    def note_write(self, access: Access, first_group: int) -> None:
        """Before the values are stored. Raise at once where another group touched it."""
        if self.checked:
            self._writes.append(access)
        if self._groups:
            mine = self._foreign(access, first_group, self._read_by, "writes what {} read")
            by = self._written_by[access.elements]
            values = access.values
            assert values is not None  # a write has them
            again = (by != _NOBODY) & (by != mine)
            again &= _differ(self.data[access.elements], values)
            if again.any():
                at = int(again.argmax())
                why = f"race: writes another value than {_group(by[at])} did"
                access.fault(f"{why} since the last barrier", int(access.rows[at]))
            self._mark(self._written_by, access.elements, mine)
            self._same_store(access, mine)

    def _same_store(self, access: Access, mine: NDArray[Any]) -> None:
        """Two groups may store one element at once, of one value."""
        assert access.values is not None
        shared = self._written_by[access.elements] == _MANY
        if not shared.any():
            return
        elements, values = access.elements[shared], access.values[shared]
        order = np.argsort(elements, kind="stable")
        elements, values, groups = elements[order], values[order], mine[shared][order]
        clash = (elements[1:] == elements[:-1]) & _differ(values[1:], values[:-1])
        if clash.any():
            at = int(clash.argmax())
            row = int(access.rows[shared][order][at + 1])
            why = f"race: writes another value than {_group(groups[at])} did"
            access.fault(f"{why} since the last barrier", row)

    @staticmethod
    def _mark(by: NDArray[np.int32], elements: Ints, mine: Ints) -> None:
        old = by[elements]
        new = np.where((old != _NOBODY) & (old != mine), _MANY, mine).astype(np.int32)
        by[elements] = new
        lost = by[elements] != new
        by[elements[lost]] = _MANY

    def settle(self) -> Race | None:
        """A race of items since the last barrier, or None; what was touched is forgotten."""
        reads, writes = self._reads, self._writes
        if not writes:
            self._reads = []
            return None
        self._reads, self._writes = [], []
        return _between_writes(writes) or (_of_reads(reads, writes, len(self.data)))


def _group(number: int) -> str:
    return f"work-group {number}" if number >= 0 else "several others"


def _differ(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool_]:
    """Mask of the elements whose bits differ between two arrays of one dtype."""
    kind = np.dtype(f"u{a.dtype.itemsize}")
    x, y = np.ascontiguousarray(a).view(kind), np.ascontiguousarray(b).view(kind)
    different: NDArray[np.bool_] = x != y
    return different


def _between_writes(writes: list[Access]) -> Race | None:
    """Two items that wrote another value each to one element."""
    elements = np.concatenate([w.elements for w in writes])
    rows = np.concatenate([w.rows for w in writes])
    values = np.concatenate([w.values for w in writes if w.values is not None])
    order = np.argsort(elements, kind="stable")
    e, r, v = elements[order], rows[order], values[order]
    clash = (e[1:] == e[:-1]) & (r[1:] != r[:-1]) & _differ(v[1:], v[:-1])
    if not clash.any():
        return None
    at = int(clash.argmax())
    access = _access(writes, int(order[at + 1]))
    return f"writes another value than work-item {{{r[at]}}} did", access, int(r[at + 1])


def _of_reads(reads: list[Access], writes: list[Access], size: int) -> Race | None:
    """An item that read what another one wrote, before or after."""
    if not reads:
        return None
    owner, crowd = np.full(size, _NOBODY, np.int64), np.zeros(size, np.bool_)
    for w in writes:
        before = owner[w.elements]
        owner[w.elements] = w.rows
        others = ((before != _NOBODY) & (before != w.rows)) | (owner[w.elements] != w.rows)
        crowd[w.elements[others]] = True
    for access in reads:
        by = owner[access.elements]
        asked = (by != _NOBODY) & ((by != access.rows) | crowd[access.elements])
        for at in np.flatnonzero(asked).tolist():
            element, row = int(access.elements[at]), int(access.rows[at])
            if not _wrote(writes, element, row, access.when):
                return f"reads what work-item {{{by[at]}}} wrote", access, row
    return None


def _wrote(writes: list[Access], element: int, row: int, before: int) -> bool:
    """True if a row had written an element before a time."""
    return any(
        w.when < before and ((w.elements == element) & (w.rows == row)).any() for w in writes
    )


def _access(found: list[Access], number: int) -> Access:
    """The access that holds element ``number`` of all of them one after the other."""
    for access in found:
        if number < len(access.elements):
            return access
        number -= len(access.elements)
    raise IndexError(number)


# ---- the machine


Array = NDArray[Any]
Step = Callable[[], None]
_ARRAYS = 2
"""Lanes of an operation, as far as that function asks: it gets arrays and no numbers."""


def table(x: Any, lanes: int) -> Array:
    """A number or an array as one of rows and lanes."""
    made = np.asarray(x)
    if made.ndim < 2:
        made = made.reshape(1, -1)
    return np.broadcast_to(made, (made.shape[0], max(lanes, made.shape[1])))


Mask = NDArray[np.bool_]

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


class GroupMachine:
    """A program compiled to closures over the memory of some of its groups, and their active items.
    Mutable.
    """

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
        self.steps = self._block(program.body)

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

    @property
    def outputs(self) -> dict[str, Mask]:
        """Masks of the elements that were written, for each writable parameter."""
        made = {}
        for b in self.program.params:
            written = self.memory[b.name].written
            if written is not None:
                made[b.name] = written
        return made

    def run(self) -> int:
        """Run all groups; the number of instructions executed by all items together."""
        for first in range(0, self.groups, self.together):
            self.first = first
            left = min(self.together, self.groups - first) * self.items
            self.active = None if left == self.rows else self.actor < left
            self.env = self.names.env([])
            self.batches[:] = 0
            self._run(self.steps)
            if self.copies:
                c = self.copies[0]
                self.fault(c.instr, "is still in flight where the program ends", int(c.rows[0]))
            self._meet()
            for a in self.program.allocs:
                if a.space != "team":
                    self.memory[a.name].forget()
        return self.count

    def _run(self, steps: tuple[Step, ...]) -> None:
        self.count += len(steps) * self._number()
        for step in steps:
            step()

    # the active items

    def _number(self) -> int:
        return self.rows if self.active is None else int(self.active.sum())

    def _within(self, mask: Mask, steps: tuple[Step, ...]) -> None:
        """Run a block for the rows of ``mask``, if there are any."""
        before = self.active
        inside = mask if before is None else mask & before
        if inside.shape[0] == 1 and self.rows > 1:
            inside = np.broadcast_to(inside, (self.rows, 1))
        if not inside.any():
            return
        self.active = None if inside.all() else inside
        self._run(steps)
        self.active = before

    def _together_here(self, what: str) -> None:
        """Raise unless whole groups are here."""
        if self.active is None:
            return
        here = self.active.reshape(self.together, self.items)
        parted = here.any(axis=1) & ~here.all(axis=1)
        if parted.any():
            group = int(parted.argmax())
            came, went = int(here[group].argmax()), int((~here[group]).argmax())
            raise VerifyError(
                f"program {self.program.name}: {what}: work-item {came} waits, work-item {went} "
                f"ends without it"
            )

    # blocks

    def _block(self, body: tuple[Instr, ...]) -> tuple[Step, ...]:
        return tuple(self._step(i) for i in body)

    def _step(self, i: Instr) -> Step:
        self._defined(i)
        match i:
            case p.For():
                return self._for(i)
            case p.If(valid, body, orelse):
                test = self.names.valid(valid, rows=True)
                yes, no = self._block(body), self._block(orelse)
                return partial(self._if, test, yes, no)
            case p.Barrier():
                number, self.barriers = self.barriers, self.barriers + 1
                return partial(self._barrier, number)
            case p.Load():
                self.types[i.id] = i.vtype
                return self._load(i)
            case p.Store():
                return self._store(i)
            case p.CopyAsync():
                return self._copy_async(i)
            case p.Commit():
                return self._commit
            case p.Await(left):
                return partial(self._await, left)
            case p.Register(name):
                return partial(self._declare, name)
            case p.Write(name, value):
                return partial(self._write, name, value)
            case p.MatMul() | p.MatLoad():
                self.types |= dict.fromkeys(i.ids, i.vtype)
                return self._multiply(i) if isinstance(i, p.MatMul) else self._load_matrices(i)
            case p.Pipeline():
                raise VerifyError(f"program {self.program.name}: a pipeline that is not expanded")
        if isinstance(i, p.TileInstr):
            raise VerifyError(f"program {self.program.name}: work-items have no tile registers")
        made = self._value(i)
        self.types[i.id] = VType(BOOL, i.lanes) if isinstance(i, p.Test) else i.vtype
        return made

    def _defined(self, i: Instr) -> None:
        """Raise unless every value that it uses was defined before it."""
        for value in p.used(i):
            if value not in self.types:
                raise VerifyError(
                    f"program {self.program.name}: `{self.describe(i)}`: %{value} is not defined "
                    "before it"
                )

    def _for(self, i: p.For) -> Step:
        slot, stops = self.names.slot(i.var), [self.names.index(s) for s in i.stops]
        steps, serial = self._block(i.body), i.kind == "serial"
        of = self.actor % self.items if i.kind == "local" else self.actor // self.items

        def loop() -> None:
            env = self.env
            stop: Any = stops[0](env)
            for more in stops[1:]:
                stop = np.minimum(stop, more(env))
            self._check_stop(i, stop)
            if serial:
                self._over(slot, steps, 0, stop)
                return
            part = of if i.kind == "local" else of + self.first
            mine = part // i.inner % i.count
            if i.count >= i.extent:
                env[slot] = mine
                self._within(mine < stop, steps)
                env[slot] = None
                return
            self._over(slot, steps, stop * mine // i.count, stop * (mine + 1) // i.count)

        return loop

    def _over(self, slot: int, steps: tuple[Step, ...], start: Any, stop: Any) -> None:
        """Iterations from ``start`` to ``stop``, numbers or columns of them."""
        env = self.env
        if not isinstance(start, np.ndarray) and not isinstance(stop, np.ndarray):
            for n in range(int(start), int(stop)):
                env[slot] = n
                self._run(steps)
        else:
            trips = np.broadcast_to(stop - start, (self.rows, 1))
            most = int(trips.max() if self.active is None else trips[self.active].max(initial=0))
            for t in range(most):
                env[slot] = start + t
                self._within(trips > t, steps)
        env[slot] = None

    def _check_stop(self, i: p.For, stop: Any) -> None:
        past = np.asarray(stop).reshape(-1, 1) > i.extent
        if self._decided(past) is not False:
            row = self._first_of(past)
            n = int(np.broadcast_to(np.asarray(stop).reshape(-1, 1), (self.rows, 1))[row, 0])
            self.fault(i, f"runs to {n}, past its extent {i.extent}", row)

    def _if(self, test: Number, yes: tuple[Step, ...], no: tuple[Step, ...]) -> None:
        holds = test(self.env)
        decided = self._decided(holds)
        if decided is not None:
            self._run(yes if decided else no)
            return
        self._within(holds, yes)
        self._within(~holds, no)

    # barriers

    def _barrier(self, number: int) -> None:
        self._together_here(f"barrier {number}")
        self._meet()

    def _meet(self) -> None:
        for m in self.memory.values():
            if m.checked and (race := m.settle()) is not None:
                why, access, row = race
                why = why.format(*range(self.rows)) if "{" in why else why
                access.fault(f"race: {why} since the last barrier ({m.name})", row)

    # values

    def _value(self, i: Instr) -> Step:
        match i:
            case p.Number(new, value, t):
                fixed = np.full((1, t.lanes), constant(value, t.dtype), t.dtype.numpy)
                return partial(self.values.__setitem__, new, fixed)
            case p.Compute(new, op, args, t):
                return self._applied(new, args, operation(op, t.dtype, _ARRAYS))
            case p.Convert(new, arg, t):
                convert = converter(self.types[arg].dtype, t.dtype)
                return self._applied(new, (arg,), lambda x: np.asarray(convert(x)))
            case p.Splat(new, arg, t):
                return self._applied(
                    new, (arg,), lambda x: np.broadcast_to(x, (x.shape[0], t.lanes))
                )
            case p.Fold(new, op, arg, _):
                return self._applied(new, (arg,), folder(op, rows=True))
            case p.Select(new, mask, yes, no, _):
                return self._applied(new, (mask, yes, no), np.where)
            case p.Position(_, index, t, lane):
                return partial(self._position, i, self.names.index(index, lane, t.lanes))
            case p.Test(_, valid, lanes, lane):
                return partial(self._test, i, self.names.valid(valid, lane, lanes, rows=True))
            case p.Read():
                return partial(self._read, i)
            case p.Shuffle():
                return partial(self._shuffle, i)
            case _:
                what = self.describe(i)
                raise VerifyError(f"program {self.program.name}: `{what}`: not an instruction")

    def _applied(self, new: int, args: tuple[int, ...], f: Callable[..., Array]) -> Step:
        values = self.values
        if len(args) == 2:  # most of them
            a, b = args

            def two() -> None:
                values[new] = f(values[a], values[b])

            return two

        def step() -> None:
            values[new] = f(*[values[x] for x in args])

        return step

    def _test(self, i: p.Test, holds: Number) -> None:
        self.values[i.id] = table(holds(self.env), i.lanes).astype(np.bool_, copy=False)

    def _position(self, i: p.Position, at: Number) -> None:
        x, kind = table(at(self.env), i.vtype.lanes), i.vtype.dtype.numpy
        if kind.kind == "i":
            bits = 8 * kind.itemsize - 1
            if self._decided((x < -(1 << bits)) | (x >> bits > 0)) is not False:
                raise OverflowError(f"position {i.index} does not fit {i.vtype.dtype}")
        self.values[i.id] = x.astype(kind)

    def _declare(self, name: str) -> None:
        self.registers.pop(name, None)
        self.known.pop(name, None)

    def _read(self, i: p.Read) -> None:
        name = i.name
        x = self.registers.get(name)
        known = self.known.get(name)
        if x is None or (known is not None and self._decided(known) is not True):
            row = self._first_of(np.array([[True]]) if known is None else ~known)
            self.fault(i, "reads a register that was never written", row)
        self.values[i.id] = x

    def _write(self, name: str, value: int) -> None:
        new, old = self.values[value], self.registers.get(name)
        if self.active is None:
            self.registers[name] = new
            self.known[name] = None
            return
        self.registers[name] = new if old is None else np.where(self.active, new, old)
        if old is None:
            self.known[name] = self.active
        elif (known := self.known[name]) is not None:
            self.known[name] = known | self.active

    # what a warp does together

    def _per_row(self, value: int) -> Array:
        """A value with a row for each item."""
        x = self.values[value]
        return np.broadcast_to(x, (self.rows, x.shape[1]))

    def _shuffle(self, i: p.Shuffle) -> None:
        self._together_here("shuffle")
        self.values[i.id] = self._per_row(i.arg)[self.actor[:, 0] ^ i.across]

    def _multiply(self, i: p.MatMul) -> Step:
        def run() -> None:
            self._together_here("matmul")
            held = [np.stack([self._per_row(x) for x in side], axis=1) for side in (i.a, i.b, i.c)]
            made = multiply(i.unit, held[0], held[1], held[2][:, :, 0])
            for k, new in enumerate(i.ids):
                self.values[new] = made[:, k : k + 1]

        return run

    def _load_matrices(self, i: p.MatLoad) -> Step:
        memory, at = self.memory[i.buffer], self.names.index(i.offset)

        def run() -> None:
            self._together_here("matrices")
            offset = np.broadcast_to(table(at(self.env), 1), (self.rows, 1))
            elements = load_matrices(offset[:, 0], len(i.ids), i.vtype, i.transposed)
            for k, new in enumerate(i.ids):
                key = self._key(i, memory, elements[:, k], None)
                self._touch(i, memory, key, None)
                self.values[new] = memory.data[key]

        return run
