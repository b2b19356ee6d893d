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
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunegrad.errors import VerifyError

from .. import program as p
from ..dtypes import BOOL
from ..program import Instr, Program, VType
from .groups_access import GroupAccesses
from .groups_values import table, value_step
from .index import Env, Number
from .matrices import load_matrices, multiply

__all__ = ["GroupMachine"]

Array = NDArray[Any]
Mask = NDArray[np.bool_]
Step = Callable[[], None]

_USES = ("arg", "args", "value", "mask", "yes", "no", "a", "b", "c")
"""Fields of instructions that name values."""


class GroupMachine(GroupAccesses):
    """A program compiled to closures over the memory of some of its groups. Mutable."""

    def __init__(
        self,
        program: Program,
        params: Mapping[str, tuple[Array, bool]],
        describe: Callable[[Instr], str],
    ) -> None:
        super().__init__(program, params, describe)
        self.steps = self._block(program.body)

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
                test, yes, no = self._valid(valid), self._block(body), self._block(orelse)
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
        for name in _USES:
            used = getattr(i, name, None)
            if used is None or (name == "value" and not isinstance(i, p.Store | p.Write)):
                continue
            for value in used if isinstance(used, tuple) else (used,):
                if value not in self.types:
                    raise VerifyError(
                        f"program {self.program.name}: `{self.describe(i)}`: %{value} is not "
                        "defined before it"
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

    def _valid(self, valid: Any, lane: str = "", lanes: int = 1) -> Number:
        """A condition as a function of env: a bool, or an array."""
        if valid.never:
            return lambda _: False
        ranges = [(self.names.index(r.index, lane, lanes), r.lo, r.hi) for r in valid]

        def holds(env: Env) -> Any:
            found: Any = True
            for at, lo, hi in ranges:
                x = at(env)
                found = found & (x >= lo) & (x < hi)
            return found

        return holds

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
            case p.Position(_, index, t, lane):
                return partial(self._position, i, self.names.index(index, lane, t.lanes))
            case p.Test(_, valid, lanes, lane):
                return partial(self._test, i, self._valid(valid, lane, lanes))
            case p.Read():
                return partial(self._read, i)
            case p.Shuffle():
                return partial(self._shuffle, i)
        made = value_step(i, self.values, self.types)
        if made is None:
            what = self.describe(i)
            raise VerifyError(f"program {self.program.name}: `{what}`: not an instruction")
        return made

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
