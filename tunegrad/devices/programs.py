"""What every device that runs single programs can do. One conformance suite holds for all of them.

A device is opened where it is needed and closed after; compiling is a function of (program, target) and says nothing
about the device, so a compiled program can be kept. Buffers are flat numpy arrays by parameter name; outputs are
written in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

from numpy.typing import NDArray

from tunegrad.errors import ShapeError
from tunegrad.ir.program import Program
from tunegrad.ir.target import Target

__all__ = ["Buffers", "Compiled", "Device", "checked_buffers"]

Buffers = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program's text in the device's language; ``image`` is empty where the device loads text."""

    program: Program
    source: str
    image: bytes = b""


class Device(Protocol):
    """Compiles, runs and times programs, one at a time."""

    @property
    def name(self) -> str:
        """The word after ``--device``."""

    @property
    def target(self) -> Target:
        """What to compile for."""

    @property
    def runs(self) -> bool:
        """Whether ``run`` and ``time`` work; False for a device that only compiles."""

    def compile(self, program: Program) -> Compiled:
        """The program for this device; equal programs give equal results. Raises CompileFailure."""

    def run(self, compiled: Compiled, buffers: Buffers) -> None:
        """Run once and wait. Writes the outputs; missing packs are filled first.

        Raises ShapeError for a buffer that is missing or does not fit, DeviceError on a device that runs nothing.
        """

    def time(self, compiled: Compiled, buffers: Buffers, samples: int) -> tuple[float, ...]:
        """Seconds of each of ``samples`` runs by the device's own clock. Writes the outputs, raises as ``run`` does."""

    def close(self) -> None:
        """Give everything back; calling it again does nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def checked_buffers(program: Program, buffers: Buffers) -> dict[str, NDArray[Any]]:
    """A buffer for every parameter of ``program``: the caller's, and packs filled from their sources.

    Raises ShapeError, naming the buffer, for one that is missing or has another dtype, size or rank.
    """
    full = dict(buffers)
    packs = {k.name for k in program.packs}
    for b in program.params:
        given = full.get(b.name)
        if given is None and b.name in packs:
            continue
        if given is None:
            raise ShapeError(f"program {program.name}: no buffer {b.name!r} was given")
        if given.shape != (b.size,) or given.dtype != b.dtype.numpy or not given.flags.c_contiguous:
            raise ShapeError(
                f"program {program.name}: buffer {b.name!r} is {given.dtype}{list(given.shape)}, "
                f"not flat contiguous {b.dtype.numpy}[{b.size}]"
            )
    for pack in program.packs:
        if pack.name not in full:
            full[pack.name] = pack.run(full[pack.source])
    return full
