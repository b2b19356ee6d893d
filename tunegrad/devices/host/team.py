"""The native thread team: launches, times and runs plans of compiled kernels with no Python in
between.

A kernel is ``void name(ptr buffers, ptr workspace, i64 tid, ptr team)``, called once per thread of
a launch. The calling thread is thread 0; the others are pthreads that live as long as the team,
spin briefly after each launch and then sleep. ``native_ir`` holds the code; it is compiled once on
a machine.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tunegrad.devices.host.kept import host, own_code
from tunegrad.devices.host.loader import Library
from tunegrad.devices.host.team_ir import ENTRY_BYTES, EXPORTS, runtime_text
from tunegrad.errors import DeviceError, InternalError
from tunegrad.forks import ForkSafeLock

__all__ = ["BufferTable", "Launch", "LaunchTable", "Team", "barrier_address"]

_P, _I = ctypes.c_void_p, ctypes.c_int64
_SIGNATURES: dict[str, tuple[object, tuple[object, ...]]] = {
    "tg_plan_run": (None, (_P, _P, _I)),
    "tg_plan_time": (None, (_P, _P, _I, _I, _P, _I, _P, _P)),
    "tg_team_create": (_P, (_I, _P)),
    "tg_team_destroy": (None, (_P,)),
    "tg_team_run": (None, (_P, _P, _P, _P, _I)),
    "tg_team_size": (_I, (_P,)),
    "tg_time": (None, (_P, _P, _P, _P, _I, _I, _I, _P, _I, _P)),
}


class _Runtime:
    """The compiled runtime of this process: one ctypes function per entry point of
    ``native_ir``.
    """

    def __init__(self) -> None:
        machine = platform.machine()
        try:
            text = runtime_text(machine, host().features)
        except KeyError:
            raise DeviceError(
                f"device cpu: no native runtime for {machine}; valid: x86_64, aarch64"
            ) from None
        self.library = Library(own_code(text), EXPORTS, {})
        self.functions: dict[str, Callable[..., Any]] = {}
        for name, (result, arguments) in _SIGNATURES.items():
            prototype = ctypes.CFUNCTYPE(result, *arguments)  # type: ignore[arg-type]
            self.functions[name] = prototype(self.library.addresses[name])


@cache
def _runtime() -> _Runtime:
    return _Runtime()


def barrier_address() -> int:
    """Address of ``tg_barrier(ptr team)``, which kernels with barriers link against."""
    return _runtime().library.addresses["tg_barrier"]


class BufferTable:
    """The buffer table of launches: one address per parameter, in order.

    It keeps ``owners`` alive with itself.
    """

    __slots__ = ("_table", "owners")

    def __init__(self, addresses: Sequence[int], owners: object = None) -> None:
        self._table = (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
        self.owners = owners

    @property
    def address(self) -> int:
        return ctypes.addressof(self._table)

    def point(self, entry: int, address: int) -> None:
        """Let one entry be another address."""
        self._table[entry] = address


@dataclass(frozen=True, slots=True)
class Launch:
    """One entry of a plan: addresses of the kernel, its buffer table and its workspace, and its
    thread count.
    """

    address: int
    buffers: int
    workspace: int = 0
    threads: int = 1


class LaunchTable:
    """Launches in order, laid out for the native runner.

    Holds no reference to code or buffers: the caller does.
    """

    __slots__ = ("_table", "address", "entries", "threads")

    def __init__(self, entries: Sequence[Launch]) -> None:
        self.entries = tuple(entries)
        flat = [
            word for e in self.entries for word in (e.address, e.buffers, e.workspace, e.threads)
        ]
        self._table = np.array(flat or [0] * (ENTRY_BYTES // 8), dtype=np.uint64)
        self.address = int(self._table.ctypes.data)
        self.threads = max((e.threads for e in self.entries), default=1)
        """The most threads that any entry wants."""

    def __len__(self) -> int:
        return len(self.entries)


class Team:
    """A persistent team of native threads.

    One launch at a time; concurrent callers wait for each other (``teams`` has one for each).

    ``cpus``: the core of each thread, thread 0 first; default: the allowed cores in order, helpers
    only (the caller is pinned where ``pin_caller`` is set: right for a timing worker, wrong inside
    a user's process). Pinning that the system refuses is skipped. More threads than allowed cores
    are not pinned at all. Raises DeviceError when the system does not give that many threads.
    """

    def __init__(
        self, threads: int, cpus: Sequence[int] | None = None, pin_caller: bool = False
    ) -> None:
        if threads < 1:
            raise DeviceError(f"Team(threads={threads}): at least 1")
        self.threads = threads
        self._cpus = _places(threads) if cpus is None else tuple(cpus)
        if len(self._cpus) != threads:
            raise DeviceError(f"Team(threads={threads}): {len(self._cpus)} cpus given")
        self._lock = ForkSafeLock()
        functions = _runtime().functions
        self._run = functions["tg_team_run"]
        self._plan = functions["tg_plan_run"]
        self._open()
        if pin_caller and self._cpus[0] >= 0:
            _pin(self._cpus[0])

    def _open(self) -> None:
        functions = _runtime().functions
        places = (ctypes.c_int32 * self.threads)(*self._cpus)
        handle = functions["tg_team_create"](self.threads, places)
        if not handle:
            raise DeviceError(f"Team(threads={self.threads}): out of memory")
        self._handle: int | None = handle
        self._pid = os.getpid()
        self._finalizer = weakref.finalize(self, _destroy, handle, self._pid)
        size = functions["tg_team_size"](handle)
        if size != self.threads:
            self.close()
            raise DeviceError(f"Team(threads={self.threads}): the system gave only {size} threads")

    def close(self) -> None:
        """Stop and join the helpers."""
        self._finalizer()
        self._handle = None

    def run(
        self, address: int, buffers: int, workspace: int = 0, threads: int | None = None
    ) -> None:
        """Launch once and wait.

        ``buffers`` is the address of the buffer table; ``threads`` at most the team's.
        """
        count = self._count(threads)
        with self._lock:
            self._part()
            self._run(self._alive(), address, buffers, workspace, count)

    def time(
        self,
        launch: Launch,
        samples: int,
        inner: int = 1,
        cold: Sequence[tuple[int, int]] = (),
    ) -> tuple[float, ...]:
        """Seconds of each of ``samples`` samples; a sample is ``inner`` back-to-back launches,
        divided out.

        ``cold``: memory, as (address, bytes), that is dropped from all caches before every sample.
        """
        count, seconds, ranges = (
            self._count(launch.threads),
            np.zeros(max(1, samples)),
            _ranges(cold),
        )
        with self._lock:
            self._part()
            _runtime().functions["tg_time"](
                self._alive(), launch.address, launch.buffers, launch.workspace, count,
                samples, max(1, inner), ranges.ctypes.data, len(cold), seconds.ctypes.data,
            )  # fmt: skip
        return tuple(seconds[:samples].tolist())

    def run_plan(self, plan: LaunchTable) -> None:
        """Run a plan's launches in order, with no Python between them."""
        self._count(plan.threads)
        with self._lock:
            self._part()
            self._plan(self._alive(), plan.address, len(plan))

    def time_plan(
        self,
        plan: LaunchTable,
        samples: int,
        cold: Sequence[tuple[int, int]] = (),
        each: bool = False,
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """(seconds of every whole run, mean seconds of every entry or () without ``each``).

        The clock reads of ``each`` cost some 30 ns per entry. ``cold`` is as for ``time``.
        """
        self._count(plan.threads)
        seconds, parts = np.zeros(max(1, samples)), np.zeros(max(1, len(plan)))
        ranges = _ranges(cold)
        with self._lock:
            self._part()
            _runtime().functions["tg_plan_time"](
                self._alive(), plan.address, len(plan), samples, ranges.ctypes.data, len(cold),
                seconds.ctypes.data, parts.ctypes.data if each else 0,
            )  # fmt: skip
        means = tuple((parts[: len(plan)] / max(1, samples)).tolist()) if each else ()
        return tuple(seconds[:samples].tolist()), means

    def _part(self) -> None:
        """Leave a helper's core.

        The caller is not pinned, and where it shares a core with a pinned helper the system may
        take a second to part them; moving to the core that is kept for it, and being let go again,
        is at once.
        """
        if self.threads == 1 or _current_cpu() not in self._cpus[1:]:
            return
        try:
            allowed = os.sched_getaffinity(0)
            os.sched_setaffinity(0, {self._cpus[0]})
            os.sched_setaffinity(0, allowed)
        except OSError:
            return  # a system that refuses to pin: nothing is pinned there

    def _alive(self) -> int:
        if self._pid != os.getpid():
            self._open()  # forked: the helpers stayed in the parent
        if self._handle is None:
            raise InternalError("Team: used after close")
        return self._handle

    def _count(self, threads: int | None) -> int:
        count = self.threads if threads is None else threads
        if not 1 <= count <= self.threads:
            raise InternalError(f"launch on {count} threads: the team has {self.threads}")
        return count


def _ranges(cold: Sequence[tuple[int, int]]) -> npt.NDArray[np.uint64]:
    return np.array([word for pair in cold for word in pair] or [0], dtype=np.uint64)


def _destroy(handle: int, pid: int) -> None:
    if os.getpid() == pid:
        _runtime().functions["tg_team_destroy"](handle)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _current_cpu() -> int:
    """The core that this thread runs on right now."""
    return int(_libc().sched_getcpu())


def _places(threads: int) -> tuple[int, ...]:
    allowed = sorted(os.sched_getaffinity(0))
    if threads > len(allowed):
        return (-1,) * threads
    return tuple(allowed[:threads])


def _pin(cpu: int) -> None:
    with suppress(OSError):  # a sandbox may refuse; the run is only a little noisier
        os.sched_setaffinity(0, {cpu})
