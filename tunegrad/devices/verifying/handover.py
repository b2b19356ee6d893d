"""Places of arrays in the memory that the referee and the bench share.

    once per kernel  inputs of every set, side by side        the referee writes, the bench copies
    once per run     outputs in the order of the parameters   the bench copies, the referee reads

A candidate runs on private memory of the bench (which can have huge pages); here there are only
copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tunegrad.devices.job import Array, KernelIO, Parameter
from tunegrad.ir.dtypes import buffer_dtype

__all__ = ["Place", "Places", "hand_over", "output_places", "outputs_of", "take"]

_ALIGNED = 4096

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Place:
    """One array: its name, numpy's name of its dtype, how many elements, and how far into the
    memory it starts.
    """

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
