"""A driver without a GPU: memory of this process, and kernels that are built for this CPU.

What a driver enqueues happens at once here. A fault of a kernel is told by the call that waits
next, as a GPU's is.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunegrad.devices.cuda.driver import Function, Resources
from tunegrad.devices.job import Geometry
from tunegrad.errors import CompileFailure, DeviceFault, OutOfResources

__all__ = ["HostDriver"]

_ALIGN = 256
_MOST_ITEMS = 1024
_STACK_BYTES = 256 << 10
_FAULT_BYTES = 256
_FAULT = "a kernel's fault: "


_dlclose = ctypes.CDLL(None).dlclose
_dlclose.argtypes = [ctypes.c_void_p]


class _Job(ctypes.Structure):
    """``tg_job`` of host.hpp."""

    _fields_ = (
        ("groups", ctypes.c_uint32),
        ("items", ctypes.c_uint32),
        ("shared", ctypes.c_uint32),
        ("seed", ctypes.c_uint32),
        ("arguments", ctypes.c_void_p),
        ("dynamic", ctypes.c_void_p),
        ("stacks", ctypes.c_void_p),
        ("stack_bytes", ctypes.c_uint64),
        ("fault", ctypes.c_void_p),
    )


@dataclass(frozen=True, slots=True)
class _Loaded:
    library: ctypes.CDLL
    start: Any
    entry: str
    file: int
    """Open as long as it is loaded: the loader takes two libraries of one name for one."""


class HostDriver:
    """See ``devices.cuda.driver.Driver``. ``seed``: the order of threads; 0 is that of indices."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._memory: dict[int, NDArray[np.uint8]] = {}
        self._stacks = mmap.mmap(-1, _MOST_ITEMS * _STACK_BYTES)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._stacks))
        self._broken = ""

    # ---- memory

    def allocate(self, nbytes: int) -> int:
        whole = np.empty(nbytes + _ALIGN, np.uint8)
        address = -(-int(whole.ctypes.data) // _ALIGN) * _ALIGN
        self._memory[address] = whole
        return address

    def free(self, address: int) -> None:
        del self._memory[address]

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        ctypes.memset(address, byte, nbytes)

    def write(self, address: int, data: NDArray[Any]) -> None:
        ctypes.memmove(address, data.ctypes.data, data.nbytes)

    def read(self, address: int, data: NDArray[Any]) -> None:
        self.finish()
        ctypes.memmove(data.ctypes.data, address, data.nbytes)

    # ---- code

    def load(self, image: bytes, entry: str) -> Function:
        file = os.memfd_create("tunegrad")
        try:
            os.write(file, image)
            library = ctypes.CDLL(f"/proc/self/fd/{file}")
            start = library.tg_start
        except (OSError, AttributeError) as error:
            os.close(file)
            raise CompileFailure(f"program {entry}: its image does not load: {error}") from error
        start.argtypes, start.restype = [ctypes.POINTER(_Job)], None
        return _Loaded(library, start, entry, file)

    def resources(self, _: Function) -> Resources:
        return Resources(0, 0, 0, _MOST_ITEMS)

    def allow(self, function: Function, shared_bytes: int) -> None:
        """There is as much as is asked for."""

    def unload(self, function: Function) -> None:
        _dlclose(function.library._handle)  # noqa: SLF001
        os.close(function.file)

    def launch(self, function: Function, geometry: Geometry, addresses: Sequence[int]) -> None:
        if geometry.items > _MOST_ITEMS:
            raise OutOfResources(f"groups of {geometry.items} items: {_MOST_ITEMS} at most")
        if self._broken:
            return
        arguments = (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
        shared = np.empty(geometry.shared_bytes + 1024, np.uint8)
        fault = ctypes.create_string_buffer(_FAULT_BYTES)
        job = _Job(
            geometry.groups, geometry.items, geometry.shared_bytes, self._seed,
            ctypes.addressof(arguments), -(-int(shared.ctypes.data) // 1024) * 1024, self._base,
            _STACK_BYTES, ctypes.addressof(fault),
        )  # fmt: skip
        function.start(ctypes.byref(job))
        if fault.value:
            self._broken = f"{_FAULT}{function.entry}: {fault.value.decode()}"

    def finish(self) -> None:
        if self._broken:
            raise DeviceFault(self._broken)

    # ---- time and graphs

    def event(self) -> float:
        return time.perf_counter()

    def seconds(self, first: float, last: float) -> float:
        return last - first

    def forget(self, event: float) -> None:
        """There is nothing to give back."""

    def graph(
        self, launches: Sequence[tuple[Function, Geometry, Sequence[int]]]
    ) -> tuple[Any, ...]:
        return tuple(launches)

    def replay(self, graph: tuple[Any, ...]) -> None:
        for launch in graph:
            self.launch(*launch)

    def drop(self, graph: tuple[Any, ...]) -> None:
        """There is nothing to give back."""

    def close(self) -> None:
        self._memory.clear()
