"""A driver without a GPU: memory of this process, and kernels that are built for this CPU.

    launch, fill, event, replay  -->  a queue  -->  run in order by the next call that waits

So nothing has happened when an enqueuing call returns, and a fault of a kernel is told by the call
that waits next, as a GPU's is; then by each one that waits after it. What a caller gets wrong is an
InternalError, where a GPU's driver refuses it or goes on silently: memory that is not there, a
launch with too few arguments, a mark that is read before it is reached.
"""

from __future__ import annotations

import bisect
import ctypes
import functools
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from tests.cuda_host import runtime
from tunegrad.config import machine_bytes
from tunegrad.devices.cuda.driver import DLPACK_CPU, Resources
from tunegrad.devices.job import Geometry
from tunegrad.errors import DeviceFault, InternalError, OutOfResources

__all__ = ["HostDriver"]

_MOST_ITEMS = 1024
_SHARED_BYTES = 227 << 10
"""Of a group, as on compute capability 9.0."""
_UNASKED_BYTES = 48 << 10
"""That a launch may give without having been allowed more."""
_FAULT = "a kernel's fault: "


@dataclass(slots=True)
class _Loaded:
    """A kernel; ``allowed``: bytes that a launch of it may give."""

    image: runtime.Image
    entry: str
    shared_bytes: int
    allowed: int = _UNASKED_BYTES


@dataclass(slots=True)
class _Mark:
    reached_ns: int | None = None

    def reach(self) -> None:
        self.reached_ns = time.perf_counter_ns()


@dataclass(frozen=True, slots=True)
class _Launches:
    """A graph: launches with their addresses, as they were when it was made."""

    launches: tuple[tuple[_Loaded, Geometry, tuple[int, ...]], ...]
    marks: dict[int, _Mark]


class HostDriver:
    """See ``devices.cuda.driver.Driver``.

    ``seed``: threads and blocks run in an order that it draws; 0: in index order. ``lazy``: copies
    that a kernel starts happen when they are waited for, not at once. Raises DeviceError where the
    runtime can not be built.
    """

    def __init__(self, seed: int = 0, lazy: bool = False) -> None:
        self._seed, self._lazy = seed, lazy
        self._library = runtime.load()
        self._starts: list[int] = []
        self._sizes: dict[int, int] = {}
        self._queue: list[Callable[[], object]] = []
        self._running = False
        self._broken = ""

    place = DLPACK_CPU, 0
    stream = None

    # ---- memory

    def memory(self) -> tuple[int, int]:
        """Of this machine, as far as this process may have it."""
        total = machine_bytes()
        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        most = total if soft == resource.RLIM_INFINITY else min(total, soft)
        return max(0, most - sum(self._sizes.values())), most

    def allocate(self, nbytes: int) -> int:
        """Between two pages without access; zeros at first, which a GPU's is not."""
        address = self._library.tg_host_allocate(nbytes)
        if not address:
            raise MemoryError(f"{nbytes} bytes")
        bisect.insort(self._starts, address)
        self._sizes[address] = nbytes
        return int(address)

    def free(self, address: int) -> None:
        """Waits, as a GPU's does."""
        if address not in self._sizes:
            raise InternalError(f"cuda-host: no memory begins at {address:#x}")
        self._starts.remove(address)
        nbytes = self._sizes.pop(address)
        self._queue.append(functools.partial(self._library.tg_host_free, address, nbytes))
        self._run()

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        self._check(address, nbytes)
        self._queue.append(functools.partial(ctypes.memset, address, byte, nbytes))

    def write(self, address: int, data: NDArray[Any]) -> None:
        self._check(address, data.nbytes)
        self.finish()
        ctypes.memmove(address, _address(data), data.nbytes)

    def read(self, address: int, data: NDArray[Any]) -> None:
        self._check(address, data.nbytes)
        self.finish()
        ctypes.memmove(_address(data), address, data.nbytes)

    def _check(self, address: int, nbytes: int) -> None:
        """Memory that was allocated, and not freed, lies there."""
        at = bisect.bisect_right(self._starts, address) - 1
        start = self._starts[at] if at >= 0 else 0
        if at < 0 or address + nbytes > start + self._sizes[start]:
            raise InternalError(f"cuda-host: {nbytes} bytes at {address:#x} are not allocated")

    # ---- code

    def load(self, image: bytes, entry: str) -> _Loaded:
        found = runtime.open_image(image, entry)
        _, first, last, _ = found.shared
        return _Loaded(found, entry, last - first)

    def resources(self, function: _Loaded) -> Resources:
        """Registers and stacks are the compiler's for this CPU: none are told."""
        return Resources(0, 0, function.shared_bytes, function.image.most_items)

    def allow(self, function: _Loaded, shared_bytes: int) -> None:
        if function.shared_bytes + shared_bytes > _SHARED_BYTES:
            raise OutOfResources(
                f"program {function.entry}: a group shares "
                f"{function.shared_bytes + shared_bytes} bytes, there are {_SHARED_BYTES}"
            )
        function.allowed = max(function.allowed, shared_bytes)

    def unload(self, function: _Loaded) -> None:
        self._queue.append(functools.partial(runtime.unload, function.image))
        self._run()

    def launch(self, function: _Loaded, geometry: Geometry, addresses: Sequence[int]) -> None:
        checked = self._launch(function, geometry, addresses)
        self._queue.append(functools.partial(self._start, *checked))

    def _launch(
        self, function: _Loaded, geometry: Geometry, addresses: Sequence[int]
    ) -> tuple[_Loaded, Geometry, tuple[int, ...]]:
        """Check what a GPU's driver would check of a launch. Raises OutOfResources and
        InternalError.
        """
        name, g = f"program {function.entry} on cuda-host", geometry
        most = min(_MOST_ITEMS, function.image.most_items)
        if g.items > most:
            raise OutOfResources(f"{name}: groups of {g.items} items, it runs in up to {most}")
        if g.groups < 1 or g.items < 1:
            raise InternalError(f"{name}: {g.groups} groups of {g.items} items")
        if g.shared_bytes > function.allowed:
            raise InternalError(f"{name}: {g.shared_bytes} bytes to share were not allowed before")
        if len(addresses) != function.image.arguments:
            wants = function.image.arguments
            raise InternalError(f"{name}: {len(addresses)} arguments, it has {wants}")
        return function, g, tuple(addresses)

    def _start(self, function: _Loaded, geometry: Geometry, addresses: tuple[int, ...]) -> None:
        """Nothing runs after a fault."""
        if self._broken:
            return
        arguments = (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
        i, g = function.image, geometry
        job = runtime.Job(
            i.run, ctypes.addressof(arguments), g.groups, g.items, g.shared_bytes, self._lazy,
            self._seed, i.shared,
        )  # fmt: skip
        try:
            fault = runtime.call(job)
        except MemoryError as error:
            fault = f"no memory for {error}"
        if fault:
            self._broken = f"{_FAULT}{function.entry}: {fault}"

    def finish(self) -> None:
        self._run()
        if self._broken:
            raise DeviceFault(self._broken)

    def _run(self) -> None:
        """All that is enqueued, in order.

        Called by what runs here (memory that the collector of garbage gives back between two
        launches), it does nothing: the outer call comes to it.
        """
        if self._running:
            return
        self._running = True
        try:
            while self._queue:
                queue, self._queue = self._queue, []
                for work in queue:
                    work()
        finally:
            self._running = False

    # ---- time and graphs

    def event(self) -> _Mark:
        mark = _Mark()
        self._queue.append(mark.reach)
        return mark

    def forget(self, event: _Mark) -> None:
        """There is nothing to give back."""

    def seconds(self, first: _Mark, last: _Mark) -> float:
        if first.reached_ns is None or last.reached_ns is None:
            raise InternalError("cuda-host: a mark was not reached")
        return (last.reached_ns - first.reached_ns) * 1e-9

    def graph(
        self,
        launches: Sequence[tuple[_Loaded, Geometry, Sequence[int]]],
        marks: Mapping[int, _Mark] | None = None,
    ) -> _Launches:
        return _Launches(tuple(self._launch(*launch) for launch in launches), dict(marks or {}))

    def replay(self, graph: _Launches) -> None:
        for place in range(len(graph.launches) + 1):
            if place in graph.marks:
                self._queue.append(graph.marks[place].reach)
            if place < len(graph.launches):
                self._queue.append(functools.partial(self._start, *graph.launches[place]))

    def drop(self, graph: _Launches) -> None:
        """There is nothing to give back."""

    def close(self) -> None:
        """Code that is still loaded stays: it belongs to this process."""
        self._queue.clear()
        for address, nbytes in self._sizes.items():
            self._library.tg_host_free(address, nbytes)
        self._starts.clear()
        self._sizes.clear()


def _address(data: NDArray[Any]) -> int:
    return int(data.ctypes.data)
