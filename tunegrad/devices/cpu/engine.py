"""The CPU, open in this process: its memory, kernels linked here, a team of native threads."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tunegrad.devices.host.buffers import GUARD, Buffer
from tunegrad.devices.host.facts import require_tiles
from tunegrad.devices.host.team import (
    BufferTable,
    Bulk,
    Executable,
    Launch,
    LaunchTable,
    OpenMP,
    Team,
    Teams,
    openmp_in_use,
)
from tunegrad.errors import InternalError
from tunegrad.ir.dtypes import buffer_dtype
from tunegrad.lazy import dataclass

if TYPE_CHECKING:
    from tunegrad.devices import Place
    from tunegrad.devices.cpu.device import CpuDevice
    from tunegrad.devices.cpu.readonly import ReadOnly
    from tunegrad.devices.device import MachineLimits
    from tunegrad.devices.job import Array, CompiledCandidate
    from tunegrad.devices.lowered import Lowered
    from tunegrad.forks import ForkSafeLock
    from tunegrad.ir.layout import Pack
    from tunegrad.trial import Properties

_ALIGN = 64
"""A cache line, and a vector of AVX-512."""


_PLAIN_BYTES = 1 << 16
"""Results of so many bytes lie where numpy puts them, aligned for 16 bytes: a call of ``x * 2 + 1``
takes 0.2 us less so, in turns, of 64 bytes to 64 KiB on a Zen 5.
"""

T = TypeVar("T")

_Nothing = ctypes.c_char * 0


def meets(addresses: Sequence[int], spans: Sequence[tuple[int, bool]]) -> bool:
    """True if memory that is written to, of (bytes, written) at each address, is other memory as
    well.
    """
    end = written_end = 0
    for at, (nbytes, written) in sorted(zip(addresses, spans, strict=True)):
        if at < (end if written else written_end):
            return True
        end = max(end, at + nbytes)
        if written:
            written_end = max(written_end, at + nbytes)
    return False


def _address(array: NDArray[Any]) -> int:
    """Address of a contiguous array: a third of the time that ``array.ctypes.data`` takes."""
    if array.flags.writeable:
        return ctypes.addressof(_Nothing.from_buffer(array))  # type: ignore[arg-type]
    return int(array.ctypes.data)


class Span:
    """A part of memory, or an array of the caller's; it keeps what it is of alive."""

    __slots__ = ("_data", "address", "nbytes")

    def __init__(self, data: NDArray[Any], address: int | None = None) -> None:
        self._data, self.nbytes = data, data.nbytes
        self.address = _address(data) if address is None else address

    @property
    def bytes(self) -> NDArray[np.uint8]:
        return self._data.reshape(-1).view(np.uint8)

    def view(self, dtype: str) -> Array:
        return self.bytes.view(buffer_dtype(dtype).numpy)

    read = view

    def protect(self, on: bool = True) -> None:
        self._data = self._data.view()  # the caller's array stays as it is
        self._data.flags.writeable = not on

    def damage(self) -> str:
        return ""


CpuMemory = Buffer | Span


@dataclass(frozen=True, slots=True)
class _Launch:
    """A kernel and its memory."""

    executable: Executable
    table: BufferTable
    scratch: tuple[CpuMemory, ...]
    native: Launch


@dataclass(frozen=True, slots=True)
class _Plan:
    """Launches as a team's native runner wants them; each run is on a team that is free."""

    teams: Teams
    launches: tuple[_Launch, ...]
    native: LaunchTable

    def point(self, step: int, argument: int, memory: CpuMemory) -> None:
        self.launches[step].table.point(argument, memory.address)

    def run(self) -> None:
        self.teams.run_plan(self.native)

    def _run_or_none(self, openmp: OpenMP | None = None) -> Callable[[], None]:
        """``run``, which does nothing where there are no launches."""
        return self.teams.runner(self.native, openmp) if self.launches else lambda: None

    def _entries(
        self, places: Iterable[tuple[int, Iterable[tuple[int, int, int]]]]
    ) -> list[tuple[int, Any, int, int]]:
        """Writes of a call: the number of an address, a table, its entry, bytes from the address.

        ``places``: the number of each address, and its arguments of launches, as in ``Place``.
        """
        return [
            (n, self.launches[step].table.words, entry, start)
            for n, touched in places
            for step, entry, start in touched
        ]

    def direct(
        self,
        lock: ForkSafeLock,
        inputs: Sequence[Place],
        outputs: Sequence[Place],
        addressed: bool = False,
        run: Callable[[], None] | None = None,
    ) -> Callable[[Any], tuple[Array, ...] | None]:
        replaced = {p.over for p in outputs}
        taken = [
            (p.shape, p.dtype, p.dtype.itemsize - 1, n in replaced) for n, p in enumerate(inputs)
        ]
        fresh = [p for p in outputs if p.over is None]
        sizes = (prod(p.shape) * p.dtype.itemsize for p in fresh)
        made = [
            (p.shape, p.dtype, n + _ALIGN if n > _PLAIN_BYTES else 0)
            for p, n in zip(fresh, sizes, strict=True)
        ]
        count, launches = len(taken), run or self._run_or_none()
        new = iter(range(count, count + len(fresh)))
        order = [next(new) if p.over is None else p.over for p in outputs]
        places = (p.places for p in (*inputs, *outputs))
        entries = self._entries(zip((*range(count), *order), places, strict=True))
        spans = [(prod(shape) * dtype.itemsize, written) for shape, dtype, _, written in taken]
        empty, array, byte = np.empty, np.ndarray, np.dtype(np.uint8)
        view, address_of = cast("Callable[[Any], Any]", _Nothing.from_buffer), ctypes.addressof

        def call(given: Sequence[Any]) -> tuple[Array, ...] | None:
            if len(given) != count:
                return None
            addresses = []
            for x, (shape, dtype, odd, written) in zip(given, taken):  # noqa: B905  as many, faster
                if type(x) is not array or x.dtype is not dtype or x.shape != shape:
                    return None
                try:
                    at = address_of(view(x))
                except TypeError:  # it can not be written to, or has gaps
                    if written or not x.flags.c_contiguous:
                        return None
                    at = x.ctypes.data
                if at & odd:
                    return None
                addresses.append(at)
            if len(made) == len(order):
                return launch(addresses)
            if meets(addresses, spans):
                return None
            results = (*given, *launch(addresses))
            return tuple([results[n] for n in order])

        def launch(addresses: list[int]) -> tuple[Array, ...]:
            results = []
            for shape, dtype, nbytes in made:
                whole = empty(nbytes, byte) if nbytes else empty(shape, dtype)
                at = address_of(view(whole))
                if nbytes:
                    skipped = -at % _ALIGN
                    whole = array(shape, dtype, whole, skipped)
                    at += skipped
                addresses.append(at)
                results.append(whole)
            with lock.inner:
                for n, words, entry, start in entries:
                    words[entry] = addresses[n] + start
                launches()
            return tuple(results)

        return launch if addressed else call

    def at_addresses(
        self,
        lock: ForkSafeLock,
        places: Sequence[Sequence[tuple[int, int, int]]],
        copies: Sequence[tuple[int, int, int]] = (),
    ) -> Callable[[Sequence[int]], None]:
        entries, run = self._entries(enumerate(places)), self._run_or_none(openmp_in_use())

        def call(addresses: Sequence[int]) -> None:
            with lock.inner:
                for n, words, entry, start in entries:
                    words[entry] = addresses[n] + start
                run()
                for to, source, nbytes in copies:
                    ctypes.memmove(addresses[to], addresses[source], nbytes)

        return call

    def time(self, samples: int, each: bool = False) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return self._on_a_team(lambda team: team.time_plan(self.native, samples, each=each))

    def _on_a_team(self, work: Callable[[Team], T]) -> T:
        team = self.teams.take()
        try:
            return work(team)
        finally:
            self.teams.give(team)


class CpuEngine:
    """See ``devices.device.Engine``.

    Code is linked into this process, and does not hang on the engine.

    ``pin``: the thread that opens it is kept on the first core, as the helpers are on theirs.

    Raises DeviceError where the system refuses this process the target's tile registers.
    """

    align = _ALIGN

    def __init__(self, device: CpuDevice, pin: bool = False) -> None:
        require_tiles(device.target)
        self.device = device
        self._teams = Teams(device.target.threads, pin_caller=pin)
        self.team = self._teams.first
        if pin:  # such a process may soon be kept from all files, of this package as well
            from tunegrad.devices.cpu import peak, readonly  # noqa: F401

            _ = self._bulk
        self._read_only: ReadOnly | None = None
        self._control: list[tuple[tuple[str, int], ...]] | None = None

    @cached_property
    def _bulk(self) -> Bulk:
        """Compiled where it is first needed: a process that only runs models does without."""
        return Bulk(self.team)

    @property
    def at_once(self) -> int:
        return self._teams.most

    # ---- memory

    def allocate(
        self, nbytes: int, touched: bool = True, guard: int | None = None, shift: int = 0
    ) -> Buffer:
        return Buffer(nbytes, touched, GUARD if guard is None else guard, shift)

    def part(self, memory: CpuMemory, start: int, nbytes: int) -> Span:
        return Span(memory.bytes[start : start + nbytes])

    def fresh(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        whole = np.empty(prod(shape) * dtype.itemsize + _ALIGN, np.uint8)
        return np.ndarray(shape, dtype, whole, -_address(whole) % _ALIGN)

    def borrow(self, array: NDArray[Any]) -> Span | None:
        # kernels read from anywhere: vectors across cache lines cost less than a copy
        if not array.flags.c_contiguous or (at := _address(array)) % array.itemsize != 0:
            return None
        return Span(array, at)

    def write(self, memory: CpuMemory, values: Array) -> None:
        to = memory.bytes[: values.nbytes].view(values.dtype)
        to.reshape(values.shape)[...] = values

    def pack(self, pack: Pack, source: Array, memory: CpuMemory, rest: int = 0) -> None:
        pack.run(source, memory.view(pack.dtype.name)[: pack.size], self._bulk.assign)
        memory.bytes[pack.size * pack.dtype.itemsize :] = rest

    def fill(self, memory: CpuMemory, byte: int) -> None:
        self._bulk.fill(memory.bytes, byte)

    def digest(self, memories: Sequence[CpuMemory]) -> str:
        return self._bulk.digest(m.bytes for m in memories)

    def watch(self, memories: Sequence[CpuMemory | None]) -> None:
        """From now on a write to one of these ends this process, by an exit code that names it."""
        from tunegrad.devices.cpu.readonly import ReadOnly

        if self._read_only is None:
            self._read_only = ReadOnly()
        self._read_only.watch([m.pages if isinstance(m, Buffer) else (0, 0) for m in memories])

    # ---- code

    def load(self, compiled: CompiledCandidate | Lowered, image: bytes) -> Executable:
        return Executable.load(image, compiled.entry, compiled.geometry.groups)

    def launch(
        self, code: Executable, memories: Sequence[CpuMemory], scratch: Sequence[CpuMemory]
    ) -> _Launch:
        if code.threads > self.team.threads:
            raise InternalError(
                f"{code.name}: {code.threads} threads, the target has {self.team.threads}"
            )
        table = BufferTable([m.address for m in memories], list(memories))
        workspace = scratch[0].address if scratch else 0
        return _Launch(
            code,
            table,
            tuple(scratch),
            Launch(code.address, table.address, workspace, code.threads, code.apart),
        )

    def bind(self, launches: Sequence[_Launch]) -> _Plan:
        return _Plan(self._teams, tuple(launches), LaunchTable([x.native for x in launches]))

    # ---- time

    def time(
        self,
        launch: _Launch,
        samples: int,
        inner: int = 1,
        evicted: Sequence[CpuMemory] = (),
        near: Sequence[CpuMemory] = (),
    ) -> tuple[float, ...]:
        cold, last = ([(m.address, m.nbytes) for m in x if m.nbytes] for x in (evicted, near))
        return self.team.time(launch.native, samples, inner, cold, last)

    def state(self) -> Properties:
        found = ("clock_mhz", self._bulk.clock_mhz()), ("launch_ns", self._bulk.launch_ns())
        return (*self.device.state(), *(x for x in found if x[1]))

    def disorder(self) -> str:
        found, before = self._bulk.control(), self._control
        if self._control is None:
            self._control = found
        for thread, (now, was) in enumerate(zip(found, before or found, strict=True)):
            for (name, value), (_, old) in zip(now, was, strict=True):
                if value != old:
                    return f"thread {thread} is left with {name} {value:#x}, which was {old:#x}"
        return ""

    def limits(self) -> MachineLimits:
        from tunegrad.devices.cpu.peak import measure_limits

        return measure_limits(self.device.target, self.team)

    def close(self) -> None:
        self._teams.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
