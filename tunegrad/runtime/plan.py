"""A schedule bound to memory and code: arrays in, arrays out, one native call a run.

    temps      one arena, at the planner's offsets                 constants   ``Constants``, packs filled at load
    inputs     the caller's memory where it is fit, else a copy    outputs     fresh memory for every run
    tables     all launches' buffer addresses in one array; a run rewrites those of inputs and outputs

The device comes in as an ``Engine``: it gives memory and runs a list of launches; nothing else is known of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tunegrad.errors import InternalError
from tunegrad.ir.fusion import Buffer, Launch, Schedule
from tunegrad.ir.program import Pack

from .constants import Constants
from .memory import ALIGN, Lifetime, plan_memory

__all__ = ["BoundPlan", "Code", "Engine", "Entry", "Runner", "lifetimes"]

Array = NDArray[Any]

_POISON = 0xFF


@dataclass(frozen=True, slots=True)
class Code:
    """A compiled kernel. ``params`` name its buffer table, packs included; ``owner`` keeps ``address`` valid."""

    address: int
    params: tuple[str, ...]
    packs: tuple[Pack, ...] = ()
    workspace_bytes: int = 0
    threads: int = 1
    owner: object = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One launch for the engine: addresses of the kernel, of its buffer table and of its workspace."""

    address: int
    table: int
    workspace: int
    threads: int


class BoundPlan(Protocol):
    """Launches that an engine can run again and again."""

    def run(self) -> None:
        """Run all, in order, and wait."""

    def time(self, samples: int, each: bool = False) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """(seconds of each of ``samples`` runs, mean seconds of each launch or () without ``each``)."""


class Engine(Protocol):
    """What a plan needs of a device."""

    def allocate(self, nbytes: int) -> NDArray[np.uint8]:
        """Zeroed bytes, aligned to a page or better; freed with the last array that views them."""

    def bind(self, entries: Sequence[Entry]) -> BoundPlan:
        """The launches as the device wants them. Memory and code stay the caller's to keep alive."""


def lifetimes(schedule: Schedule) -> dict[int, Lifetime]:
    """When each temporary buffer that takes memory is alive, by buffer id."""
    touched: dict[int, list[int]] = {}
    for step, launch in enumerate(schedule.launches):
        for i in launch.args:
            touched.setdefault(i, []).append(step)
    return {
        b.id: Lifetime(b.nbytes, touched[b.id][0], touched[b.id][-1])
        for b in schedule.buffers
        if b.role == "temp" and b.nbytes and b.id in touched
    }


class Runner:
    """Runs a schedule. Calls from several threads wait for each other. ``codes`` are by kernel key."""

    def __init__(
        self, schedule: Schedule, codes: Mapping[str, Code], engine: Engine, constants: Constants | None = None
    ) -> None:
        self.schedule = schedule
        self._engine = engine
        self._codes = tuple(codes[launch.kernel.key] for launch in schedule.launches)
        self._constants = constants or Constants(engine.allocate)
        self._lock = threading.Lock()
        self._inputs = tuple(schedule.buffers[i] for i in schedule.inputs)
        self._outputs = tuple(schedule.buffers[i] for i in schedule.outputs)
        for b in (*self._inputs, *self._outputs):
            if not b.layout.is_row_major:
                raise InternalError(f"plan: {b}: inputs and outputs are row-major")
        self._own: dict[int, NDArray[np.uint8]] = {}
        self._holds: object = None  # names the timer whose inputs are in the plan's own memory
        self._places: dict[int, list[int]] = {}
        self._bind()

    @property
    def arena_bytes(self) -> int:
        """Bytes that all temporary buffers take together."""
        return int(self._arena.nbytes)

    @property
    def memory_bytes(self) -> int:
        """Bytes of temporary buffers, scratch, constants, packs, and copies of inputs and outputs."""
        own = sum(memory.nbytes for memory in self._own.values())
        return self.arena_bytes + int(self._workspace.nbytes) + self._constants.nbytes + own

    def run(self, arrays: Mapping[str, Array]) -> tuple[Array, ...]:
        """The outputs, in memory that nobody else has. ``arrays``: the inputs by name, of the right shape and dtype."""
        fresh = {b.id: _aligned(b) for b in self._outputs}
        with self._lock:
            held = [self._input(b, arrays[b.name]) for b in self._inputs]
            for b, array in zip(self._inputs, held, strict=True):
                self._point(b.id, array)
            for i, array in fresh.items():
                self._point(i, array)
            if self._codes:
                self._plan.run()
        return tuple(fresh[b.id] if i == self._first(b) else fresh[b.id].copy() for i, b in enumerate(self._outputs))

    def run_poisoned(self, arrays: Mapping[str, Array]) -> tuple[Array, ...]:
        """The outputs of a run before which every byte of temporary and output memory was 0xFF: NaN, or -1.

        What a kernel does not write, or reads before it is written, shows; ``run`` may find what the last run left.
        """
        with self._lock:
            self._point_at_own(arrays)
            for memory in (self._arena, self._workspace, *(self._own[b.id] for b in self._outputs)):
                memory.fill(_POISON)
            if self._codes:
                self._plan.run()
            return tuple(self._memory(b).copy() for b in self._outputs)

    def time(
        self, arrays: Mapping[str, Array], samples: int, each: bool = False
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """(seconds of each run, mean seconds of each launch or ()), in the plan's own memory, timed natively."""
        if not self._codes:
            return (0.0,) * samples, ()
        with self._lock:
            self._point_at_own(arrays)
            return self._plan.time(samples, each)

    def timer(self, arrays: Mapping[str, Array]) -> Callable[[int], tuple[float, ...]]:
        """Seconds of each of so many runs on these inputs, as ``time``, for many turns.

        The inputs are copied when the plan's own memory holds others, not for each turn; an untimed run follows a copy.
        """

        mine = object()  # not the function itself: the plan must not keep what keeps the plan

        def seconds(samples: int) -> tuple[float, ...]:
            if not self._codes:
                return (0.0,) * samples
            with self._lock:
                if self._holds is mine:
                    self._point_at_own(None)
                else:
                    self._point_at_own(arrays)
                    self._plan.time(1)
                    self._holds = mine
                return self._plan.time(samples)[0]

        return seconds

    def _first(self, b: Buffer) -> int:
        return next(i for i, x in enumerate(self._outputs) if x is b)

    # ---- binding

    def _bind(self) -> None:
        alive = lifetimes(self.schedule)
        arena = plan_memory(tuple(alive.values()))
        self._arena = self._engine.allocate(arena.nbytes)
        self._workspace = self._engine.allocate(max((c.workspace_bytes for c in self._codes), default=0))
        base = int(self._arena.ctypes.data)
        temps = {i: base + offset for i, offset in zip(alive, arena.offsets, strict=True)}
        self._kept: list[Array] = []
        words: list[int] = []
        starts: list[int] = []
        raw = self._read_raw()
        for launch, code in zip(self.schedule.launches, self._codes, strict=True):
            starts.append(len(words))
            words.extend(self._addresses(launch, code, temps, raw, len(words)))
        self._table = np.array(words or [0], np.uint64)
        table, workspace = int(self._table.ctypes.data), int(self._workspace.ctypes.data)
        self._plan = self._engine.bind(
            [Entry(c.address, table + 8 * s, workspace, c.threads) for c, s in zip(self._codes, starts, strict=True)]
        )

    def _addresses(
        self, launch: Launch, code: Code, temps: Mapping[int, int], raw: frozenset[int], start: int
    ) -> list[int]:
        """The buffer table of a launch; those of inputs and outputs are noted and filled in by each run."""
        args = {p.name: self.schedule.buffers[i] for p, i in zip(launch.kernel.params, launch.args, strict=True)}
        packs = {pack.name: pack for pack in code.packs}
        words = []
        for name in code.params:
            if name in packs:
                words.append(self._keep(self._constants.packed(args[packs[name].source], packs[name])))
                continue
            b = args[name]
            if b.role == "const":
                words.append(self._keep(self._constants.flat(b, in_place=b.id not in raw)))
            elif b.role == "temp":
                words.append(temps[b.id])
            else:
                self._places.setdefault(b.id, []).append(start + len(words))
                words.append(0)
        return words

    def _read_raw(self) -> frozenset[int]:
        """Constants that some kernel reads without packing them."""
        found: set[int] = set()
        for launch, code in zip(self.schedule.launches, self._codes, strict=True):
            sources = {pack.source for pack in code.packs}
            found.update(i for p, i in zip(launch.kernel.params, launch.args, strict=True) if p.name not in sources)
        return frozenset(found)

    def _keep(self, array: Array) -> int:
        self._kept.append(array)
        return int(array.ctypes.data)

    # ---- memory of a run

    def _point(self, buffer: int, array: Array) -> None:
        for place in self._places.get(buffer, ()):
            self._table[place] = array.ctypes.data

    def _input(self, b: Buffer, array: Array) -> Array:
        fit = array.flags.c_contiguous and array.ctypes.data % ALIGN == 0
        return array if fit else self._copied(b, array)

    def _point_at_own(self, arrays: Mapping[str, Array] | None) -> None:
        """Inputs and outputs in the plan's own memory; the inputs as it holds them, without ``arrays``."""
        for b in self._inputs:
            self._point(b.id, self._memory(b) if arrays is None else self._copied(b, arrays[b.name]))
        for b in self._outputs:
            self._point(b.id, self._memory(b))

    def _copied(self, b: Buffer, array: Array) -> Array:
        self._holds = None
        memory = self._memory(b)
        memory[...] = array
        return memory

    def _memory(self, b: Buffer) -> Array:
        """Memory of the plan's own for an input or output, from its first use on."""
        memory = self._own.get(b.id)
        if memory is None:
            memory = self._own[b.id] = self._engine.allocate(b.nbytes)
        return memory[: b.nbytes].view(b.dtype.numpy).reshape(b.shape)


def _aligned(b: Buffer) -> Array:
    """Fresh memory for an output, on a cache line."""
    whole = np.empty(b.nbytes + ALIGN, np.uint8)
    start = -whole.ctypes.data % ALIGN
    return whole[start : start + b.nbytes].view(b.dtype.numpy).reshape(b.shape)
