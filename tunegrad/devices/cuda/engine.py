"""A CUDA device, open in this process: memory between guard zones, kernels, and one stream.

allocate   guard | data | guard    the driver's, at multiples of 256; kept for the next of its size
protect    nothing keeps a kernel from writing: a digest is kept, and compared when asked
digest     once the engine watches, a kernel sums up what lies there: copies of it would take longer
           than most candidates run
time       events on the device's clock, within a graph of what is timed
plan       a graph of all launches, made when it first runs; a new one where it is pointed elsewhere

What drives it is a ``Driver``: a GPU's, or one that runs the same code on the CPU.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from tunegrad.devices.cuda.driver import Driver, Event, Function, Graph
from tunegrad.devices.device import MachineLimits
from tunegrad.devices.host.buffers import GUARD
from tunegrad.devices.job import Array, CompiledCandidate, Geometry, KernelIO, Lowered
from tunegrad.devices.lowered import contents_digest
from tunegrad.devices.remote import GUARD_BYTES, RemoteMemory, packed
from tunegrad.errors import DeviceFault, InternalError, OutOfResources
from tunegrad.ir.layout import Pack
from tunegrad.ir.target import MatrixUnit
from tunegrad.render.c_family import product_wrapper
from tunegrad.render.cuda import wrappers_text

if TYPE_CHECKING:
    from tunegrad.devices.device import BoundPlan, Device
    from tunegrad.trial import Properties

# ---- peaks
#
# Peaks of a CUDA device, measured by kernels written for nothing else: f32 FMA, the products of
# each matrix unit, read and triad.
#
# On an emulated GPU they are what fibers of a CPU do by turns, and rates of no GPU.


_SAMPLES, _ITEMS = 5, 256

_GROUPS = 8
"""Groups a unit."""

_CHAINS, _STEPS = 32, 1024

_SUMS = 4
"""Products of a warp that do not wait for each other; a unit has many warps besides."""

_LEAST_S = 1e-3

_PRODUCT_STEPS = (16, 128, 1024, 8192)
"""Of a launch, as many as take ``_LEAST_S`` or the most; an emulator takes it for the fewest."""

_HEAD = """
struct __align__(16) tg_four { float x, y, z, w; };
"""

_FMA = """
extern "C" __global__ void __launch_bounds__(ITEMS) peak_fma(float *out) {
  const int at = blockIdx.x * ITEMS + threadIdx.x;
  const float s = out[at];
  float CHAINS;
  for (int i = 0; i < STEPS; ++i) {
    UPDATES
  }
  out[at] = SUM;
}
"""
"""Chains are variables: no compiler has to see that an array is none."""

_READ = """
extern "C" __global__ void __launch_bounds__(ITEMS) peak_read(float *out, const tg_four *a) {
  const long long n = GRID * (long long)ITEMS, at = blockIdx.x * (long long)ITEMS + threadIdx.x;
  float sum = 0.0f;
  for (long long i = at; i < FLOATS / 4; i += n) sum += a[i].x + a[i].y + a[i].z + a[i].w;
  out[at] = sum;
}
"""

_TRIAD = """
extern "C" __global__ void __launch_bounds__(ITEMS) peak_triad(tg_four *a, const tg_four *b,
    const tg_four *c) {
  const long long n = GRID * (long long)ITEMS, at = blockIdx.x * (long long)ITEMS + threadIdx.x;
  for (long long i = at; i < FLOATS / 4; i += n) {
    tg_four x = b[i], y = c[i];
    a[i] = tg_four{x.x + 3.0f * y.x, x.y + 3.0f * y.y, x.z + 3.0f * y.z, x.w + 3.0f * y.w};
  }
}
"""

_C_TYPES = {"f32": "float", "i32": "int", "f64": "double"}


def products_text(unit: MatrixUnit, steps: int) -> str:
    """A kernel of ``steps`` times ``_SUMS`` products a warp, all of the same factors."""
    name, total = f"tg_{product_wrapper(unit)}", _C_TYPES[unit.dtypes[1]]
    word = "double" if unit.held == "f64" else "unsigned int"
    sizes = unit.highs * unit.steps, unit.steps
    a, b = (f"{x}[{n}] = {{{', '.join(['s'] * n)}}}" for x, n in zip("ab", sizes, strict=True))
    sums = [f"d{c}" for c in range(_SUMS)]
    declared = ", ".join(f"{d}[{unit.highs * unit.pair}] = {{}}" for d in sums)
    return f"""{wrappers_text([name])}
extern "C" __global__ void __launch_bounds__({_ITEMS}) peak_products({total} *out) {{
  const int at = blockIdx.x * {_ITEMS} + threadIdx.x;
  const {word} s = at;
  const {word} {a}, {b};
  {total} {declared};
  for (int i = 0; i < {steps}; ++i) {{
    {" ".join(f"{name}({d}, a, b);" for d in sums)}
  }}
  out[at] = {" + ".join(f"{d}[0]" for d in sums)};
}}
"""


def measure_limits(engine: CudaEngine) -> MachineLimits:
    """By the device's own clock; one figure for the whole device, under the number of its units.

    Arrays in memory have four times the bytes of the last cache.
    """
    target = engine.device.target
    units, floats = target.threads, target.l3_bytes
    grid = units * _GROUPS
    chains = [f"a{c}" for c in range(_CHAINS)]
    words = {
        "ITEMS": _ITEMS,
        "GRID": grid,
        "FLOATS": floats,
        "STEPS": _STEPS,
        "CHAINS": ", ".join(f"{a} = s + {c}" for c, a in enumerate(chains)),
        "UPDATES": " ".join(f"{a} = fmaf({a}, s, s);" for a in chains),
        "SUM": " + ".join(chains),
    }
    head = "".join(f"#define {k} {v}\n" for k, v in words.items()) + _HEAD
    out = engine.allocate(8 * grid * _ITEMS)
    arrays = [engine.allocate(4 * floats) for _ in range(3)]

    def best_s(name: str, text: str, *memories: object) -> float:
        lowered = Lowered(text, name, KernelIO(()), (), Geometry(grid, _ITEMS))
        code = engine.load(lowered, engine.device.compile(lowered))
        launch = engine.launch(code, memories, ())  # type: ignore[arg-type]
        return max(1e-9, min(engine.time(launch, _SAMPLES)))

    def products(unit: MatrixUnit) -> float:
        """Operations a second."""
        flops = 2.0 * prod(unit.shape) * _SUMS * grid * _ITEMS / unit.items
        for steps in _PRODUCT_STEPS:
            seconds = best_s("peak_products", products_text(unit, steps), out)
            if seconds >= _LEAST_S:
                break
        return flops * steps / seconds

    fma = 2.0 * _CHAINS * _STEPS * grid * _ITEMS / best_s("peak_fma", head + _FMA, out)
    read = 4.0 * floats / best_s("peak_read", head + _READ, out, arrays[0])
    triad = 12.0 * floats / best_s("peak_triad", head + _TRIAD, *arrays)
    found = tuple((u.name, products(u)) for u in target.units if isinstance(u, MatrixUnit))
    return MachineLimits(((units, fma),), ((units, read),), ((units, triad),), (), found)


# ---- engine


_ALIGN = 256

_SHARE = 0.9
"""Of the memory that is free when the device is opened: what this process takes at most. A
candidate that wants more is out of resources before others on the device are.
"""

_GRAPHS = 8
"""Graphs of a plan, one for each set of addresses of callers: a caller has a few outputs."""

_IDLE_BYTES = 1 << 30
"""Of memory that was given back and is kept for the next of its size: the driver's own allocation
waits for the device, each time.
"""

_SUMMED_ITEMS = 256

_SUMMED_BYTES = 1 << 16
"""Less is copied: that takes no longer than a launch."""

_DIGEST = """
static __device__ unsigned long long mixed(unsigned long long x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}
extern "C" __global__ void __launch_bounds__(256) tg_digest(
    unsigned long long *sums, const unsigned char *from, const unsigned char *to) {
  __shared__ unsigned long long parts[512];
  const unsigned long long *words = (const unsigned long long *)from;
  const long long n = (to - from) / 8, step = gridDim.x * 256LL;
  const int t = threadIdx.x;
  unsigned long long a = 0, b = 0;
  for (long long i = blockIdx.x * 256LL + t; i <= n; i += step) {
    unsigned long long word = 0;
    if (i < n) word = words[i];
    else for (int c = 0; c < (to - from) % 8; ++c) word = word * 256 + from[8 * n + c];
    const unsigned long long h = mixed(word + 0x9E3779B97F4A7C15ULL * (i + 1));
    a += h;
    b += mixed(h ^ 0xD6E8FEB86659FD93ULL);
  }
  parts[t] = a;
  parts[256 + t] = b;
  for (int half = 128; half; half /= 2) {
    __syncthreads();
    if (t < half) {
      parts[t] += parts[t + half];
      parts[256 + t] += parts[256 + t + half];
    }
  }
  if (t == 0) {
    sums[2 * blockIdx.x] = parts[0];
    sums[2 * blockIdx.x + 1] = parts[256];
  }
}
"""
"""Two sums of 64 bits over all words of 8 bytes, each mixed with its place: a word that changes
alone always changes the first one. The mixer is splitmix64's.
"""


class CudaMemory(RemoteMemory):
    """See ``devices.device.Memory``. ``address`` is what kernels get."""

    __slots__ = ("__weakref__", "_engine", "address")

    def __init__(
        self, engine: CudaEngine, address: int, nbytes: int, guard: int | None, owner: object
    ) -> None:
        super().__init__(nbytes, guard, owner)
        self._engine, self.address = engine, address

    def _bytes(self) -> NDArray[np.uint8]:
        return self._engine.read_bytes(self.address, self.nbytes)

    def content(self) -> bytes:
        return self._engine.summed(self.address, self.nbytes) or super().content()

    def _zones(self) -> Iterator[tuple[NDArray[np.uint8], str]]:
        if self._guard is None:
            return
        rest = -(-self.nbytes // _ALIGN) * _ALIGN - self.nbytes + GUARD_BYTES
        yield self._engine.read_bytes(self.address - GUARD_BYTES, GUARD_BYTES), "before its start"
        yield self._engine.read_bytes(self.address + self.nbytes, rest), "past its end"


class CudaCode:
    """A loaded kernel and how it is launched."""

    __slots__ = ("__weakref__", "_unload", "function", "geometry")

    def __init__(self, engine: CudaEngine, function: Function, geometry: Geometry) -> None:
        self.function, self.geometry = function, geometry
        self._unload = _finally(self, engine, engine.driver.unload, function)

    def close(self) -> None:
        self._unload()


def _finally(owner: object, engine: CudaEngine, give: Callable[..., None], what: Any) -> Any:
    """Give ``what`` back with the last reference to ``owner``, while the engine is open."""

    def back() -> None:
        with engine.lock:
            if engine.is_open:
                with suppress(DeviceFault):  # after a fault nothing can be given back
                    give(what)

    made = weakref.finalize(owner, back)
    made.atexit = False
    return made


class CudaLaunch:
    """A kernel with its memory."""

    __slots__ = ("code", "memories")

    def __init__(self, code: CudaCode, memories: list[CudaMemory]) -> None:
        self.code, self.memories = code, memories

    @property
    def parts(self) -> tuple[Function, Geometry, tuple[int, ...]]:
        """The arguments of a driver's launch."""
        return self.code.function, self.code.geometry, tuple(m.address for m in self.memories)


class CudaEngine:
    """See ``devices.device.Engine``."""

    align, at_once = _ALIGN, 1

    def __init__(self, device: Device, driver: Driver) -> None:
        self.device, self.driver = device, driver
        self.lock = threading.RLock()
        self._spare: CudaMemory | None = None
        self.is_open = True
        self.place, self.stream = driver.place, driver.stream
        self.limit_bytes = int(_SHARE * driver.memory()[0])
        self._taken_bytes = self._idle_bytes = 0
        self._idle: dict[int, list[int]] = {}
        self._digest: tuple[CudaCode, CudaMemory] | None = None

    # ---- memory

    def allocate(
        self, nbytes: int, touched: bool = True, guard: int | None = None, shift: int = 0
    ) -> CudaMemory:
        guard, size = GUARD if guard is None else guard, -(-nbytes // _ALIGN) * _ALIGN
        with self.lock:
            try:
                start = self._take(size + 2 * GUARD_BYTES)
            except MemoryError as error:
                name = self.device.name
                raise MemoryError(f"buffer of {nbytes} bytes on {name}: {error}") from error
            self.driver.fill(start, guard, size + 2 * GUARD_BYTES)
            if touched:
                self.driver.fill(start + GUARD_BYTES, 0, nbytes)
        memory = CudaMemory(self, start + GUARD_BYTES, nbytes, guard, None)
        _finally(memory, self, self._give, (start, size + 2 * GUARD_BYTES))
        return memory

    def at(self, address: int, nbytes: int, owner: object) -> CudaMemory:
        """Memory that belongs to ``owner``, without guard zones."""
        return CudaMemory(self, address, nbytes, None, owner)

    def alias(self, memory: CudaMemory) -> CudaMemory:
        """The same memory, which this does not keep."""
        return self.at(memory.address, memory.nbytes, None)

    def _take(self, nbytes: int) -> int:
        """Memory of the driver, or what was given back of this size. Raises MemoryError."""
        if idle := self._idle.get(nbytes):
            self._idle_bytes -= nbytes
            return idle.pop()
        if self._taken_bytes + nbytes > self.limit_bytes:
            self._forget_idle()
        left = self.limit_bytes - self._taken_bytes
        if nbytes > left:
            raise MemoryError(f"{left} of the {self.limit_bytes} bytes that it may take are left")
        try:
            start = self.driver.allocate(nbytes)
        except MemoryError:
            self._forget_idle()
            start = self.driver.allocate(nbytes)
        self._taken_bytes += nbytes
        return start

    def _give(self, what: tuple[int, int]) -> None:
        start, nbytes = what
        if self._idle_bytes + nbytes <= _IDLE_BYTES:
            self._idle.setdefault(nbytes, []).append(start)
            self._idle_bytes += nbytes
        else:
            self._taken_bytes -= nbytes
            self.driver.free(start)

    def _forget_idle(self) -> None:
        """Give back to the driver what waits for its next use."""
        for nbytes, starts in self._idle.items():
            for start in starts:
                self.driver.free(start)
            self._taken_bytes -= nbytes * len(starts)
        self._idle, self._idle_bytes = {}, 0

    def part(self, memory: CudaMemory, start: int, nbytes: int) -> CudaMemory:
        step = self.device.target.view_bytes
        if start % step:
            raise InternalError(
                f"part at {start} of memory on {self.device.name}: multiples of {step}"
            )
        return CudaMemory(self, memory.address + start, nbytes, None, memory)

    def fresh(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        return np.empty(shape, dtype)

    def borrow(self, array: NDArray[Any]) -> CudaMemory | None:
        return None

    def write(self, memory: CudaMemory, values: Array) -> None:
        with self.lock:
            self.driver.write(memory.address, np.ascontiguousarray(values))

    def pack(self, pack: Pack, source: Array, memory: CudaMemory, rest: int = 0) -> None:
        self.write(memory, packed(pack, source, memory.nbytes, rest))

    def fill(self, memory: CudaMemory, byte: int) -> None:
        with self.lock:
            self.driver.fill(memory.address, byte, memory.nbytes)
            self.driver.finish()

    def digest(self, memories: Sequence[CudaMemory]) -> str:
        return contents_digest(np.frombuffer(m.content(), np.uint8) for m in memories)

    def summed(self, address: int, nbytes: int) -> bytes:
        """A digest by a kernel of a large piece of memory; none before the engine watches."""
        if self._digest is None or nbytes < _SUMMED_BYTES or address % 8:
            return b""
        code, sums = self._digest
        with self.lock:
            self.driver.launch(
                code.function, code.geometry, (sums.address, address, address + nbytes)
            )
            parts = self.read_bytes(sums.address, sums.nbytes).view(np.uint64)
        whole: NDArray[np.uint64] = parts.reshape(-1, 2).sum(0, dtype=np.uint64)
        return whole.tobytes()

    def watch(self, memories: Sequence[CudaMemory | None]) -> None:
        """Protected memory is compared when its damage is asked for. Digests are the device's
        work from the first call on, before which nothing is protected.
        """
        if self._digest is None:
            geometry = Geometry(4 * self.device.target.threads, _SUMMED_ITEMS)
            lowered = Lowered(_DIGEST, "tg_digest", KernelIO(()), (), geometry)
            code = self.load(lowered, self.device.compile(lowered))
            self._digest = code, self.allocate(16 * geometry.groups, touched=False)

    def read_bytes(self, address: int, nbytes: int) -> NDArray[np.uint8]:
        """A copy of what lies there."""
        data = np.empty(nbytes, np.uint8)
        with self.lock:
            self.driver.read(address, data)
        return data

    # ---- code

    def load(self, compiled: CompiledCandidate | Lowered, image: bytes) -> CudaCode:
        g, target = compiled.geometry, self.device.target
        name = f"program {compiled.entry} on {self.device.name}"
        with self.lock:
            function = self.driver.load(image, compiled.entry)
            code = CudaCode(self, function, g)
            takes = self.driver.resources(function)
            shared = takes.shared_bytes + g.shared_bytes
            if shared > target.shared_bytes:
                raise OutOfResources(
                    f"{name}: a group shares {shared} bytes, there are {target.shared_bytes}"
                )
            if g.items > takes.most_items:
                raise OutOfResources(
                    f"{name}: groups of {g.items} work-items, it runs in up to {takes.most_items} "
                    f"({takes.registers} registers each)"
                )
            if g.shared_bytes:
                self.driver.allow(function, g.shared_bytes)
        return code

    def launch(
        self, code: CudaCode, memories: Sequence[CudaMemory], scratch: Sequence[CudaMemory]
    ) -> CudaLaunch:
        return CudaLaunch(code, [*memories, *scratch])

    def bind(self, launches: Sequence[CudaLaunch]) -> BoundPlan:
        return _Plan(self, [CudaLaunch(x.code, list(x.memories)) for x in launches])

    # ---- time

    def time(
        self,
        launch: CudaLaunch,
        samples: int,
        inner: int = 1,
        evicted: Sequence[CudaMemory] = (),
        near: Sequence[CudaMemory] = (),
    ) -> tuple[float, ...]:
        """See ``Engine.time``. By marks within a graph: between two marks that are enqueued one by
        one, a short kernel takes as long as this process takes to enqueue it.
        """
        seconds = []
        with self.lock, self._marked([launch.parts] * inner, (0, inner)) as (graph, marks):
            for _ in range(samples):
                if evicted:
                    self._evict()
                seconds += [s / inner for s in self._replayed(graph, marks)]
        return tuple(seconds)

    def state(self) -> Properties:
        return self.device.state()

    def disorder(self) -> str:
        return ""

    def limits(self) -> MachineLimits:
        with self.lock:
            return measure_limits(self)

    def close(self) -> None:
        """Memory that is still held goes back with its last reference, before the driver."""
        with self.lock:
            self._spare = self._digest = None
            if self.is_open:
                self.is_open = False
                with suppress(DeviceFault):  # raised at an earlier call already
                    self.driver.finish()
                    self._forget_idle()
                self.driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _marked(
        self, launches: Sequence[Any], places: Sequence[int]
    ) -> Iterator[tuple[Graph, list[Event]]]:
        """Launches as a graph, with a mark after so many of them each."""
        driver, marks = self.driver, [self.driver.event() for _ in places]
        try:
            graph = driver.graph(launches, dict(zip(places, marks, strict=True)))
            try:
                yield graph, marks
            finally:
                driver.drop(graph)
        finally:
            for mark in marks:
                driver.forget(mark)

    def _replayed(self, graph: Graph, marks: Sequence[Event]) -> list[float]:
        """Replay a graph and wait. Return the seconds from each of its marks to the next."""
        self.driver.replay(graph)
        self.driver.finish()
        return [self.driver.seconds(a, b) for a, b in pairwise(marks)]

    def each(self, launches: Sequence[CudaLaunch], samples: int) -> tuple[float, ...]:
        """Mean seconds of each launch in ``samples`` replays of all, in their order."""
        parts = np.zeros(len(launches))
        with (
            self.lock,
            self._marked([x.parts for x in launches], range(len(launches) + 1)) as (graph, marks),
        ):
            for _ in range(samples):
                parts += self._replayed(graph, marks)
        return tuple((parts / max(1, samples)).tolist())

    def between(self, work: Any) -> float:
        """Seconds of what is enqueued by ``work``, by the device's clock."""
        first = self.driver.event()
        work()
        last = self.driver.event()
        self.driver.finish()
        seconds = self.driver.seconds(first, last)
        self.driver.forget(first)
        self.driver.forget(last)
        return seconds

    def _evict(self) -> None:
        """Write twice what the device's last cache holds."""
        if self._spare is None:
            self._spare = self.allocate(2 * self.device.target.l3_bytes, touched=False)
        self.driver.fill(self._spare.address, 0, self._spare.nbytes)


class _Plan:
    """Launches as one graph, which has the addresses in it that it was made with: there is one for
    each of the last few that callers gave.

    Making a graph takes as long as many launches. So addresses that come for the first time are
    launched one by one, unless they are the first of all, and get their graph when they come again.
    """

    def __init__(self, engine: CudaEngine, launches: list[CudaLaunch]) -> None:
        self._engine, self._launches = engine, launches
        self._lent: dict[tuple[int, int], int] = {}
        self._graphs: dict[tuple[int, ...], tuple[Graph, Callable[[], None]] | None] = {}

    def point(self, step: int, argument: int, memory: CudaMemory) -> None:
        self._launches[step].memories[argument] = memory
        self._lent[step, argument] = memory.address

    def run(self) -> None:
        driver, at = self._engine.driver, tuple(self._lent.values())
        with self._engine.lock:
            if self._launches and (not self._graphs or at in self._graphs):
                driver.replay(self._graph())
            else:
                self._keep(at, None)
                for launch in self._launches:
                    driver.launch(*launch.parts)
            driver.finish()

    def time(self, samples: int, each: bool = False) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Runs are timed as graphs; launches by marks within another graph, after the runs."""
        engine, driver = self._engine, self._engine.driver
        with engine.lock:
            if not self._launches:
                return (), ()
            graph = self._graph()
            runs = tuple(engine.between(partial(driver.replay, graph)) for _ in range(samples))
            return runs, engine.each(self._launches, samples) if each else ()

    def _graph(self) -> Graph:
        """The graph of the addresses now, which is made where there is none."""
        at = tuple(self._lent.values())
        known = self._graphs.get(at)
        if known is None:
            graph = self._engine.driver.graph([x.parts for x in self._launches])
            known = graph, _finally(self, self._engine, self._engine.driver.drop, graph)
        self._keep(at, known)
        return known[0]

    def _keep(self, at: tuple[int, ...], graph: tuple[Graph, Callable[[], None]] | None) -> None:
        """The latest; the one that was not used for longest gives way."""
        self._graphs.pop(at, None)
        self._graphs[at] = graph
        if len(self._graphs) > _GRAPHS:
            oldest = self._graphs.pop(next(iter(self._graphs)))
            if oldest is not None:
                oldest[1]()
