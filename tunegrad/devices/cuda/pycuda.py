"""A driver over pycuda. It has no graphs: what would be one is launched one by one.

pycuda keeps a stack of contexts a thread: each call pushes the GPU's primary context, which other
libraries in this process use, too, and pops it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

from numpy.typing import NDArray

from tunegrad.devices.cuda.driver import DLPACK_CUDA, Function, Resources
from tunegrad.devices.job import Geometry
from tunegrad.errors import CompileFailure, DeviceError, DeviceFault, OutOfResources

_REFUSED = ("too many resources requested", "out of memory", "invalid argument")
"""The driver's words for a launch that breaks nothing."""

F = TypeVar("F", bound=Callable[..., Any])


def _entered(method: F) -> F:
    """With the GPU's context; what the driver says in no other words is a fault."""

    @wraps(method)
    def call(self: PycudaDriver, *args: Any) -> Any:
        self.context.push()
        try:
            return method(self, *args)
        except self.cuda.Error as error:
            raise DeviceFault(str(error)) from error
        finally:
            self.context.pop()

    return cast("F", call)


def refused(text: str) -> bool:
    """True for the error of a launch that asked for too much; others are of earlier kernels."""
    return any(words in text for words in _REFUSED)


class PycudaDriver:
    """See ``devices.cuda.driver.Driver``."""

    def __init__(self, number: int) -> None:
        try:
            import pycuda.driver as cuda
        except ImportError as error:
            raise DeviceError(f"pycuda: pip install 'tunegrad[pycuda]' ({error})") from error
        cuda.init()
        self.cuda, self._number = cuda, number
        self.context = cuda.Device(number).retain_primary_context()
        self._held: dict[int, Any] = {}
        self.context.push()
        try:
            self._stream = cuda.Stream()
        finally:
            self.context.pop()

    @property
    def place(self) -> tuple[int, int]:
        return DLPACK_CUDA, self._number

    @property
    def stream(self) -> int | None:
        return int(self._stream.handle)

    # ---- memory

    @_entered
    def memory(self) -> tuple[int, int]:
        free, total = self.cuda.mem_get_info()
        return int(free), int(total)

    @_entered
    def allocate(self, nbytes: int) -> int:
        try:
            made = self.cuda.mem_alloc(max(1, nbytes))
        except self.cuda.MemoryError as error:
            free, total = self.memory()
            raise MemoryError(f"{free} of {total} bytes are free") from error
        self._held[int(made)] = made
        return int(made)

    @_entered
    def free(self, address: int) -> None:
        self._held.pop(address).free()

    @_entered
    def fill(self, address: int, byte: int, nbytes: int) -> None:
        if nbytes:
            self.cuda.memset_d8_async(address, byte, nbytes, self._stream)

    @_entered
    def write(self, address: int, data: NDArray[Any]) -> None:
        if data.nbytes:
            self.cuda.memcpy_htod_async(address, data, self._stream)
            self._stream.synchronize()

    @_entered
    def read(self, address: int, data: NDArray[Any]) -> None:
        if data.nbytes:
            self.cuda.memcpy_dtoh_async(data, address, self._stream)
            self._stream.synchronize()

    # ---- code

    @_entered
    def load(self, image: bytes, entry: str) -> Function:
        try:
            module = self.cuda.module_from_buffer(image)
            return module, module.get_function(entry)
        except self.cuda.Error as error:
            raise CompileFailure(f"program {entry}: its image does not load: {error}") from error

    @_entered
    def resources(self, function: Function) -> Resources:
        f = function[1]
        return Resources(
            f.num_regs, f.local_size_bytes, f.shared_size_bytes, f.max_threads_per_block
        )

    @_entered
    def allow(self, function: Function, shared_bytes: int) -> None:
        kind = self.cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
        try:
            function[1].set_attribute(kind, shared_bytes)
        except self.cuda.Error as error:
            raise OutOfResources(f"{shared_bytes} bytes shared by a group: {error}") from error

    def unload(self, function: Function) -> None:
        """pycuda unloads a module with the last reference to it."""

    @_entered
    def launch(self, function: Function, geometry: Geometry, addresses: Sequence[int]) -> None:
        f, g = function[1], geometry
        f.prepare("P" * len(addresses))
        try:
            f.prepared_async_call(
                (g.groups, 1, 1), (g.items, 1, 1), self._stream, *addresses,
                shared_size=g.shared_bytes,
            )  # fmt: skip
        except (self.cuda.LaunchError, self.cuda.LogicError) as error:
            if not refused(str(error)):
                raise
            raise OutOfResources(
                f"launch of {g.groups} groups of {g.items} items: {error}"
            ) from error

    @_entered
    def finish(self) -> None:
        self._stream.synchronize()

    # ---- time and graphs

    @_entered
    def event(self) -> Any:
        return self.cuda.Event().record(self._stream)

    @_entered
    def seconds(self, first: Any, last: Any) -> float:
        return float(last.time_since(first)) * 1e-3

    def forget(self, event: Any) -> None:
        """pycuda destroys an event with the last reference to it."""

    def graph(
        self,
        launches: Sequence[tuple[Function, Geometry, Sequence[int]]],
        marks: Mapping[int, Any] | None = None,
    ) -> Any:
        return tuple(launches), dict(marks or {})

    @_entered
    def replay(self, graph: Any) -> None:
        launches, marks = graph
        for place in range(len(launches) + 1):
            if place in marks:
                marks[place].record(self._stream)
            if place < len(launches):
                self.launch(*launches[place])

    def drop(self, graph: Any) -> None:
        """There is nothing to give back."""

    def close(self) -> None:
        if self.context is not None:
            self._stream = None
            self.context.detach()
            self.context = None
