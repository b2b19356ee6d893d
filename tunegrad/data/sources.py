"""Sources of samples: arrays and files of arrays, sequences, iterables."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunegrad.errors import ConfigError, ShapeError
from tunegrad.trees import leaves, mapped

from .batches import Part, plain, shared_slab

Array = NDArray[Any]


class _Rows:
    """The array of a source, sent to a process of ours by the name of its file, or by memory that
    both map; never element by element.
    """

    __slots__ = ("_file", "array")

    def __init__(self, array: Array) -> None:
        self.array = array
        self._file: Any = None
        """A copy of the array that all worker processes map."""

    def __reduce__(self) -> tuple[Any, ...]:
        a = self.array
        place = _file_of(a)
        if place is not None:
            return _opened, (*place, a.dtype.str, a.shape)
        if self._file is None:
            slab, self._file = shared_slab(a.nbytes)
            np.frombuffer(slab.memory, a.dtype, a.size).reshape(a.shape)[...] = a
        return _attached, (DupFd(self._file.fileno()), a.dtype.str, a.shape)


def _file_of(a: Array) -> tuple[str, int] | None:
    """The file, and the byte of it, that a contiguous array is mapped from."""
    root: Any = a
    while isinstance(root.base, np.ndarray):
        root = root.base
    if not (isinstance(root, np.memmap) and isinstance(root.base, mmap.mmap)):
        return None
    if not a.flags.c_contiguous or root.mode == "c" or root.filename is None:
        return None
    start, begin = (x.__array_interface__["data"][0] for x in (a, root))
    return str(root.filename), root.offset + start - begin


def _opened(name: str, offset: int, dtype: str, shape: tuple[int, ...]) -> _Rows:
    return _Rows(np.memmap(name, np.dtype(dtype), "r", offset, shape))


def _attached(file: Any, dtype: str, shape: tuple[int, ...]) -> _Rows:
    descriptor = file.detach()
    try:
        memory = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
    finally:
        os.close(descriptor)
    count = int(np.prod(shape, dtype=np.int64))
    return _Rows(np.frombuffer(memory, np.dtype(dtype), count).reshape(shape))


class Arrays:
    """Samples that are rows of arrays."""

    def __init__(self, tree: Any) -> None:
        self._tree = mapped(tree, lambda x: _Rows(_array(x)))
        arrays = [r.array for r in leaves(self._tree)]
        if not arrays:
            raise ShapeError("loader: there is no array among the data")
        for a in arrays:
            if not a.ndim:
                raise ShapeError(f"loader: an array of shape () has no rows ({a.dtype} {a})")
            if len(a) != len(arrays[0]):
                sizes = ", ".join(f"{a.dtype}{list(a.shape)}" for a in arrays)
                raise ShapeError(f"loader: arrays of as many rows are needed, got {sizes}")
        self.length = len(arrays[0])

    def rows(self, count: int) -> Any:
        """The Part that ``count`` rows of each array are."""
        return mapped(self._tree, lambda r: Part(r.array.dtype, (count, *r.array.shape[1:])))

    def read(self, indices: NDArray[np.int64], batch: Any) -> None:
        """Copy these rows to the arrays of a batch."""
        for r, out in zip(leaves(self._tree), leaves(batch), strict=True):
            if r.array.dtype == out.dtype:
                np.take(r.array, indices, 0, out, "clip")  # by no copy, unlike mode="raise"
            else:
                out[...] = r.array[indices]  # from the other order of bytes

    def sample(self, index: int) -> Any:
        """The row of each array."""
        return mapped(self._tree, lambda r: r.array[index])


def _array(x: Any) -> Array:
    if isinstance(x, str | os.PathLike):
        path = Path(x)
        if path.exists() and not path.is_file():  # a pipe is never at its end
            raise ConfigError(f"loader: {path} is no regular file")
        try:
            return plain(np.load(path, mmap_mode="r", allow_pickle=False), str(path))
        except (OSError, ValueError) as error:
            raise ConfigError(f"loader: {path} is no .npy file of numbers ({error})") from error
    return plain(x, "the data")


class Items:
    """Samples by ``__getitem__`` and ``__len__``."""

    def __init__(self, items: Any) -> None:
        self._items = items
        self.length = len(items)

    def sample(self, index: int) -> Any:
        """``items[index]``."""
        return self._items[index]


class Stream:
    """Samples of an iterable, or of a function that gives one; only in their order."""

    length = None

    def __init__(self, data: Iterable[Any] | Callable[[], Iterable[Any]]) -> None:
        self._data = data
        self._used = False

    def begin(self) -> Iterator[Any]:
        """The samples from the first one on.

        Raises ConfigError for an iterator that was read before: it has no beginning any more.
        """
        data = self._data
        if callable(data):
            return iter(data())
        made = iter(data)
        if made is data:
            if self._used:
                raise ConfigError(
                    "loader: this iterator was read before and has no beginning any more; give "
                    "the loader the function that makes it, to have further epochs"
                )
            self._used = True
        return made


Source = Arrays | Items | Stream


def source_of(data: Any) -> Source:
    """The source that data are.

    Arrays, names of .npy files, and tuples and dicts of these; else what has ``__getitem__`` and
    ``__len__``; else what can be iterated over, or a function that gives such a thing.
    """
    if _is_rows(data) or (
        isinstance(data, tuple | dict) and data and all(map(_is_rows, leaves(data)))
    ):
        return Arrays(data)
    if isinstance(data, dict):
        raise ConfigError("loader: a dict of data holds arrays and names of .npy files only")
    is_class = isinstance(data, type)  # its instances have a length, it has none
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not is_class:
        return Items(data)
    if callable(data) or isinstance(data, Iterable):
        return Stream(data)
    raise ConfigError(
        f"loader: {type(data).__name__} is no array, no sequence and no iterable of samples"
    )


def _is_rows(x: Any) -> bool:
    named = isinstance(x, str | os.PathLike)
    return named or (hasattr(x, "__array__") and hasattr(x, "shape") and len(x.shape) > 0)


# ---- random numbers of a sample


@dataclass(slots=True)
class _Sampling(threading.local):
    key: Sequence[int] | None = None
    made: np.random.Generator | None = None


_now = _Sampling()


def sampling(*key: int) -> None:
    """The sample of this seed, epoch and index is read by this thread from now on; none, without a
    key.
    """
    _now.key, _now.made = key or None, None


def rng() -> np.random.Generator:
    """The generator of the sample that a loader is reading in this thread: the same numbers for one
    seed, epoch and index, whatever worker reads it.

    For what a sample's ``__getitem__`` draws. Raises ConfigError outside of one.
    """
    if _now.key is None:
        raise ConfigError("tg.data.rng: no loader is reading a sample in this thread")
    if _now.made is None:
        _now.made = np.random.default_rng(_now.key)
    return _now.made
