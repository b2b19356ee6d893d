"""Runs a program exactly: the oracle of every schedule and renderer.

Work-groups run all at once (``groups``), a team of CPU threads one thread at a time:

    compile  every instruction becomes one closure over (values, env); offsets become closures over
             env
    run      each thread is a generator that yields at barriers; between two barriers they run in
             turn, so a race shows in the trackers and not in the result

What a compiled candidate could do silently is an error here: an access out of bounds, a read of
memory or a register that was never written, a loop longer than its extent, a race between threads,
work-items or groups, a barrier that not all of them reach.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Never

import numpy as np
from numpy.typing import NDArray

from tests.interpreter.groups import GroupMachine
from tests.interpreter.memory import (
    Env,
    IndexCompiler,
    Memory,
    Number,
    Step,
    Tracker,
    Values,
    load_step,
    store_step,
)
from tests.interpreter.values import constant, converter, folder, multiply_tiles, operation
from tests.verifiers.program import describe
from tunegrad.errors import VerifyError
from tunegrad.ir import program as p
from tunegrad.ir.dtypes import BOOL, DTYPES
from tunegrad.ir.expr import Op
from tunegrad.ir.pipelines import expand_pipelines
from tunegrad.ir.program import Instr, Program, VType, is_grouped

__all__ = ["Execution", "interpret", "pack_buffers", "tile_step"]


# ---- tiles
#
# Tile registers of one thread, as closures: what they hold are arrays (row, column).
#
# A row is read and written as a vector is, so that bounds, first writes and races are checked.


Slot = Callable[[str], int]
Fault = Callable[[str, Env], Never]


def tile_step(
    i: p.TileInstr,
    memory: dict[str, Memory], names: IndexCompiler, slot: Slot, fault: Fault,
) -> Step:  # fmt: skip
    """The closure that runs ``i``; ``slot`` gives the place of a value by its name."""
    match i:
        case p.TileConfig(unit, rows):
            slots = [slot(_name(t)) for t in range(len(rows))]
            config, form = slot("tiles"), (unit.shape[1], DTYPES[unit.dtypes[1]].numpy)

            def configure(v: Values, _: Env) -> None:
                for s in slots:
                    v[s] = None
                v[config] = rows, *form

            return configure
        case p.TileZero(tile):
            to, config = slot(_name(tile)), slot("tiles")

            def zero(v: Values, _: Env) -> None:
                rows, columns, dtype = v[config]
                v[to] = np.zeros((rows[tile], columns), dtype)

            return zero
        case p.TileLoad():
            return _load(i, memory[i.buffer], names, slot, fault)
        case p.TileStore():
            return _store(i, memory[i.buffer], names, slot, fault)
        case p.TileMul(tile, a, b, unit):
            held = [slot(_name(t)) for t in (tile, a, b)]

            def multiply(v: Values, e: Env) -> None:
                c, x, y = (v[s] for s in held)
                if c is None or x is None or y is None:
                    fault("reads a tile register that was never written", e)
                v[held[0]] = multiply_tiles(unit, x, y, c)

            return multiply


def _load(i: p.TileLoad, memory: Memory, names: IndexCompiler, slot: Slot, fault: Fault) -> Step:
    to, row = slot(_name(i.tile)), slot("tile row")
    steps = [load_step(i.line(r), memory, names, row, None, fault) for r in range(i.rows)]

    def load(v: Values, e: Env) -> None:
        lines: list[Any] = []
        for step in steps:
            step(v, e)
            lines.append(v[row])
        v[to] = np.stack(lines)

    return load


def _store(i: p.TileStore, memory: Memory, names: IndexCompiler, slot: Slot, fault: Fault) -> Step:
    source, row = slot(_name(i.tile)), slot("tile row")
    steps = [store_step(i.line(r), memory, names, row, None, fault) for r in range(i.rows)]

    def store(v: Values, e: Env) -> None:
        if v[source] is None:
            fault("reads a tile register that was never written", e)
        for line, step in zip(v[source], steps, strict=True):
            v[row] = line
            step(v, e)

    return store


def _name(tile: int) -> str:
    return f"tile {tile}"


# ---- program


Walk = Callable[[Values, Env], Generator[int, None, None]]

_WHO, _COUNT, _VARS = 0, 1, 2
"""Of env: thread, instructions run, loop variables ..."""


@dataclass(frozen=True, slots=True)
class Execution:
    """The record of a run: instructions executed by all actors together, and the elements of each
    output that were written.
    """

    instructions: int
    written: dict[str, NDArray[np.bool_]]


def pack_buffers(program: Program, buffers: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """``buffers`` and the program's packs, filled from their sources; a pack already there is
    kept.
    """
    full = dict(buffers)
    for pack in program.packs:
        if pack.name not in full:
            full[pack.name] = pack.run(full[pack.source])
    return full


def interpret(program: Program, buffers: Mapping[str, NDArray[Any]]) -> Execution:
    """Run ``program`` on flat arrays by parameter name, writing the outputs in place.

    Missing packs are filled first.

    Raises VerifyError, naming the instruction, the thread and the loop variables, for anything the
    program must not do.
    """
    program = expand_pipelines(program)
    full = pack_buffers(program, buffers)
    with np.errstate(all="ignore"):
        if is_grouped(program):
            return _by_groups(program, full)
        machine = _Machine(program, full)
        count = machine.run()
    written = {m.name: m.written for m in machine.outputs if m.written is not None}
    return Execution(count, written)


def _by_groups(program: Program, buffers: Mapping[str, NDArray[Any]]) -> Execution:
    """Work-groups, all items at once."""
    params = {}
    for b in program.params:
        data = _checked(program, b.name, buffers.get(b.name), b.size, b.dtype.numpy)
        params[b.name] = data, b.role == "out"
    for pack in program.packs:
        if pack.name not in params:
            data = _checked(program, pack.name, buffers[pack.name], pack.size, pack.dtype.numpy)
            params[pack.name] = data, False
    machine = GroupMachine(program, params, describe)
    return Execution(machine.run(), machine.outputs)


class _Machine:
    """A program of a CPU team compiled to closures over its memory."""

    def __init__(self, program: Program, buffers: Mapping[str, NDArray[Any]]) -> None:
        self.program = program
        self.actors = program.threads
        self.values: dict[int | str, int] = {}
        self.types: dict[int, VType] = {}
        self.memory: dict[str, Memory] = {}
        self.names = IndexCompiler(_VARS, self.memory)
        self.outputs: list[Memory] = []
        self.trackers: list[Tracker] = []
        self._parameters(buffers)
        self._allocations()
        self.barriers = 0
        self.body = self._walk_block(program.body) if _waits(program.body) else None
        self.steps = () if self.body else self._block(program.body)

    # memory

    def _parameters(self, buffers: Mapping[str, NDArray[Any]]) -> None:
        for b in self.program.params:
            data = _checked(self.program, b.name, buffers.get(b.name), b.size, b.dtype.numpy)
            m = self.memory[b.name] = Memory(b.name, data, b.role == "out")
            if m.writable:
                self.outputs.append(m)
                m.trackers = self._track(b.size)
        for pack in self.program.packs:
            if pack.name not in self.memory:
                data = _checked(
                    self.program, pack.name, buffers[pack.name], pack.size, pack.dtype.numpy
                )
                self.memory[pack.name] = Memory(pack.name, data, False)

    def _allocations(self) -> None:
        for a in self.program.allocs:
            private = a.space == "thread"
            data = np.zeros(a.size * (self.actors if private else 1), a.dtype.numpy)
            m = self.memory[a.name] = Memory(a.name, data, True, self.actors if private else 0)
            if not private:
                m.trackers = self._track(a.size)

    def _track(self, size: int) -> tuple[Tracker, ...]:
        """A tracker of memory that several threads see."""
        if self.actors < 2:
            return ()
        self.trackers.append(Tracker(size, self.actors, _WHO, "thread"))
        return (self.trackers[-1],)

    # running

    def run(self) -> int:
        """Run all actors; return the number of instructions executed."""
        team = [(self._values(), self.names.env([actor, 0])) for actor in range(self.actors)]
        if self.body is None:
            for values, env in team:
                for step in self.steps:
                    step(values, env)
                env[_COUNT] += len(self.steps)
        else:
            self._meet([self.body(values, env) for values, env in team])
        return sum(env[_COUNT] for _, env in team)

    def _meet(self, walks: list[Generator[int, None, None]]) -> None:
        while True:
            at = [next(w, -1) for w in walks]
            if any(a != at[0] for a in at):
                here = next(i for i, a in enumerate(at) if a >= 0)
                there = next(i for i, a in enumerate(at) if a != at[here])
                ends = "ends without it" if at[there] < 0 else f"waits at barrier {at[there]}"
                raise VerifyError(
                    f"program {self.program.name}: barrier {at[here]}: thread {here} waits, "
                    f"thread {there} {ends}"
                )
            if at[0] < 0:
                return
            self._advance()

    def _advance(self) -> None:
        for t in self.trackers:
            t.advance()

    def _values(self) -> Values:
        return [None] * len(self.values)

    def fault(self, instr: Instr, why: str, env: Env) -> Never:
        at = " ".join(
            f"{n}={env[s]}" for n, s in self.names.slots.items() if isinstance(env[s], int)
        )
        raise VerifyError(
            f"program {self.program.name}: `{describe(instr)}`: {why}; "
            f"thread {env[_WHO]}{', ' if at else ''}{at}"
        )

    # compiling: values

    def value(self, key: int | str) -> int:
        return self.values.setdefault(key, len(self.values))

    def type_of(self, i: Instr, key: int) -> VType:
        if key not in self.types:
            raise VerifyError(
                f"program {self.program.name}: `{describe(i)}`: %{key} is not defined before it"
            )
        return self.types[key]

    # compiling: blocks

    def _block(self, body: tuple[Instr, ...]) -> tuple[Step, ...]:
        return tuple(self._step(i) for i in body)

    def _walk_block(self, body: tuple[Instr, ...]) -> Walk:
        """A block with barriers in it, as a generator."""
        parts = [(None, self._walk(i)) if _waits((i,)) else (self._step(i), None) for i in body]

        def walk(v: Values, e: Env) -> Generator[int, None, None]:
            e[_COUNT] += len(parts)
            for step, inner in parts:
                if step is not None:
                    step(v, e)
                elif inner is not None:
                    yield from inner(v, e)

        return walk

    def _walk(self, i: Instr) -> Walk:
        if isinstance(i, p.Barrier):
            number = self.barriers
            self.barriers += 1

            def wait(_v: Values, _e: Env) -> Generator[int, None, None]:
                yield number

            return wait
        if isinstance(i, p.If):
            test, yes, no = (
                self.names.valid(i.valid),
                self._walk_block(i.body),
                self._walk_block(i.orelse),
            )
            return lambda v, e: yes(v, e) if test(e) else no(v, e)
        assert isinstance(i, p.For)  # nothing else holds a block
        trips, slot, block = self._trips(i), self.names.slot(i.var), self._walk_block(i.body)

        def loop(v: Values, e: Env) -> Generator[int, None, None]:
            for n in trips(e):
                e[slot] = n
                yield from block(v, e)
            e[slot] = None

        return loop

    def _trips(self, i: p.For) -> Callable[[Env], range]:
        """The iterations of a loop that one thread runs."""
        stop = self._stop(i)
        if i.kind == "serial":
            return lambda e: range(stop(e))
        count, inner = i.count, i.inner

        def share(e: Env) -> range:
            n, t = stop(e), e[_WHO] // inner % count
            return range(n * t // count, n * (t + 1) // count)

        return share

    def _stop(self, i: p.For) -> Number:
        stops, extent = [self.names.index(s) for s in i.stops], i.extent

        def stop(e: Env) -> int:
            n: int = min(s(e) for s in stops)
            if n > extent:
                self.fault(i, f"runs to {n}, past its extent {extent}", e)
            return max(0, n)

        return stop

    def _for(self, i: p.For) -> Step:
        trips, slot, steps = self._trips(i), self.names.slot(i.var), self._block(i.body)
        length = len(steps)

        def loop(v: Values, e: Env) -> None:
            r = trips(e)
            e[_COUNT] += length * len(r)
            for n in r:
                e[slot] = n
                for step in steps:
                    step(v, e)
            e[slot] = None

        return loop

    def _if(self, i: p.If) -> Step:
        test, yes, no = self.names.valid(i.valid), self._block(i.body), self._block(i.orelse)

        def branch(v: Values, e: Env) -> None:
            steps = yes if test(e) else no
            e[_COUNT] += len(steps)
            for step in steps:
                step(v, e)

        return branch

    # compiling: instructions

    def _step(self, i: Instr) -> Step:
        step = self._make(i)
        if isinstance(i, p.Test):
            self.types[i.id] = VType(BOOL, i.lanes)
        elif isinstance(i, p.Valued):
            self.types[i.id] = i.vtype
        return step

    def _make(self, i: Instr) -> Step:
        match i:
            case p.For():
                return self._for(i)
            case p.If():
                return self._if(i)
            case p.Load(id, buffer, _, _, _, mask):
                m = None if mask is None else self.value(mask)
                return load_step(
                    i, self.memory[buffer], self.names, self.value(id), m, partial(self.fault, i)
                )
            case p.Store(buffer, _, value, _, _, mask):
                m = None if mask is None else self.value(mask)
                return store_step(
                    i, self.memory[buffer], self.names, self.value(value), m, partial(self.fault, i)
                )
            case p.Compute(id, op, args, t):
                return _apply(
                    self.value(id), [self.value(a) for a in args], operation(op, t.dtype, t.lanes)
                )
            case p.Convert(id, arg, t):
                return _apply(
                    self.value(id),
                    [self.value(arg)],
                    converter(self.type_of(i, arg).dtype, t.dtype),
                )
            case p.Fold(id, op, arg, _):
                return _apply(self.value(id), [self.value(arg)], folder(op))
            case p.Splat(id, arg, t):
                n = t.lanes
                return _apply(
                    self.value(id), [self.value(arg)], lambda x: x if n == 1 else np.full(n, x)
                )
            case p.Select(id, mask, yes, no, t):
                return _apply(
                    self.value(id),
                    [self.value(a) for a in (mask, yes, no)],
                    operation(Op.WHERE, t.dtype, t.lanes),
                )
            case p.Number(id, value, t):
                return _constant(self.value(id), constant(value, t.dtype), t.lanes)
            case p.Position(id, index, t, lane):
                at = self.names.index(index, lane, t.lanes)
                return _position(self.value(id), at, t.dtype.numpy, t.lanes)
            case p.Test(id, valid, lanes, lane):
                return _position(
                    self.value(id), self.names.valid(valid, lane, lanes), BOOL.numpy, lanes
                )
            case p.Register(name):
                return _clear(self.value(f"register {name}"))
            case p.Read(id, name):
                return self._read(i, self.value(id), self.value(f"register {name}"))
            case p.Write(name, value):
                return _apply(self.value(f"register {name}"), [self.value(value)], lambda x: x)
            case _ if isinstance(i, p.TileInstr):
                return tile_step(i, self.memory, self.names, self.value, partial(self.fault, i))
            case _:
                raise VerifyError(
                    f"program {self.program.name}: `{describe(i)}`: not an instruction"
                )

    def _read(self, i: Instr, d: int, register: int) -> Step:
        def step(v: Values, e: Env) -> None:
            x = v[register]
            if x is None:
                self.fault(i, "reads a register that was never written", e)
            v[d] = x

        return step


def _apply(d: int, args: Sequence[int], f: Callable[..., Any]) -> Step:
    """v[d] = f(v[args])"""
    if len(args) == 1:
        (a,) = args

        def one(v: Values, _: Env) -> None:
            v[d] = f(v[a])

        return one
    if len(args) == 2:
        a, b = args

        def two(v: Values, _: Env) -> None:
            v[d] = f(v[a], v[b])

        return two
    if len(args) == 3:
        a, b, c = args

        def three(v: Values, _: Env) -> None:
            v[d] = f(v[a], v[b], v[c])

        return three

    def more(v: Values, _: Env) -> None:
        v[d] = f(*[v[x] for x in args])

    return more


def _constant(d: int, value: Any, lanes: int) -> Step:
    fixed = value if lanes == 1 else np.full(lanes, value)

    def step(v: Values, _: Env) -> None:
        v[d] = fixed

    return step


def _clear(d: int) -> Step:
    def step(v: Values, _: Env) -> None:
        v[d] = None

    return step


def _position(d: int, at: Number, kind: np.dtype[Any], lanes: int) -> Step:
    """v[d] = at(env) as ``kind``; an OverflowError says that an integer kind is too narrow."""
    scalar = kind.type

    def one(v: Values, e: Env) -> None:
        v[d] = scalar(at(e))

    def many(v: Values, e: Env) -> None:
        v[d] = np.full(lanes, at(e), kind)

    return one if lanes == 1 else many


def _waits(body: tuple[Instr, ...]) -> bool:
    return any(isinstance(i, p.Barrier) for i in p.walk(body))


def _checked(
    program: Program, name: str, data: Any, size: int, kind: np.dtype[Any]
) -> NDArray[Any]:
    """The caller's array for ``name``, or a VerifyError that says how it does not fit."""
    if data is None:
        raise VerifyError(f"program {program.name}: no buffer {name!r} was given")
    if data.shape != (size,) or data.dtype != kind:
        raise VerifyError(
            f"program {program.name}: buffer {name!r} is {data.dtype}{list(data.shape)}, not "
            f"flat {kind}[{size}]"
        )
    return data  # type: ignore[no-any-return]  # what numpy calls an array
