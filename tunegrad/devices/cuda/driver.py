"""The part of a CUDA driver that the engine needs: the least that loading, launching and timing
take.

    bindings   NVIDIA's own bindings of the driver       a GPU
    pycuda     pycuda                                    a GPU
    host       the same CUDA C, built for this CPU       none

One driver is one GPU that is open in this process: its primary context, and one stream in which
all work is done in order. Addresses are numbers; the engine knows what lies there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from tunegrad.devices.job import Geometry

DLPACK_CPU, DLPACK_CUDA = 1, 2
"""Types of devices, by DLPack's numbers."""

Function = Any
Event = Any
Graph = Any
"""Objects of a driver; only the driver that made them takes them back."""


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources that a loaded function takes: registers an item, bytes of an item's stack (spills
    are there), bytes shared by a group, and the most items of a group that it runs in.
    """

    registers: int
    local_bytes: int
    shared_bytes: int
    most_items: int


class Driver(Protocol):
    """One open GPU. What is said to be enqueued has not happened yet when the call returns.

    A fault of a kernel (an illegal address, a trap) is raised as ``DeviceFault`` by the next call
    that waits; after it nothing works in this process any more.
    """

    # ---- where it is

    @property
    def place(self) -> tuple[int, int]:
        """Type and number of it as DLPack has them."""

    @property
    def stream(self) -> int | None:
        """The number of its stream; None where there are none."""

    # ---- memory

    def memory(self) -> tuple[int, int]:
        """Bytes that are free now, and that there are."""

    def allocate(self, nbytes: int) -> int:
        """The address of so many bytes, at a multiple of 256. Raises MemoryError."""

    def free(self, address: int) -> None:
        """Give back what ``allocate`` gave."""

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        """Enqueued: set every byte."""

    def write(self, address: int, data: NDArray[Any]) -> None:
        """Copy a contiguous array there, after what is enqueued; it may be changed afterwards."""

    def read(self, address: int, data: NDArray[Any]) -> None:
        """Fill a contiguous array from there, after what is enqueued."""

    # ---- code

    def load(self, image: bytes, entry: str) -> Function:
        """Raises CompileFailure for an image that is none, or lacks the entry."""

    def resources(self, function: Function) -> Resources:
        """Resources that a loaded function takes."""

    def allow(self, function: Function, shared_bytes: int) -> None:
        """A group of it may be given so many bytes to share. Raises OutOfResources."""

    def unload(self, function: Function) -> None:
        """Nothing of it may be running."""

    def launch(self, function: Function, geometry: Geometry, addresses: Sequence[int]) -> None:
        """Enqueued: one launch, whose arguments are pointers. Raises OutOfResources.

        ``geometry.shared_bytes`` were allowed before.
        """

    def finish(self) -> None:
        """Wait for all that is enqueued. Raises DeviceFault."""

    # ---- time and graphs

    def event(self) -> Event:
        """Enqueued: a mark."""

    def seconds(self, first: Event, last: Event) -> float:
        """Between two marks that were reached, by the device's clock."""

    def forget(self, event: Event) -> None:
        """A mark is not needed any more."""

    def graph(
        self,
        launches: Sequence[tuple[Function, Geometry, Sequence[int]]],
        marks: Mapping[int, Event] | None = None,
    ) -> Graph:
        """Launches, one after the other, as one thing to enqueue.

        A mark of ``marks`` is reached again in every replay, after as many launches as its key
        says. The device alone is between two marks of a graph; between two marks that are enqueued
        one by one it also waits for this process to enqueue the next launch.
        """

    def replay(self, graph: Graph) -> None:
        """Enqueued: all its launches."""

    def drop(self, graph: Graph) -> None:
        """A graph is not needed any more."""

    def close(self) -> None:
        """Give everything back."""
