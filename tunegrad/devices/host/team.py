"""The native thread team: launches, times and runs plans of compiled kernels with no Python in
between.

A kernel is ``void name(ptr buffers, ptr workspace, i64 tid, ptr team)``, called once per thread of
a launch. The calling thread is thread 0; the others are pthreads that live as long as the team,
spin briefly after each launch and then sleep. ``team_ir`` holds the code; it is compiled once on
a machine.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import platform
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from tunegrad.devices.host.facts import host, own_code
from tunegrad.devices.host.loader import Library
from tunegrad.errors import DeviceError, InternalError
from tunegrad.forks import ForkSafeLock, in_child
from tunegrad.lazy import dataclass, sha256

if TYPE_CHECKING:
    from tunegrad.devices.verifying.tolerance import Bar, Mismatch
    from tunegrad.ir.target import Target

# ---- team


APART = 1 << 32
"""Added to a launch's number of threads where none of them waits for another."""
PLAN_BYTES = 64
"""Of a plan before its entries: i32 late, at 8 i64 turns, i64 ns of a run by the team, and by the
caller alone, and 1 where threads of an entry wait for each other.
"""
EXPORTS = (
    "tg_barrier", "tg_plan_alone", "tg_plan_run", "tg_plan_time", "tg_team_create",
    "tg_team_destroy", "tg_team_run", "tg_team_size", "tg_time",
)  # fmt: skip

_P, _I = ctypes.c_void_p, ctypes.c_int64
_SIGNATURES: dict[str, tuple[object, tuple[object, ...]]] = {
    "tg_plan_alone": (None, (_P, _I)),
    "tg_plan_run": (ctypes.c_int32, (_P, _P, _I)),
    "tg_plan_time": (None, (_P, _P, _I, _I, _P, _P)),
    "tg_team_create": (_P, (_I, _P, _P)),
    "tg_team_destroy": (None, (_P,)),
    "tg_team_run": (None, (_P, _P, _P, _P, _I)),
    "tg_team_size": (_I, (_P,)),
    "tg_time": (None, (_P, _P, _P, _P, _I, _I, _I, _P, _I, _I, _P)),
}


class _Runtime:
    """The compiled runtime of this process: one ctypes function per entry point of
    ``team_ir``.
    """

    def __init__(self) -> None:
        machine = platform.machine()
        # what a file brings drops cache lines one by one
        features = host().features if host().llvm else ()
        if machine not in ("x86_64", "aarch64"):
            raise DeviceError(
                f"device cpu: no native runtime for {machine}; valid: x86_64, aarch64"
            )

        def text() -> str:
            from tunegrad.devices.host.team_ir import runtime_text

            return runtime_text(machine, features)

        code = own_code(text, _source_of(machine, features))
        self.library = Library(code, EXPORTS, {})
        self.functions: dict[str, Callable[..., Any]] = {}
        for name, (result, arguments) in _SIGNATURES.items():
            prototype = ctypes.CFUNCTYPE(result, *arguments)  # type: ignore[arg-type]
            self.functions[name] = prototype(self.library.addresses[name])


def _source_of(machine: str, features: Sequence[str]) -> str:
    """All that the runtime's text depends on: its target, and its code ('' if in no files)."""
    whole = sha256(b"")
    try:
        for name in ("team.py", "team_ir.py", "ir_text.py"):
            whole.update(Path(__file__).with_name(name).read_bytes())
    except OSError:
        return ""
    return f"{machine} {','.join(features)} {whole.hexdigest()}"


@cache
def _runtime() -> _Runtime:
    return _Runtime()


def carried_runtime(target: Target) -> tuple[str, bytes]:
    """The runtime that a file can bring to machines without LLVM: the digest of its text, and its
    code; both empty for a target that needs none.
    """
    if target.kind != "cpu":
        return "", b""
    from tunegrad.devices.host.team_ir import runtime_text

    text = runtime_text(platform.machine())
    return sha256(text.encode()).hexdigest(), own_code(lambda: text)


def barrier_address() -> int:
    """Address of ``tg_barrier(ptr team)``, which kernels with barriers link against."""
    return _runtime().library.addresses["tg_barrier"]


class BufferTable:
    """The buffer table of launches: one address per parameter, in order.

    It keeps ``owners`` alive with itself.
    """

    __slots__ = ("owners", "words")

    def __init__(self, addresses: Sequence[int], owners: object = None) -> None:
        self.words = (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
        self.owners = owners

    @property
    def address(self) -> int:
        return ctypes.addressof(self.words)

    def point(self, entry: int, address: int) -> None:
        """Let one entry be another address."""
        self.words[entry] = address


@dataclass(frozen=True, slots=True)
class Launch:
    """One entry of a plan: addresses of the kernel, its buffer table and its workspace, and its
    thread count. ``apart``: none of its threads waits for another.
    """

    address: int
    buffers: int
    workspace: int = 0
    threads: int = 1
    apart: bool = False

    @property
    def how(self) -> int:
        """Its thread count as the native code takes it."""
        return self.threads + self.apart * APART


class LaunchTable:
    """Launches in order, laid out for the native runner.

    Holds no reference to code or buffers: the caller does.
    """

    __slots__ = ("_table", "address", "count", "entries", "threads")

    def __init__(self, entries: Sequence[Launch]) -> None:
        self.entries = tuple(entries)
        head = [0] * (PLAN_BYTES // 8)
        head[4] = any(e.threads > 1 and not e.apart for e in self.entries)
        flat = head + [
            word for e in self.entries for word in (e.address, e.buffers, e.workspace, e.how)
        ]
        self._table = np.array(flat, dtype=np.uint64)
        self.address = int(self._table.ctypes.data)
        self.count = len(self.entries)
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

    With ``openmp`` the others are its threads, from call to call: such a team runs plans alone.
    """

    def __init__(
        self,
        threads: int,
        cpus: Sequence[int] | None = None,
        pin_caller: bool = False,
        openmp: OpenMP | None = None,
    ) -> None:
        if threads < 1:
            raise DeviceError(f"Team(threads={threads}): at least 1")
        self.threads = threads
        self._openmp = openmp
        self._cpus = _places(threads) if cpus is None else tuple(cpus)
        if len(self._cpus) != threads:
            raise DeviceError(f"Team(threads={threads}): {len(self._cpus)} cpus given")
        self._lock = ForkSafeLock()
        functions = _runtime().functions
        self._run = functions["tg_team_run"]
        self._plan = functions["tg_plan_run"]
        self._open()
        in_child(self)
        if pin_caller and self._cpus[0] >= 0:
            _pin(self._cpus[0])

    def _open(self) -> None:
        functions = _runtime().functions
        places = (ctypes.c_int32 * self.threads)(*self._cpus)
        handle = functions["tg_team_create"](
            self.threads, places, None if self._openmp is None else self._openmp.functions
        )
        if not handle:
            raise DeviceError(f"Team(threads={self.threads}): out of memory")
        self._handle: int | None = handle
        self._pid = os.getpid()
        self._finalizer = weakref.finalize(self, _destroy, handle, self._pid)
        size = functions["tg_team_size"](handle)
        if size != self.threads:
            self.close()
            raise DeviceError(f"Team(threads={self.threads}): the system gave only {size} threads")

    @property
    def pinned(self) -> bool:
        """True if each thread has a core of its own."""
        return min(self._cpus) >= 0

    def forked(self) -> None:
        """In a child the helpers stayed in the parent; see ``forks.in_child``."""
        self._handle = None

    def close(self) -> None:
        """Stop and join the helpers."""
        self._finalizer()
        self._handle = None

    def run(
        self,
        address: int,
        buffers: int,
        workspace: int = 0,
        threads: int | None = None,
        apart: bool = False,
    ) -> None:
        """Launch once and wait.

        ``buffers`` is the address of the buffer table; ``threads`` at most the team's. ``apart``:
        none of them waits for another.
        """
        how = Launch(address, buffers, workspace, self._count(threads), apart).how
        with self._lock:
            self._run(self._alive(), address, buffers, workspace, how)

    def time(
        self,
        launch: Launch,
        samples: int,
        inner: int = 1,
        cold: Sequence[tuple[int, int]] = (),
        near: Sequence[tuple[int, int]] = (),
    ) -> tuple[float, ...]:
        """Seconds of each of ``samples`` samples; a sample is ``inner`` back-to-back launches,
        divided out.

        ``cold``: memory, as (address, bytes), that is dropped from all caches before every sample.
        ``near``: memory of which each thread has an equal part, in order, in the caches of its
        core, and no other core that part; the last range is nearest.
        """
        self._count(launch.threads)
        seconds, ranges = np.zeros(max(1, samples)), _ranges([*cold, *near])
        with self._lock:
            _runtime().functions["tg_time"](
                self._alive(), launch.address, launch.buffers, launch.workspace, launch.how,
                samples, max(1, inner), ranges.ctypes.data, len(cold) + len(near), len(cold),
                seconds.ctypes.data,
            )  # fmt: skip
        return tuple(seconds[:samples].tolist())

    def run_plan(self, plan: LaunchTable) -> bool:
        """Run a plan's launches in order, with no Python between them; False, and nothing has run,
        where OpenMP has fewer threads here.
        """
        if plan.threads > self.threads:
            self._count(plan.threads)
        with self._lock.inner:
            ran: int = self._plan(self._handle or self._alive(), plan.address, plan.count)
            return ran != 0

    def time_plan(
        self, plan: LaunchTable, samples: int, each: bool = False
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """(seconds of every whole run, mean seconds of every entry or () without ``each``).

        The clock reads of ``each`` cost some 30 ns per entry.
        """
        self._count(plan.threads)
        seconds, parts = np.zeros(max(1, samples)), np.zeros(max(1, len(plan)))
        with self._lock:
            _runtime().functions["tg_plan_time"](
                self._alive(), plan.address, len(plan), samples,
                seconds.ctypes.data, parts.ctypes.data if each else 0,
            )  # fmt: skip
        means = tuple((parts[: len(plan)] / max(1, samples)).tolist()) if each else ()
        return tuple(seconds[:samples].tolist()), means

    def _alive(self) -> int:
        if self._pid != os.getpid():
            self._open()
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


def _places(threads: int) -> tuple[int, ...]:
    allowed = sorted(os.sched_getaffinity(0))
    if threads > len(allowed):
        return (-1,) * threads
    return tuple(allowed[:threads])


def _pin(cpu: int) -> None:
    with suppress(OSError):  # a sandbox may refuse; the run is only a little noisier
        os.sched_setaffinity(0, {cpu})


# ---- kernels
#
# Kernels in this process's memory: linked, called by their address, unmapped.


class Executable:
    """A kernel in this process's memory.

    ``address`` is what ``Launch`` and ``Team.run`` take, until ``close``.

    It is unmapped with its last reference at the latest.
    """

    __slots__ = ("__weakref__", "_library", "apart", "name", "threads")

    def __init__(self, library: Library, name: str, threads: int = 1) -> None:
        self._library = library
        self.name = name
        self.threads = threads
        self.apart = "tg_barrier" not in library.imported
        """True if none of its threads waits for another."""

    @classmethod
    def load(cls, image: bytes, name: str, threads: int = 1) -> Executable:
        """Link an object from ``compile_llvm`` that defines the kernel ``name``, which runs on so
        many threads.

        Raises CompileFailure when ``image`` is no object, lacks a symbol, or may keep something
        between its launches (``loader.check_stateless``).
        """
        imports = {"tg_barrier": barrier_address()}
        return cls(Library(image, (name,), imports, stateless=True), name, threads)

    @property
    def address(self) -> int:
        address = self._library.addresses.get(self.name)
        if address is None:
            raise InternalError(f"Executable {self.name}: used after close")
        return address

    def close(self) -> None:
        """Unmap the code; nothing may be running in it."""
        self._library.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ---- teams of callers
#
# Teams of threads for callers that run at the same time: each on cores of its own.
#
# two models of two threads, two cores    -->  the second waits until the first has given them back
#
# Two teams on one core would wait for each other at every barrier: the threads of a kernel have to
# run at the same time.


class _Place:
    """A place in the queue: the cores that a thread waits for, and those that it was given."""

    def __init__(self, count: int) -> None:
        self.count, self.thread = count, get_ident()
        self.given: tuple[int, ...] = ()
        self.ready = threading.Event()


class Cores:
    """Gives cores in the order of requests, the lowest free ones first.

    Ctrl-C may arrive after a thread was given cores and before it is ready to give them back. A
    thread that asks runs nothing on the ones that it still has: where there are too few, those come
    back first.
    """

    def __init__(self, cores: Sequence[int]) -> None:
        self.all = tuple(sorted(cores))
        self.forked()
        in_child(self)

    def forked(self) -> None:
        """In a child no core is borrowed yet; see ``forks.in_child``."""
        self._lock = threading.Lock()
        self._free = self.all
        self._lent: dict[tuple[int, ...], int] = {}  # cores, and the thread that they are lent to
        self._queue: deque[_Place] = deque()

    def take(self, count: int) -> tuple[int, ...]:
        """So many cores, or all; waits until they are free. They are to be given back."""
        with self._lock:
            free = self._free
            if not self._queue and count <= len(free):  # what nearly every call is
                cores, self._free = (
                    (free, ()) if count == len(free) else (free[:count], free[count:])
                )
                self._lent[cores] = get_ident()
                return cores
            place = _Place(min(count, len(self.all)))
            for cores in [c for c, thread in self._lent.items() if thread == place.thread]:
                del self._lent[cores]
            self._free = tuple(sorted(set(self.all).difference(*self._lent)))
            self._queue.append(place)
            self._serve()
        try:
            place.ready.wait()
        except BaseException:  # Ctrl-C: leaving the queue keeps nothing
            with self._lock:
                if place in self._queue:
                    self._queue.remove(place)
            self.give(place.given)
            raise
        return place.given

    def _serve(self) -> None:
        while self._queue and self._queue[0].count <= len(self._free):
            place = self._queue.popleft()
            place.given, self._free = self._free[: place.count], self._free[place.count :]
            self._lent[place.given] = place.thread
            place.ready.set()

    def give(self, cores: tuple[int, ...]) -> None:
        """Take cores back, and give those in front what they wait for."""
        with self._lock:
            if self._lent.pop(cores, None) is not None:
                free = self._free
                if free and free[0] < cores[-1]:
                    self._free = tuple(sorted(free + cores))
                else:
                    self._free = cores + free
            if self._queue:
                self._serve()


@cache
def process_cores() -> Cores:
    """The cores that this process may use, as they were when this was first asked."""
    return Cores(sorted(os.sched_getaffinity(0)))


class Teams:
    """Teams of ``threads`` threads, one for each set of cores in use; kept until ``close``.

    ``first`` is the one on the lowest cores, made at once. ``pin_caller`` is for a process that has
    one caller: it is kept on the first core. Raises DeviceError as ``Team`` does.
    """

    def __init__(self, threads: int, pin_caller: bool = False) -> None:
        self.threads, self._cores = threads, process_cores()
        self._wanted = min(threads, len(self._cores.all))
        cores = self._cores.all[:threads]
        self.first = Team(threads, self._cpus(cores), pin_caller)
        self._teams, self._places = {cores: self.first}, {self.first: cores}
        self._guests: dict[tuple[int, ...], Team] = {}

    @property
    def most(self) -> int:
        """Callers that run at once; more wait."""
        return max(1, len(self._cores.all) // self.threads)

    def take(self) -> Team:
        """A team of the caller's own, on cores that no other team uses; to be given back."""
        cores = self._cores.take(self._wanted)
        return self._teams.get(cores) or self._made(cores)

    def give(self, team: Team) -> None:
        """Take back what ``take`` gave."""
        self._cores.give(self._places[team])

    def runner(self, plan: LaunchTable, openmp: OpenMP | None = None) -> Callable[[], None]:
        """Runs a plan, as ``run_plan``, or ``run_plan_by`` OpenMP's threads; one whose launches are
        of one thread needs no team.
        """
        if openmp is not None and plan.threads > 1:
            return functools.partial(self.run_plan_by, openmp, plan)
        if any(e.how != 1 + APART for e in plan.entries):
            return functools.partial(self.run_plan, plan)
        alone = _runtime().functions["tg_plan_alone"]
        return lambda: alone(plan.address, plan.count)

    def run_plan(self, plan: LaunchTable) -> None:
        """Run a plan on a team that ``take`` gives, and give it back."""
        cores = self._cores.take(self._wanted)
        team = self._teams.get(cores) or self._made(cores)
        try:
            team.run_plan(plan)
        finally:
            self._cores.give(cores)

    def run_plan_by(self, openmp: OpenMP, plan: LaunchTable) -> None:
        """``run_plan`` by its threads where it has enough, and a process was not forked since."""
        if openmp.functions is None:
            self.run_plan(plan)
            return
        cores = self._cores.take(self._wanted)
        try:
            guests = self._guests.get(cores)
            if guests is None:
                guests = Team(self.threads, (-1,) * self.threads, openmp=openmp)
                self._guests[cores] = guests
            ran = guests.run_plan(plan)
        finally:
            self._cores.give(cores)
        if not ran:
            self.run_plan(plan)

    def _made(self, cores: tuple[int, ...]) -> Team:
        """A team on cores that have none yet; they are given back where the system refuses it."""
        try:
            team = Team(self.threads, self._cpus(cores))
        except BaseException:
            self._cores.give(cores)
            raise
        self._places[team] = cores  # no other caller has these cores
        self._teams[cores] = team
        return team

    def close(self) -> None:
        """Stop and join all helpers."""
        for team in (*self._teams.values(), *self._guests.values()):
            team.close()

    def _cpus(self, cores: Sequence[int]) -> tuple[int, ...]:
        """Processors that each thread is kept on; none, where there are more threads than cores."""
        return tuple(cores) if len(cores) == self.threads else (-1,) * self.threads


class OpenMP:
    """The OpenMP that a library of this process, whose path is given, is linked with.

    Its threads spin for some milliseconds behind all work, on the cores that a team needs. Where
    work of both comes in turns, plans are quicker by its threads. A region of two threads without
    work takes 0.8 us there (Zen 5, libgomp of GCC 13). LLVM's and Intel's have these names, too.
    """

    _NAMES = (
        "GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads", "omp_get_max_threads",
    )  # fmt: skip

    def __init__(self, path: str) -> None:
        self.functions: ctypes.Array[ctypes.c_void_p] | None = None
        with suppress(AttributeError, OSError):  # it is linked with none
            library = ctypes.CDLL(path)
            found = (ctypes.cast(getattr(library, name), _P) for name in self._NAMES)
            self.functions = (_P * len(self._NAMES))(*found)
        in_child(self)

    def forked(self) -> None:
        """In a child its threads stayed in the parent; see ``forks.in_child``."""
        self.functions = None


_IN_USE: list[OpenMP] = []


def use_openmp(path: str) -> None:
    """Run plans that take addresses, loaded from now on, by threads of this library's OpenMP."""
    if not _IN_USE:
        _IN_USE.append(OpenMP(path))


def openmp_in_use() -> OpenMP | None:
    """What ``use_openmp`` was told of."""
    return _IN_USE[0] if _IN_USE else None


# ---- whole buffers
#
# Whole buffers at once, on all threads of a team: copy parts, fill, digest, and judge an output.
#
# A candidate is verified by passing over every byte that it read or wrote, which took as long as
# compiling it when numpy did it on one core. What can be decided in one pass is decided here; what
# is wrong is looked at again in numpy.


_LINE = 64
MOST_DIMS = 32
RESULT_BYTES = 64
BULK_EXPORTS = (
    "tg_clock",
    "tg_control",
    "tg_fill",
    "tg_judge",
    "tg_digest",
    *(f"tg_stride{size}" for size in (1, 2, 4, 8)),
)
_CLOCK_STEPS, _CLOCK_SAMPLES = 4096, 3
"""Some four microseconds, three times: an interrupt makes one longer."""
_SHARED_BYTES = 256 << 10
"""Buffers below this are one thread's: waking the others would take longer."""


@functools.cache
def _library() -> Library:
    from tunegrad.devices.host.team_ir import bulk_text

    return Library(own_code(lambda: bulk_text(platform.machine())), BULK_EXPORTS, {})


_CONTROL: dict[str, tuple[tuple[str, int, int], ...]] = {
    "x86_64": (
        ("MXCSR", 0, 0xFFC0), ("x87's control word", 1, 0xFFFF), ("x87's tags", 2, 0xFFFF),
        ("flags", 5, 1 << 10 | 1 << 18),
    ),
    "aarch64": (("FPCR", 0, 0xFFFFFFFF),),
}  # fmt: skip
"""Registers that say how a processor computes, their places in words of 64 bits, and the bits that
functions give back as they were: rounding, zeros for tiny numbers, masks of exceptions, a stack
that is empty, the direction of copies; not what merely tells of the operations before."""


class Bulk:
    """Operations on whole buffers of this process, with ``team``'s threads where they are large
    enough.

    Arrays are contiguous. One call at a time, and none while a kernel runs on the team.
    """

    def __init__(self, team: Team) -> None:
        self._team = team
        self._addresses = _library().addresses
        self._results: npt.NDArray[np.uint64] = np.zeros(
            (team.threads, RESULT_BYTES // 8), np.uint64
        )

    def fill(self, to: npt.NDArray[Any], byte: int) -> None:
        """Set every byte of an array."""
        self._run("tg_fill", to.nbytes, to.ctypes.data, byte, to.nbytes)

    def assign(self, to: npt.NDArray[Any], source: npt.NDArray[Any]) -> None:
        """``to[...] = source`` of one shape and dtype, any strides; they do not overlap."""
        if to.shape != source.shape or to.dtype != source.dtype:
            raise InternalError(f"assign {source.dtype} {source.shape} to {to.dtype} {to.shape}")
        dims = _merged(to, source)
        if (
            to.itemsize not in (1, 2, 4, 8)
            or to.nbytes < _SHARED_BYTES
            or not 1 <= len(dims) <= MOST_DIMS
        ):
            to[...] = source
            return
        *outer, (row, to_step, from_step) = dims
        rows = math.prod(extent for extent, _, _ in outer)
        table = np.array(outer or [(1, 0, 0)], np.int64)
        self._run(
            f"tg_stride{to.itemsize}", to.nbytes, to.ctypes.data, source.ctypes.data, row, to_step,
            from_step,
            rows, len(outer), table.ctypes.data,
        )  # fmt: skip

    def digest(self, arrays: Iterable[npt.NDArray[Any]]) -> str:
        """Digest of the bytes of arrays, hexadecimal; equal with teams of one size."""
        import hashlib

        whole = hashlib.blake2b(digest_size=16)
        for array in arrays:
            data = array.view(np.uint8)
            lines = data.size & -_LINE
            whole.update(f"{data.size} ".encode())
            whole.update(self._run("tg_digest", lines, data.ctypes.data, lines).data)
            whole.update(data[lines:].data)
        return whole.hexdigest()

    def clock_mhz(self) -> float:
        """Clock of the caller's core, as the time of a chain of products and sums tells; 0 where
        their cycles are not known.
        """
        if platform.machine() != "x86_64":
            return 0.0
        args = np.array([_CLOCK_STEPS], np.int64)
        launch = Launch(self._addresses["tg_clock"], args.ctypes.data, self._results.ctypes.data)
        return 4e-6 * _CLOCK_STEPS / min(self._team.time(launch, _CLOCK_SAMPLES))

    def launch_ns(self) -> float:
        """What a launch of two threads that do nothing takes; 0 for a team of one, or of more
        threads than cores.

        Two cores with a last cache in common take some 200 ns less than others, and memory that one
        has written takes the other as much longer for each line. A virtual machine may move from
        one kind of cores to the other within seconds.
        """
        if self._team.threads < 2 or not self._team.pinned:
            return 0.0
        args, results = np.zeros(1, np.int64), self._results.ctypes.data
        launch = Launch(self._addresses["tg_clock"], args.ctypes.data, results, 2)
        return 1e9 * min(self._team.time(launch, _CLOCK_SAMPLES, 16))

    def control(self) -> list[tuple[tuple[str, int], ...]]:
        """Of each thread, the registers that say how it computes, with the bits that last."""
        threads, results = self._team.threads, self._results.ctypes.data
        self._team.run(self._addresses["tg_control"], results, results, threads)
        words = self._results.tolist()
        kept = _CONTROL[platform.machine()]
        return [tuple((name, line[at] & mask) for name, at, mask in kept) for line in words]

    def judge(self, bar: Bar, got: npt.NDArray[Any]) -> Mismatch:
        """``bar.judge(got)``, in one pass where ``got`` is f32 and nothing in it is bad."""
        if bar.dtype.name == "f32" and not bar.fault:
            picked = got if bar.indices is None else got[bar.indices]
            if picked.size == bar.expected.size and not bar.turned(picked).size:
                error = self._error(bar, picked)
                if error is not None:
                    from tunegrad.devices.verifying.tolerance import Mismatch

                    return Mismatch(-1, 0.0, 0.0, 0.0, error)
        return bar.judge(got)

    def _error(self, bar: Bar, picked: npt.NDArray[Any]) -> float | None:
        """The greatest error of f32 numbers that are all right; None where one is not."""
        expected, allowed = bar.expected, bar.allowed
        if bar.special is not None and bar.finite is not None:
            special = picked[bar.special]
            wanted = expected[bar.special]
            if not ((special == wanted) | (np.isnan(special) & np.isnan(wanted))).all():
                return None
            picked, (expected, allowed) = picked[~bar.special], bar.finite
        found = self._run(
            "tg_judge",
            5 * picked.nbytes,
            picked.ctypes.data,
            expected.ctypes.data,
            allowed.ctypes.data,
            picked.size,
        )
        return float(found[:, 1].view(np.float64).max()) if found[:, 0].all() else None

    def _run(self, name: str, nbytes: int, *words: int) -> npt.NDArray[np.uint64]:
        """Results of each thread."""
        threads = self._team.threads if nbytes >= _SHARED_BYTES else 1
        args = np.array([*words, threads], np.int64)
        results = self._results.ctypes.data
        self._team.run(self._addresses[name], args.ctypes.data, results, threads, apart=True)
        return self._results[:threads]


def _merged(to: npt.NDArray[Any], source: npt.NDArray[Any]) -> list[tuple[int, int, int]]:
    """(extent, step of to, step of source) of each dimension, merged where both arrays allow."""
    dims: list[tuple[int, int, int]] = []
    for extent, t, f in zip(to.shape, to.strides, source.strides, strict=True):
        if extent == 1:
            continue
        if dims and dims[-1][1:] == (t * extent, f * extent):
            dims[-1] = dims[-1][0] * extent, t, f
        else:
            dims.append((extent, t, f))
    return dims
