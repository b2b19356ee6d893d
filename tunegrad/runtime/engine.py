"""The part of an open device that running a model needs; ``devices.device`` has all of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tunegrad.ir.layout import Pack

__all__ = ["BoundPlan", "Code", "Engine", "Memory", "Placed", "Sharing"]

Array = NDArray[Any]


class Memory(Protocol):
    """Memory that kernels use; freed with the last reference to it."""

    @property
    def nbytes(self) -> int:
        """Number of bytes that a kernel may use."""

    def read(self, dtype: str) -> Array:
        """Its content as an array, which may be a view."""

    def damage(self) -> str:
        """Describe a write outside of it, or to it while it was protected; '' where there was
        none.
        """


@dataclass(frozen=True, slots=True)
class Code:
    """A loaded kernel. ``params`` name its buffers in order, packs included.

    ``scratch_bytes`` are sizes of memory that it takes after them. ``unread`` names constants of
    which it reads nothing but packs.
    """

    loaded: Any
    params: tuple[str, ...]
    packs: tuple[Pack, ...] = ()
    scratch_bytes: tuple[int, ...] = ()
    unread: tuple[str, ...] = ()


class Placed(Protocol):
    """An input that lies on the device already."""

    @property
    def memory(self) -> Any:
        """Its memory, as the engine uses it."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str:
        """By the names of ``ir.dtypes``."""


class Sharing(Protocol):
    """An engine whose memory others use, too."""

    def alias(self, memory: Any) -> Any:
        """The same memory, which this does not keep."""


class BoundPlan(Protocol):
    """Launches that an engine can run again and again."""

    def point(self, step: int, argument: int, memory: Any) -> None:
        """Let an argument of a launch be other memory from now on, which the caller keeps alive."""

    def run(self) -> None:
        """Run all, in order, and wait."""

    def time(self, samples: int, each: bool = False) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """(seconds of each of ``samples`` runs, mean seconds of each launch or () without
        ``each``).
        """


class Engine(Protocol):
    """The part of a device that a plan needs.

    Memory and launches are the engine's own; they go back to it alone.
    """

    @property
    def at_once(self) -> int:
        """Number of plans that run side by side, called from several threads; more take turns."""

    @property
    def align(self) -> int:
        """Parts of memory begin at multiples of so many bytes."""

    def allocate(self, nbytes: int, touched: bool = True) -> Any:
        """Memory, zeroed unless it is not ``touched``. Raises MemoryError."""

    def part(self, memory: Any, start: int, nbytes: int) -> Any:
        """A part of memory, which it keeps alive.

        ``start`` is a multiple of ``align``, or of the target's ``view_bytes``.
        """

    def fresh(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Memory of this process for what a run gives back; kernels write to it where they can."""

    def borrow(self, array: Array) -> Any:
        """An array of this process as kernels can use it; None where they can not, as it lies
        there.
        """

    def write(self, memory: Any, values: Array) -> None:
        """Copy an array to the start of memory, row-major whatever its strides."""

    def fill(self, memory: Any, byte: int) -> None:
        """Set every byte."""

    def launch(self, code: Any, memories: Sequence[Any], scratch: Sequence[Any]) -> Any:
        """A loaded kernel with its buffers, in order, and its scratch."""

    def bind(self, launches: Sequence[Any]) -> BoundPlan:
        """Launches as a plan."""
