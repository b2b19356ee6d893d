"""An OpenCL device, open in this process: buffers between guard zones, kernels, and one queue in
order.

allocate     guard | data, which kernels get as a sub-buffer | guard
protect      the driver can not keep kernels from writing: a digest is kept, and compared when asked
time         profiling events, on the device's own clock
plan         all launches are enqueued, then waited for once
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from tunegrad.devices.device import MachineLimits
from tunegrad.devices.host.buffers import GUARD
from tunegrad.devices.job import Array, CompiledCandidate, Lowered
from tunegrad.devices.lowered import contents_digest
from tunegrad.devices.opencl.device import OpenClDevice, opened
from tunegrad.devices.remote import GUARD_BYTES, RemoteMemory, packed
from tunegrad.errors import CompileFailure, InternalError, OutOfResources
from tunegrad.ir.layout import Pack

if TYPE_CHECKING:
    from tunegrad.devices.device import BoundPlan
    from tunegrad.trial import Properties

# ---- peaks
#
# Peaks of an OpenCL device, measured by kernels written for nothing else: f32 FMA, read and
# triad.


_SAMPLES, _ITEMS = 5, 64

_CHAINS, _STEPS = 8, 4096

_FLOATS = 8 << 20
"""Of an array in memory, 32 MB: more than the caches of most devices hold."""

_TEXT = """
__kernel void peak_fma(__global float4 *out) {
  const float4 s = out[get_global_id(0)];
  float4 a0 = s, a1 = s + 1, a2 = s + 2, a3 = s + 3, a4 = s + 4, a5 = s + 5, a6 = s + 6, a7 = s + 7;
  for (int i = 0; i < STEPS; ++i) {
    a0 = fma(a0, s, s); a1 = fma(a1, s, s); a2 = fma(a2, s, s); a3 = fma(a3, s, s);
    a4 = fma(a4, s, s); a5 = fma(a5, s, s); a6 = fma(a6, s, s); a7 = fma(a7, s, s);
  }
  out[get_global_id(0)] = a0 + a1 + a2 + a3 + a4 + a5 + a6 + a7;
}
__kernel void peak_read(__global float4 *out, __global const float4 *a, int steps) {
  float4 sum = 0;
  const int n = get_global_size(0);
  for (int i = 0; i < steps; ++i) sum += a[i * n + get_global_id(0)];
  out[get_global_id(0)] = sum;
}
__kernel void peak_triad(__global float4 *a, __global const float4 *b, __global const float4 *c) {
  const size_t i = get_global_id(0);
  a[i] = b[i] + 3.0f * c[i];
}
"""


def measure_limits(engine: OpenClEngine) -> MachineLimits:
    """By the device's own clock; one figure for the whole device, under the number of its units."""
    cl, units = engine.cl, engine.device.target.threads
    options = ["-cl-std=CL1.2", f"-DSTEPS={_STEPS}"]
    built = cl.Program(engine.context, _TEXT).build(options=options, cache_dir=False)
    flags, items = cl.mem_flags.READ_WRITE, units * 16 * _ITEMS
    out = cl.Buffer(engine.context, flags, size=16 * items)
    arrays = [cl.Buffer(engine.context, flags, size=4 * _FLOATS) for _ in range(3)]
    for buffer, nbytes in ((out, 16 * items), *((a, 4 * _FLOATS) for a in arrays)):
        cl.enqueue_fill_buffer(engine.queue, buffer, np.float32(0.5), 0, nbytes)

    def best_s(name: str, size: int, *arguments: Any) -> float:
        kernel = cl.Kernel(built, name)
        kernel.set_args(*arguments)
        events = [
            cl.enqueue_nd_range_kernel(engine.queue, kernel, (size,), (_ITEMS,))
            for _ in range(_SAMPLES)
        ]
        engine.queue.finish()
        return min(float(e.profile.end - e.profile.start) * 1e-9 for e in events)

    fma = 2.0 * 4 * _CHAINS * _STEPS * items / best_s("peak_fma", items, out)
    steps = _FLOATS // 4 // items
    read = 16.0 * steps * items / best_s("peak_read", items, out, arrays[0], np.int32(steps))
    triad = 12.0 * _FLOATS / best_s("peak_triad", _FLOATS // 4, *arrays)
    at = ((units, read),)
    return MachineLimits(((units, fma),), at, ((units, triad),), ())


# ---- engine


_MOST_EVICTED = 64 << 20


class ClMemory(RemoteMemory):
    """See ``devices.device.Memory``.

    ``raw`` is what kernels get; ``whole`` has the guard zones, too.
    """

    __slots__ = ("_engine", "raw", "whole")

    def __init__(
        self, engine: OpenClEngine, raw: Any, nbytes: int, whole: Any, guard: int, owner: object
    ) -> None:
        super().__init__(nbytes, guard, owner)
        self._engine, self.raw, self.whole = engine, raw, whole

    def _bytes(self) -> NDArray[np.uint8]:
        return self._engine.read_bytes(self.raw, self.nbytes)

    def _zones(self) -> Iterator[tuple[NDArray[np.uint8], str]]:
        if self.whole is None:
            return
        data = self._engine.read_bytes(self.whole, self._engine.whole_bytes(self.nbytes))
        yield data[:GUARD_BYTES], "before its start"
        yield data[GUARD_BYTES + self.nbytes :], "past its end"


class ClCode:
    """A built program and the name of its kernel."""

    __slots__ = ("__weakref__", "compiled", "program")

    def __init__(self, program: Any, compiled: CompiledCandidate | Lowered) -> None:
        self.program, self.compiled = program, compiled

    def close(self) -> None:
        """The driver frees it with the last kernel."""
        self.program = None


@dataclass(frozen=True, slots=True)
class _Launch:
    """A kernel object of its own: setting an argument of another launch does not touch it."""

    kernel: Any
    memories: tuple[ClMemory, ...]
    global_size: tuple[int]
    local_size: tuple[int]


class OpenClEngine:
    """See ``devices.device.Engine``."""

    at_once = 1

    def __init__(self, device: OpenClDevice) -> None:
        here = opened(device)
        self.device, self.cl, self.context = device, here.cl, here.context
        profiling = here.cl.command_queue_properties.PROFILING_ENABLE
        self.queue = here.cl.CommandQueue(here.context, properties=profiling)
        self.align: int = device.target.view_bytes
        self.lock = threading.RLock()
        self._spare: Any = None
        self._cache_bytes = min(_MOST_EVICTED, 2 * int(here.device.global_mem_cache_size))

    # ---- memory

    def whole_bytes(self, nbytes: int) -> int:
        """Bytes of a buffer with both guard zones."""
        return GUARD_BYTES + -(-nbytes // self.align) * self.align + GUARD_BYTES

    def allocate(
        self, nbytes: int, touched: bool = True, guard: int | None = None, shift: int = 0
    ) -> ClMemory:
        guard, size = GUARD if guard is None else guard, self.whole_bytes(nbytes)
        with self.lock:
            try:
                whole = self.cl.Buffer(self.context, self.cl.mem_flags.READ_WRITE, size=size)
                self._set(whole, guard, 0, size)
                raw = whole.get_sub_region(GUARD_BYTES, max(1, nbytes))
                if nbytes and touched:
                    self._set(raw, 0, 0, nbytes)
                self.queue.finish()
            except (self.cl.MemoryError, self.cl.RuntimeError, self.cl.LogicError) as error:
                raise MemoryError(
                    f"buffer of {nbytes} bytes on {self.device.name}: {error}"
                ) from error
        return ClMemory(self, raw, nbytes, whole, guard, None)

    def part(self, memory: ClMemory, start: int, nbytes: int) -> ClMemory:
        """Of a sub-buffer there is no sub-buffer: it is one of the whole."""
        if start % self.align or memory.whole is None:
            raise InternalError(
                f"part at {start} of memory on {self.device.name}: multiples of {self.align}"
            )
        raw = memory.whole.get_sub_region(GUARD_BYTES + start, max(1, nbytes))
        return ClMemory(self, raw, nbytes, None, GUARD, memory)

    def fresh(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        return np.empty(shape, dtype)

    def borrow(self, array: NDArray[Any]) -> ClMemory | None:
        return None

    def write(self, memory: ClMemory, values: Array) -> None:
        if values.nbytes:
            with self.lock:
                self.cl.enqueue_copy(
                    self.queue, memory.raw, np.ascontiguousarray(values), is_blocking=True
                )

    def pack(self, pack: Pack, source: Array, memory: ClMemory, rest: int = 0) -> None:
        self.write(memory, packed(pack, source, memory.nbytes, rest))

    def fill(self, memory: ClMemory, byte: int) -> None:
        if memory.nbytes:
            with self.lock:
                self._set(memory.raw, byte, 0, memory.nbytes)
                self.queue.finish()

    def digest(self, memories: Sequence[ClMemory]) -> str:
        return contents_digest(self.read_bytes(m.raw, m.nbytes) for m in memories)

    def watch(self, memories: Sequence[ClMemory | None]) -> None:
        """Protected memory is compared when its damage is asked for."""

    def read_bytes(self, raw: Any, nbytes: int) -> NDArray[np.uint8]:
        """A copy of the first bytes of a driver's buffer."""
        data = np.empty(nbytes, np.uint8)
        if nbytes:
            with self.lock:
                self.cl.enqueue_copy(self.queue, data, raw, is_blocking=True)
        return data

    # ---- code

    def load(self, compiled: CompiledCandidate | Lowered, image: bytes) -> ClCode:
        cl, (raw,) = self.cl, self.context.devices
        try:
            with warnings.catch_warnings(action="ignore", category=cl.CompilerWarning):
                program = cl.Program(self.context, [raw], [image]).build(cache_dir=False)
                kernel = cl.Kernel(program, compiled.entry)
        except (cl.Error, ValueError) as error:
            raise CompileFailure(
                f"program {compiled.entry} on {self.device.name}: {error}"
            ) from error
        self._check_kernel(kernel, compiled)
        return ClCode(program, compiled)

    def _check_kernel(self, kernel: Any, compiled: CompiledCandidate | Lowered) -> None:
        """Check that what the driver made of it fits the device, which a text does not show:
        registers, say.

        Drivers may launch what takes more local memory than they say that there is, as PoCL does.
        """
        cl, (raw,), items = self.cl, self.context.devices, compiled.geometry.items
        shared = kernel.get_work_group_info(cl.kernel_work_group_info.LOCAL_MEM_SIZE, raw)
        most = kernel.get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, raw)
        name = f"program {compiled.entry} on {self.device.name}"
        has = self.device.target.shared_bytes
        if shared > has:
            raise OutOfResources(f"{name}: {shared} bytes of local memory, there are {has}")
        if items > most:
            raise OutOfResources(f"{name}: groups of {items} work-items, it runs in up to {most}")

    def launch(
        self, code: ClCode, memories: Sequence[ClMemory], scratch: Sequence[ClMemory]
    ) -> _Launch:
        kernel = self.cl.Kernel(code.program, code.compiled.entry)
        held = (*memories, *scratch)
        kernel.set_args(*(m.raw for m in held))
        g = code.compiled.geometry
        return _Launch(kernel, held, (g.groups * g.items,), (g.items,))

    def bind(self, launches: Sequence[_Launch]) -> BoundPlan:
        return _Plan(self, tuple(launches))

    def enqueue(self, launch: _Launch) -> Any:
        """One launch, not waited for; its event. Raises OutOfResources where the driver refuses."""
        cl, sizes = self.cl, (launch.global_size, launch.local_size)
        try:
            return cl.enqueue_nd_range_kernel(self.queue, launch.kernel, *sizes)
        except (cl.MemoryError, cl.RuntimeError) as error:
            raise OutOfResources(f"{self.device.name}: {error}") from error

    def finish(self) -> None:
        """Wait. Raises OutOfResources where the driver could not run what was enqueued."""
        try:
            self.queue.finish()
        except (self.cl.MemoryError, self.cl.RuntimeError) as error:
            raise OutOfResources(f"{self.device.name}: {error}") from error

    # ---- time

    def time(
        self,
        launch: _Launch,
        samples: int,
        inner: int = 1,
        evicted: Sequence[ClMemory] = (),
        near: Sequence[ClMemory] = (),
    ) -> tuple[float, ...]:
        seconds = []
        with self.lock:
            for _ in range(samples):
                if evicted:
                    self._evict()
                events = [self.enqueue(launch) for _ in range(inner)]
                self.finish()
                seconds.append(sum(e.profile.end - e.profile.start for e in events) * 1e-9 / inner)
        return tuple(seconds)

    def state(self) -> Properties:
        return self.device.state()

    def disorder(self) -> str:
        return ""

    def limits(self) -> MachineLimits:
        with self.lock:
            return measure_limits(self)

    def close(self) -> None:
        self._spare = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _set(self, raw: Any, byte: int, start: int, nbytes: int) -> None:
        self.cl.enqueue_fill_buffer(self.queue, raw, np.uint8(byte), start, nbytes)

    def _evict(self) -> None:
        """Write more than the device's cache holds."""
        if self._spare is None:
            self._spare = self.cl.Buffer(
                self.context, self.cl.mem_flags.READ_WRITE, size=self._cache_bytes
            )
        self._set(self._spare, 0, 0, self._cache_bytes)


@dataclass(frozen=True, slots=True)
class _Plan:
    """Launches in one queue."""

    engine: OpenClEngine
    launches: tuple[_Launch, ...]

    def point(self, step: int, argument: int, memory: ClMemory) -> None:
        self.launches[step].kernel.set_arg(argument, memory.raw)

    def run(self) -> None:
        with self.engine.lock:
            for launch in self.launches:
                self.engine.enqueue(launch)
            self.engine.finish()

    def time(self, samples: int, each: bool = False) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """From the start of the first launch to the end of the last one."""
        runs, parts = [], np.zeros(len(self.launches))
        with self.engine.lock:
            for _ in range(samples):
                events = [self.engine.enqueue(launch) for launch in self.launches]
                self.engine.finish()
                if events:
                    runs.append((events[-1].profile.end - events[0].profile.start) * 1e-9)
                    parts += [(e.profile.end - e.profile.start) * 1e-9 for e in events]
        return tuple(runs), tuple((parts / max(1, samples)).tolist()) if each else ()
