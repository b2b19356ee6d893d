"""Places of arrays in the memory that the referee and the bench share.

    once per kernel  inputs of every set, side by side        the referee writes, the bench copies
    once per run     outputs in the order of the parameters   the bench copies, the referee reads

A candidate runs on private memory of the bench (which can have huge pages); here there are only
copies.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import reduction
from typing import Any

import numpy as np
import numpy.typing as npt

from tunegrad.devices.job import Array, KernelIO, Parameter
from tunegrad.ir.dtypes import buffer_dtype

_ALIGNED = 4096

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Place:
    """One array: its name, numpy's dtype, how many elements, and its offset in the memory."""

    name: str
    dtype: str
    elements: int
    start: int


Places = tuple[tuple[Place, ...], ...]
"""The inputs of each set. What the sets share lies there once."""


def hand_over(sets: Sequence[dict[str, Array]], memory: Bytes) -> Places:
    """Copy every input of every set. Raises MemoryError where the memory is too small for them."""
    starts: dict[tuple[int, int], int] = {}
    places, end = [], 0
    for inputs in sets:
        row = []
        for name, values in inputs.items():
            start = starts.get((values.ctypes.data, values.nbytes))
            if start is None:
                start = starts[values.ctypes.data, values.nbytes] = end
                end = _room(start + values.nbytes, memory)
                memory[start : start + values.nbytes].view(values.dtype)[:] = values
            row.append(Place(name, values.dtype.str, values.size, start))
        places.append(tuple(row))
    return tuple(places)


def take(places: Places, memory: Bytes) -> list[dict[str, Array]]:
    """Copies of the inputs of each set; what the sets share is one array."""
    copies: dict[tuple[int, int], Array] = {}
    for place in (place for row in places for place in row):
        if (place.start, place.elements) not in copies:
            kind = np.dtype(place.dtype)
            there = memory[place.start : place.start + place.elements * kind.itemsize]
            copies[place.start, place.elements] = there.view(kind).copy()
    return [{p.name: copies[p.start, p.elements] for p in row} for row in places]


def outputs_of(io: KernelIO) -> tuple[Parameter, ...]:
    """Parameters that a program writes, in order: all that the referee needs to know of it."""
    return tuple(p for p in io.params if p.role in ("out", "inout"))


def output_places(outputs: Sequence[Parameter], memory: Bytes) -> Iterator[tuple[Parameter, Array]]:
    """Places in which each output is judged. Raises MemoryError where the memory is too small."""
    end = 0
    for param in outputs:
        start, end = end, _room(end + param.nbytes, memory)
        yield param, memory[start : start + param.nbytes].view(buffer_dtype(param.dtype).numpy)


def _room(end: int, memory: Bytes) -> int:
    if end > memory.size:
        raise MemoryError(f"{end} bytes of inputs or outputs: the shared memory has {memory.size}")
    return -(-end // _ALIGNED) * _ALIGNED


# ---- shared memory
#
# Memory that two processes see: how arrays pass between processes without being sent.
#
# It is sparse: what was never written to takes no memory. Its size is sealed, so one process can
# not cut it under another's feet.


_SEALED = 0x1 | 0x2 | 0x4
"""No further seals, no shrinking, no growing: ``F_SEAL_*`` of ``fcntl.h``."""

_HOLE = 0x1 | 0x2
"""Give pages back and keep the size: ``FALLOC_FL_*`` of ``falloc.h``."""


class SharedMemory:
    """``nbytes`` of memory for this process and those that are started with it as an argument.

    Its maker holds a descriptor, and does not map it; a process that receives it has it mapped, and
    no descriptor. It lasts as long as one of them has either.
    """

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._descriptor = os.memfd_create("tunegrad", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._descriptor, nbytes)
        fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, _SEALED)
        weakref.finalize(self, os.close, self._descriptor)

    def clear(self) -> None:
        """Give its memory back; from now on it reads as zeros."""
        libc = ctypes.CDLL(None, use_errno=True)
        if (
            libc.fallocate(self._descriptor, _HOLE, ctypes.c_long(0), ctypes.c_long(self.nbytes))
            != 0
        ):
            number = ctypes.get_errno()
            raise OSError(number, f"shared memory of {self.nbytes} bytes: {os.strerror(number)}")

    def __reduce__(self) -> tuple[Callable[..., Mapped], tuple[Any, int]]:
        return Mapped, (reduction.DupFd(self._descriptor), self.nbytes)


class Mapped:
    """``SharedMemory`` in a process that was given it: all of its ``bytes``."""

    def __init__(self, descriptor: Any, nbytes: int) -> None:
        received = descriptor.detach()
        self.bytes: npt.NDArray[np.uint8] = np.frombuffer(mmap.mmap(received, nbytes), np.uint8)
        os.close(received)
