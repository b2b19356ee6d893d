"""Batches in memory: trees of arrays over a slab, which is used again once no array views it.

    samples  [(image, 3), (image, 5), ...]
    columns  ([image, image, ...], [3, 5, ...])       a list of arrays for each part of a sample
    layout   (Part(u8[32,1,28,28] at 0), Part(i64[32] at 25088))
    batch    (array, array)                           over one slab

A slab is lent to a batch as an object that all views of its memory keep alive. When that object
dies, the slab is free: a batch that you keep keeps its memory, which is not written to again.
"""

from __future__ import annotations

import mmap
import tempfile
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunegrad.errors import DTypeError, ShapeError
from tunegrad.trees import mapped

_ALIGN = 64
_ROOM = 1 << 12
_SHARED = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Part:
    """One array of a batch: where it begins in its slab."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int = 0


def plain(value: Any, what: str) -> NDArray[Any]:
    """A leaf as an array of numbers or truths. Raises DTypeError, naming ``what``."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise DTypeError(
            f"loader: {what} holds {type(value).__name__} of dtype {array.dtype}; a batch is made "
            "of numbers and truths, in arrays, tuples, lists and dicts"
        )
    return array


class Column:
    """One part of every sample of a batch, with one shape and dtype."""

    __slots__ = ("arrays", "dtype", "shape")

    def __init__(self, arrays: Sequence[NDArray[Any]]) -> None:
        self.arrays = arrays
        self.dtype, self.shape = arrays[0].dtype, (len(arrays), *arrays[0].shape)

    def into(self, out: NDArray[Any]) -> None:
        """Write the rows."""
        np.stack(self.arrays, 0, out)


def columns(samples: Sequence[Any], indices: Sequence[int]) -> Any:
    """The tree of a sample with a Column for each leaf.

    Raises ShapeError for a sample of another structure or shape than the first one, DTypeError for
    another dtype; ``indices`` name the samples.
    """
    first = samples[0]
    if isinstance(first, Mapping):
        for s, i in zip(samples, indices, strict=True):
            if not isinstance(s, Mapping) or s.keys() != first.keys():
                raise ShapeError(f"loader: sample {i} is {_kind(s)}, sample {indices[0]} is "
                                 f"{_kind(first)}")  # fmt: skip
        return {k: columns([s[k] for s in samples], indices) for k in first}
    if isinstance(first, list | tuple):
        for s, i in zip(samples, indices, strict=True):
            if not isinstance(s, list | tuple) or len(s) != len(first):
                raise ShapeError(f"loader: sample {i} is {_kind(s)}, sample {indices[0]} is "
                                 f"{_kind(first)}")  # fmt: skip
        parts = [columns(list(column), indices) for column in zip(*samples, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    arrays = [plain(s, f"sample {i}") for s, i in zip(samples, indices, strict=True)]
    for a, i in zip(arrays, indices, strict=True):
        if a.shape != arrays[0].shape or a.dtype != arrays[0].dtype:
            kind = ShapeError if a.shape != arrays[0].shape else DTypeError
            raise kind(
                f"loader: sample {i} is {a.dtype}{list(a.shape)}, sample {indices[0]} is "
                f"{arrays[0].dtype}{list(arrays[0].shape)}; collate= can make them equal"
            )
    return Column(arrays)


def _kind(sample: Any) -> str:
    if isinstance(sample, Mapping):
        return f"a dict of {', '.join(map(repr, sample)) or 'nothing'}"
    if isinstance(sample, list | tuple):
        return f"a {type(sample).__name__} of {len(sample)}"
    return f"of type {type(sample).__name__}"


def laid_out(tree: Any) -> tuple[Any, int]:
    """The Part of each leaf, which has a dtype and a shape; and the bytes of all of them."""
    end = 0

    def place(leaf: Any) -> Part:
        nonlocal end
        part = Part(leaf.dtype.newbyteorder("="), tuple(leaf.shape), end)
        end += -(-part.dtype.itemsize * prod(part.shape) // _ALIGN) * _ALIGN
        return part

    return mapped(tree, place), end


def over(layout: Any, memory: Any) -> Any:
    """The arrays of a layout over memory."""

    def view(part: Part) -> NDArray[Any]:
        flat: NDArray[Any] = np.frombuffer(memory, part.dtype, prod(part.shape), part.start)
        return flat.reshape(part.shape)

    return mapped(layout, view)


class Slab:
    """A piece of memory, page-aligned.

    ``file`` is the open file that another process maps as well; -1: memory of this process, of
    which a forked child has a copy.
    """

    __slots__ = ("key", "memory", "nbytes")

    def __init__(self, nbytes: int, key: int = 0, file: int = -1) -> None:
        self.nbytes, self.key = nbytes, key
        flags = mmap.MAP_SHARED if file >= 0 else mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.memory = mmap.mmap(file, nbytes, flags=flags)

    def lent(self, give_back: Callable[[Slab], None]) -> Any:
        """Its memory as an object; once that and its arrays are gone, ``give_back`` is called."""
        memory = np.frombuffer(self.memory, np.uint8, self.nbytes)
        weakref.finalize(memory, give_back, self).atexit = False
        return memory


class Slabs:
    """Slabs of this process, used again."""

    def __init__(self) -> None:
        self._free: deque[Slab] = deque()  # appends and pops are atomic: a lock could be held
        self.made = 0
        """Slabs so far."""

    def take(self, nbytes: int) -> Any:
        """Memory of at least so many bytes, until the last array over it is gone."""
        try:
            while (slab := self._free.pop()).nbytes < nbytes:
                pass  # it is too small, and dropped
        except IndexError:
            slab = Slab(_rounded(nbytes))
            self.made += 1
        return slab.lent(self._free.append)


def _rounded(nbytes: int) -> int:
    return max(_ROOM, -(-nbytes // _ROOM) * _ROOM)


def shared_slab(nbytes: int, key: int = 0) -> tuple[Slab, Any]:
    """A slab that other processes can map, and its file, which has no name."""
    folder = str(_SHARED) if _SHARED.is_dir() else None
    file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - it is handed on
    size = _rounded(nbytes)
    file.truncate(size)
    return Slab(size, key, file.fileno()), file
