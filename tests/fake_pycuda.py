"""pycuda without a GPU: the part of its documented interface that the driver over it calls, on
cuda-host's driver.

pycuda has no wheels and does not build without CUDA's headers, so nothing here is held against the
package: names, arguments and exceptions are those of its documentation and of its ``driver.py``.
What needs a current context fails without one. After a kernel's fault every call says so, as on a
GPU.
"""

from __future__ import annotations

import builtins
import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np

from tests.cuda_host.device import CudaHost
from tests.cuda_host.driver import HostDriver
from tunegrad.devices.cuda.engine import CudaEngine
from tunegrad.devices.cuda.pycuda import PycudaDriver
from tunegrad.devices.job import Geometry
from tunegrad.errors import CompileFailure, DeviceFault, OutOfResources

__all__ = ["FakePycuda", "PycudaGpu", "installed"]

_STICKY = "an illegal memory access was encountered"
_STREAM = 0x5EED


class Error(Exception):
    """Of all of pycuda's."""


class MemoryError(Error, builtins.MemoryError):  # noqa: A001
    """Too little memory."""


class LogicError(Error):
    """A wrong argument, or a fault that was met before."""


class LaunchError(Error):
    """A launch that failed, or asked for too much."""


class FakePycuda(ModuleType):
    """``pycuda.driver``. Contexts are a stack of each thread. ``pushed`` counts them all."""

    Error, MemoryError, LogicError, LaunchError = Error, MemoryError, LogicError, LaunchError

    def __init__(self) -> None:
        super().__init__("pycuda.driver")
        self._host = HostDriver()
        self._stack = threading.local()
        self._broken = self._begun = False
        self.pushed = 0
        self.Device, self.Stream, self.Event = (
            self._bound(kind) for kind in (_Device, _Stream, _Event)
        )
        self.function_attribute = _Attributes

    def _bound(self, kind: type) -> Callable[..., Any]:
        return lambda *arguments: kind(self, *arguments)

    def _entered(self) -> HostDriver:
        """The machine, for a call that needs a context."""
        if not getattr(self._stack, "contexts", None):
            raise LogicError("invalid device context - no currently active context?")
        if self._broken:
            raise LogicError(f"cuCtxSynchronize failed: {_STICKY}")
        return self._host

    def _wait(self, host: HostDriver) -> None:
        try:
            host.finish()
        except DeviceFault:
            self._broken = True
            raise LogicError(f"cuStreamSynchronize failed: {_STICKY}") from None

    def init(self, flags: int = 0) -> None:
        self._begun = True

    def mem_get_info(self) -> tuple[int, int]:
        return self._entered().memory()

    def mem_alloc(self, nbytes: int) -> _Allocation:
        try:
            return _Allocation(self, self._entered().allocate(nbytes))
        except builtins.MemoryError:
            raise MemoryError("cuMemAlloc failed: out of memory") from None

    def memset_d8_async(self, dest: int, data: int, count: int, stream: Any = None) -> None:
        assert stream.handle == _STREAM
        self._entered().fill(dest, data, count)

    def memcpy_htod_async(self, dest: int, src: Any, stream: Any = None) -> None:
        host, view = self._entered(), memoryview(src)
        assert view.c_contiguous
        assert stream.handle == _STREAM
        host._check(dest, view.nbytes)
        data = bytes(np.asarray(src).tobytes())  # the caller keeps it until it has waited
        host._queue.append(lambda: ctypes.memmove(dest, data, len(data)))

    def memcpy_dtoh_async(self, dest: Any, src: int, stream: Any = None) -> None:
        host, view = self._entered(), memoryview(dest)
        assert view.c_contiguous
        assert not view.readonly
        assert stream.handle == _STREAM
        host._check(src, view.nbytes)
        at = dest.ctypes.data
        host._queue.append(lambda: ctypes.memmove(at, src, view.nbytes))

    def module_from_buffer(self, buffer: bytes) -> _Module:
        host = self._entered()
        if not buffer.startswith(b"\x7fELF"):
            raise LogicError("cuModuleLoadDataEx failed: device kernel image is invalid")
        return _Module(self, host, buffer)


class _Attributes:
    """Names of ``pycuda.driver.function_attribute``."""

    MAX_DYNAMIC_SHARED_SIZE_BYTES = "MAX_DYNAMIC_SHARED_SIZE_BYTES"


@dataclass(slots=True)
class _Device:
    cuda: FakePycuda
    number: int

    def retain_primary_context(self) -> _Context:
        assert self.cuda._begun, "init comes first"
        return _Context(self.cuda)


@dataclass(slots=True)
class _Context:
    cuda: FakePycuda

    def push(self) -> None:
        stack = self.cuda._stack
        stack.contexts = (*getattr(stack, "contexts", ()), self)
        self.cuda.pushed += 1

    def pop(self) -> None:
        self.cuda._stack.contexts = self.cuda._stack.contexts[:-1]

    def detach(self) -> None:
        self.cuda._host.close()


class _Allocation:
    """``DeviceAllocation``: a number, given back once."""

    def __init__(self, cuda: FakePycuda, address: int) -> None:
        self._cuda, self._address = cuda, address

    def __int__(self) -> int:
        return self._address

    def free(self) -> None:
        self._cuda._entered().free(self._address)


class _Stream:
    handle = _STREAM

    def __init__(self, cuda: FakePycuda, flags: int = 0) -> None:
        cuda._entered()
        self._cuda = cuda

    def synchronize(self) -> None:
        self._cuda._wait(self._cuda._entered())


class _Event:
    def __init__(self, cuda: FakePycuda, flags: int = 0) -> None:
        cuda._entered()
        self._cuda = cuda
        self.mark: Any = None

    def record(self, stream: Any = None) -> _Event:
        assert stream.handle == _STREAM
        self.mark = self._cuda._entered().event()
        return self

    def time_since(self, event: _Event) -> float:
        """Milliseconds."""
        return 1e3 * self._cuda._entered().seconds(event.mark, self.mark)


@dataclass(slots=True)
class _Module:
    cuda: FakePycuda
    host: HostDriver
    image: bytes

    def get_function(self, name: str) -> _Function:
        self.cuda._entered()
        try:
            return _Function(self.cuda, self.host.load(self.image, name))
        except CompileFailure:
            raise LogicError("cuModuleGetFunction failed: named symbol not found") from None


class _Function:
    def __init__(self, cuda: FakePycuda, loaded: Any) -> None:
        self._cuda, self._loaded = cuda, loaded
        self._format: str | None = None
        found = cuda._host.resources(loaded)
        self.num_regs, self.local_size_bytes = found.registers, found.local_bytes
        self.shared_size_bytes = found.shared_bytes
        self.max_threads_per_block = found.most_items

    def set_attribute(self, attribute: str, value: int) -> None:
        assert attribute == _Attributes.MAX_DYNAMIC_SHARED_SIZE_BYTES
        try:
            self._cuda._entered().allow(self._loaded, value)
        except OutOfResources:
            raise LogicError("cuFuncSetAttribute failed: invalid argument") from None

    def prepare(self, arg_types: str) -> _Function:
        assert set(arg_types) <= {"P"}
        self._format = arg_types
        return self

    def prepared_async_call(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        stream: Any,
        *arguments: int,
        shared_size: int = 0,
    ) -> None:
        assert self._format is not None
        assert len(self._format) == len(arguments)
        assert (grid[1:], block[1:], stream.handle) == ((1, 1), (1, 1), _STREAM)
        try:
            geometry = Geometry(grid[0], block[0], shared_size)
            self._cuda._entered().launch(self._loaded, geometry, arguments)
        except OutOfResources:
            raise LaunchError(
                "cuLaunchKernel failed: too many resources requested for launch"
            ) from None


@contextmanager
def installed() -> Iterator[FakePycuda]:
    """``import pycuda.driver`` gives a fake."""
    package, made = ModuleType("pycuda"), FakePycuda()
    package.driver = made  # type: ignore[attr-defined]
    with patch.dict(sys.modules, {"pycuda": package, "pycuda.driver": made}):
        yield made


@dataclass(frozen=True, slots=True)
class PycudaGpu(CudaHost):
    """cuda-host through the driver over pycuda."""

    def open(self, pin: bool = False) -> CudaEngine:
        with installed():
            return CudaEngine(self, PycudaDriver(0))
