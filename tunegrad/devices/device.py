"""The protocols of a device: the two halves that every device has.

    Device   a value that travels: facts, identity, how programs become images     compiles anywhere
    Engine   a device that is open in this process: memory, code, launches, times   runs

    program --Device.lower--> text --Device.compile--> image
    image   --Engine.load---> code --Engine.launch---> runs

Pool, workers, data, verifying, timing and whole models stand beside the devices and know these two
alone. What a process may do that runs candidates is the device's to say (``confinement``): a driver
may have to open files and start programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from tunegrad.lazy import dataclass

if TYPE_CHECKING:
    from tunegrad.devices.job import Array, CompiledCandidate
    from tunegrad.devices.lowered import Lowered
    from tunegrad.forks import ForkSafeLock
    from tunegrad.ir.layout import Pack
    from tunegrad.ir.program import Program
    from tunegrad.ir.target import Target
    from tunegrad.reports import CodeFacts, KernelResources
    from tunegrad.trial import Fingerprint, Properties

# ---- limits
#
# Limits of a machine, as values: peaks of arithmetic and of memory.


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """Measured peaks by thread count, as sorted (threads, value) pairs: FLOP/s of f32 FMA, and
    bytes per second.

    Read counts the bytes read; triad (``a = b + s*c``) counts three arrays, without the
    write-allocate traffic of plain stores. DRAM arrays are dropped from all caches first; L2 arrays
    are half an L2 per thread. ``products`` are (matrix unit, operations a second) of the whole
    device, of those that were measured.
    """

    fma_f32: tuple[tuple[int, float], ...]
    read_dram: tuple[tuple[int, float], ...]
    triad_dram: tuple[tuple[int, float], ...]
    read_l2: tuple[tuple[int, float], ...]
    products: tuple[tuple[str, float], ...] = ()

    def flops(self, threads: int) -> float:
        """f32 FLOP/s of ``threads`` threads, interpolated in proportion between measured counts."""
        return _at(self.fma_f32, threads)

    def bandwidth(self, threads: int) -> float:
        """Bytes per second read from DRAM by ``threads`` threads."""
        return _at(self.read_dram, threads)

    def best(self, other: MachineLimits) -> MachineLimits:
        """The better of two measurements of one machine, figure by figure."""
        both = zip(astuple(self), astuple(other), strict=True)
        return MachineLimits(
            *(tuple(max(pair) for pair in zip(a, b, strict=True)) for a, b in both)
        )


def _at(table: tuple[tuple[int, float], ...], threads: int) -> float:
    below = max((pair for pair in table if pair[0] <= threads), default=table[0])
    return below[1] * threads / below[0]


# ---- device


Own = Any
"""Memory, code or launches of an engine; only the engine that made them takes them back."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """The result of inspecting a compiled program: its listing, facts about it, and the loop that
    matters.

    Each is empty, or None, where the compiler does not show it.
    """

    listing: str = ""
    facts: CodeFacts | None = None
    hot_loop: str = ""
    resources: KernelResources | None = None

    @property
    def counted(self) -> Properties:
        """Its facts by the names that a trial has them by."""
        f = self.facts
        if f is None:
            return ()
        found = {
            "instructions": f.kernel_instructions,
            "loop_calls": f.calls,
            "loop_fmas": f.fmas,
            "loop_instructions": f.instructions,
            "loop_loads": f.loads,
            "loop_spills": f.spills,
            "loop_stores": f.stores,
            "spills": f.kernel_spills,
            "vector_bits": f.vector_bits,
        }
        return tuple((name, float(count)) for name, count in found.items())


class Memory(Protocol):
    """Memory that kernels of one engine use. It is freed with the last reference to it."""

    @property
    def nbytes(self) -> int:
        """Number of bytes that a kernel may use."""

    def view(self, dtype: str) -> Array | None:
        """Its content as an array that follows it; None where this process can not see it."""

    def read(self, dtype: str) -> Array:
        """Its content as an array, which may be a view."""

    def protect(self, on: bool = True) -> None:
        """From now on kernels only read it: a write is damage, or ends the process."""

    def damage(self) -> str:
        """Text about writes beside it, or to it while it was protected; '' for none."""


class Code(Protocol):
    """A kernel that is loaded, and can be referred to weakly.

    It is unloaded by ``close``, or with the last reference to it.
    """

    def close(self) -> None:
        """Unload it; nothing may be running in it."""


class Launch(Protocol):
    """A kernel with its memory, ready to run. It keeps both alive."""


class BoundPlan(Protocol):
    """Launches that run one after the other, again and again."""

    def point(self, step: int, argument: int, memory: Own) -> None:
        """Let an argument of a launch be other memory from now on, which the caller keeps alive."""

    def run(self) -> None:
        """Run all, in order, and wait."""

    def time(self, samples: int, each: bool = False) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """(seconds of each of ``samples`` runs, mean seconds of each launch or ())."""


@dataclass(frozen=True, slots=True)
class Place:
    """An input or an output of a plan: its arguments of launches, as (launch, argument, bytes from
    its address). ``over``: of an output that is written into an input's memory, which one.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    places: tuple[tuple[int, int, int], ...]
    over: int | None = None


class DirectPlan(Protocol):
    """A plan whose kernels use arrays of this process as they lie."""

    def direct(
        self,
        lock: ForkSafeLock,
        inputs: Sequence[Place],
        outputs: Sequence[Place],
        addressed: bool = False,
        run: Callable[[], None] | None = None,
    ) -> Callable[[Any], tuple[Array, ...] | None]:
        """A run, under ``lock``, as one function of its inputs in order: its outputs in memory that
        nothing else refers to, or the arrays that they are written over. None, and nothing has run,
        where one is not an array of the right shape and dtype, can not be used as it lies, or
        shares memory with one that is written over. ``addressed``: of a list of their addresses,
        which the caller answers for; it is written to, and no input is written over. ``run`` runs
        the launches, if not this plan does.
        """

    def at_addresses(
        self,
        lock: ForkSafeLock,
        places: Sequence[Sequence[tuple[int, int, int]]],
        copies: Sequence[tuple[int, int, int]] = (),
    ) -> Callable[[Sequence[int]], None]:
        """A run, under ``lock``, as a function of addresses: those of row-major memory that lies
        there until it returns. Each is an argument of launches, as (launch, argument, bytes from
        the address). ``copies`` are made behind them, as (address to, address from, bytes).
        """


class Engine(Protocol):
    """An open device. Calls beyond ``at_once`` that run something wait."""

    @property
    def device(self) -> Device:
        """The device that was opened."""

    @property
    def at_once(self) -> int:
        """Number of plans that run side by side, called from several threads; more take turns."""

    @property
    def align(self) -> int:
        """Parts of memory begin at multiples of so many bytes."""

    # ---- memory

    def allocate(
        self, nbytes: int, touched: bool = True, guard: int | None = None, shift: int = 0
    ) -> Memory:
        """Memory between two guard zones; zeroed, unless it is not ``touched``.

        ``guard`` is the byte that the zones are filled with. ``shift``: it begins so many bytes
        beyond an aligned place, on a device whose kernels may be given such memory. Raises
        MemoryError.
        """

    def part(self, memory: Own, start: int, nbytes: int) -> Memory:
        """A part of memory, which it keeps alive. ``start`` is a multiple of ``align``."""

    def fresh(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Memory of this process for what a run gives back; kernels write to it where they can."""

    def borrow(self, array: NDArray[Any]) -> Memory | None:
        """An array of this process as kernels can use it; None where they can not, as it lies."""

    def write(self, memory: Own, values: Array) -> None:
        """Copy an array to the start of memory, row-major whatever its strides."""

    def pack(self, pack: Pack, source: Array, memory: Own, rest: int = 0) -> None:
        """Fill memory with a packed constant, made of its source, then with the byte ``rest``."""

    def fill(self, memory: Own, byte: int) -> None:
        """Set every byte."""

    def digest(self, memories: Sequence[Own]) -> str:
        """Of the bytes of memories, in order: equal ones for equal bytes; hexadecimal."""

    def watch(self, memories: Sequence[Own | None]) -> None:
        """Protected memory that the next launches read, by place; None at places that they write.

        A process that ends of a write to one of them may say so by ``job.EXIT_WROTE``.
        """

    # ---- code

    def load(self, compiled: CompiledCandidate | Lowered, image: bytes) -> Code:
        """Load an image.

        Raises CompileFailure for one that is none, or lacks the kernel, and OutOfResources for a
        kernel that takes more than the device has.
        """

    def launch(self, code: Own, memories: Sequence[Own], scratch: Sequence[Own]) -> Launch:
        """A kernel with its buffers, in order, and its scratch."""

    def bind(self, launches: Sequence[Own]) -> BoundPlan:
        """Launches as a plan."""

    # ---- time

    def time(
        self,
        launch: Own,
        samples: int,
        inner: int = 1,
        evicted: Sequence[Own] = (),
        near: Sequence[Own] = (),
    ) -> tuple[float, ...]:
        """Seconds of ``samples`` samples by the device's own clock.

        A sample is ``inner`` launches, divided out; before each one ``evicted`` leaves all caches,
        and of ``near`` each core has a part in its own, and no other core that part: the last of it
        is nearest. Where units share their cache that says nothing.
        """

    def state(self) -> Properties:
        """``Device.state``, and clocks that only an open device can tell."""

    def disorder(self) -> str:
        """Processor state that launches have left otherwise than it was, in words; '' without any.

        Such a state is of threads that run other code afterwards.
        """

    def limits(self) -> MachineLimits:
        """The device's peaks, measured now; takes about a second."""

    def close(self) -> None:
        """Give everything back; calling it again does nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Device(Protocol):
    """A device as a frozen value: equal ones are the same device. It opens nothing by itself."""

    def __hash__(self) -> int: ...

    @property
    def name(self) -> str:
        """The name as it stands after ``--device``."""

    @property
    def target(self) -> Target:
        """The target that programs are lowered for."""

    @property
    def runs(self) -> bool:
        """True when it can be opened; False for one that only compiles."""

    @property
    def exclusive(self) -> bool:
        """True when nothing may compile while something is timed: they share cores."""

    @property
    def confinement(self) -> Confinement:
        """The rights of a process that runs candidates on it."""

    def describe(self) -> str:
        """The device in words, for people."""

    def fingerprint(self, numerics: str = "contract") -> Fingerprint:
        """The store's key for measurements on it."""

    def compiler(self) -> str:
        """The compiler for it, with its version: images of another one are other images."""

    def lower(self, program: Program) -> Lowered:
        """The program as text; a pure function.

        Raises IllegalAction for a program that the target can not run at all, OutOfResources for
        one that needs more than it has.
        """

    def compile(self, lowered: Lowered, killable: bool = False) -> bytes:
        """The image of a text, a function of both alone. ``killable``: this process may be.

        Drivers may name what they make: then images of equal texts differ in that. A compiler that
        may crash runs elsewhere unless this process is ``killable``. Raises CompileFailure in the
        compiler's words, and CandidateCrashed where it crashed elsewhere.
        """

    def inspect(self, lowered: Lowered) -> Inspection | None:
        """Inspect the machine code of a text; None for a device that does not show it."""

    def facts(self, lowered: Lowered, image: bytes) -> Properties:
        """Facts of a program by its image, read in below 1 ms; () without. Names: docs/STORE.md."""

    def state(self) -> Properties:
        """Clocks, power and temperature as they are now, asked of the machine; () where it does
        not say. docs/STORE.md has the names.
        """

    def open(self, pin: bool = False) -> Engine:
        """Open it in this process; ``pin``: this thread does nothing else, and may be kept on a
        core.

        Raises DeviceError where it is not there.
        """


# ---- confinement
#
# Rights of a device's worker processes: a value that devices declare; ``confine`` sees to it.


@dataclass(frozen=True, slots=True)
class Confinement:
    """The rights that a process keeps.

    ``reads``: open files for reading, for one that runs no candidate.

    ``threads``: start further ones. ``memory_bytes``: address space that it may take beyond what it
    has when it is confined; 0: as much as there is. ``driver``: it loads a driver that opens files,
    starts programs and takes address space as it likes: it is cut off from its session, dies with
    its parent, and keeps the limits of time.
    """

    driver: bool = False
    reads: bool = False
    threads: bool = True
    memory_bytes: int = 0
