"""Batches that a model is calibrated with: arrays, or a folder or file of them, checked.

    [x0, x1, ...]                one array a batch, of a model with one input
    [(x0, y0), {"x": x1}, ...]   the inputs in order, or by name
    data.npz                     an array for each input, by name (arr_0, arr_1: in order)
    folder/                      *.npz and *.npy, in the order of their names; a .npy is one input

An array has the shape of its input, or several times as many rows: those are batches after each
other. Files are read when they are needed, and never unpickled.
"""

from __future__ import annotations

import os
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunegrad.errors import ModelError
from tunegrad.frontend import Tensor
from tunegrad.runtime import Argument

Array = NDArray[Any]

_SHOWN = 200
_LARGEST = 1 << 30
"""Bytes that any archive may come to; a larger one is a hundredth of that at least."""

_UNREADABLE = (
    OSError, ValueError, EOFError, KeyError, MemoryError, NotImplementedError, RuntimeError,
    SyntaxError, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""Errors of numpy and of zipfile on files that are damaged, encrypted, or claim any size."""


class Batches:
    """All batches of a source, each as arrays by input name; a file's are read again each time.

    Raises ModelError, which names the batch or file: none at all, other names, shapes or dtypes
    than the model's inputs, numbers that are not finite, a file that is none, or holds objects.
    """

    def __init__(
        self, source: str | os.PathLike[str] | Sequence[Any], inputs: Sequence[Argument]
    ) -> None:
        self._inputs = tuple(inputs)
        self._source: Sequence[Any]
        if isinstance(source, str | os.PathLike):
            self._source = _files(Path(source))
        else:
            try:
                self._source = list(source)
            except TypeError:
                raise ModelError(
                    f"batches {source!r:.60}: neither a folder, a file .npz or .npy, nor a "
                    "sequence of arrays"
                ) from None
        self._counts = [len(b) for b in map(self._of, range(len(self._source)))]
        if not len(self):
            place = f" in {source}" if isinstance(source, str | os.PathLike) else ""
            raise ModelError(f"batches: there are none{place} to calibrate with")

    def __len__(self) -> int:
        return sum(self._counts)

    def __iter__(self) -> Iterator[dict[str, Array]]:
        for i in range(len(self._source)):
            yield from self._of(i)

    def part(self, held: bool) -> Iterator[dict[str, Array]]:
        """Those that decide the error, every fourth one, or the others; of fewer than four the last
        one, and a single one is both.
        """
        return (batch for i, batch in enumerate(self) if self._is_of(i, held))

    def count(self, held: bool) -> int:
        """Number of batches of a part."""
        return sum(self._is_of(i, held) for i in range(len(self)))

    def _is_of(self, at: int, held: bool) -> bool:
        n = len(self)
        return n == 1 or held == (at % 4 == 3 if n >= 4 else at == n - 1)

    def _of(self, at: int) -> list[dict[str, Array]]:
        item = self._source[at]
        where = str(item) if isinstance(item, Path) else f"batch {at}"
        given = _read(item) if isinstance(item, Path) else item
        named = self._named(given, where)
        parts = {i.name: self._parts(i, named[i.name], where) for i in self._inputs}
        counts = {name: len(found) for name, found in parts.items()}
        if len(set(counts.values())) > 1:
            raise ModelError(f"{where}: inputs have different numbers of batches: {counts}")
        return [
            dict(zip(parts, arrays, strict=True)) for arrays in zip(*parts.values(), strict=True)
        ]

    def _named(self, given: Any, where: str) -> dict[str, Any]:
        names = [i.name for i in self._inputs]
        if not isinstance(given, Mapping):
            listed = list(given) if isinstance(given, list | tuple) else [given]
            if len(listed) != len(names):
                raise ModelError(
                    f"{where}: {len(listed)} arrays, and the model has {len(names)} inputs: "
                    f"{', '.join(names)}"
                )
            return dict(zip(names, listed, strict=True))
        found = dict(given)
        if set(found) == {f"arr_{i}" for i in range(len(names))} and set(found) != set(names):
            found = {name: found[f"arr_{i}"] for i, name in enumerate(names)}
        if set(found) != set(names):
            said = ascii(", ".join(map(str, found)))[1:-1]  # a file's names may be any text
            said = said if len(said) <= _SHOWN else f"{said[:_SHOWN]}... ({len(found)} of them)"
            raise ModelError(
                f"{where}: arrays {said or 'none'}; the model's inputs are {', '.join(names)}"
            )
        return found

    def _parts(self, i: Argument, value: Any, where: str) -> list[Array]:
        a = _array(value)
        wanted = f"{i.dtype}[{', '.join(map(str, i.shape))}]"
        whole = a.shape == i.shape
        rows = i.shape[0] if i.shape else 0
        several = bool(rows) and a.shape[1:] == i.shape[1:] and a.ndim == len(i.shape)
        if not whole and not (several and a.shape[0] and a.shape[0] % rows == 0):
            raise ModelError(
                f"{where}: array {i.name} has shape {a.shape}; it must be {wanted}, or several "
                "times as many rows"
            )
        if a.dtype.kind == "f" and not np.isfinite(a).all():
            raise ModelError(f"{where}: array {i.name} has numbers that are not finite")
        kind = i.dtype.numpy
        floats = a.dtype.kind == "f" and i.dtype.is_float
        integers = a.dtype.kind in "iu" and i.dtype.is_int
        inside = integers and i.dtype.least <= a.min() and a.max() <= i.dtype.greatest
        if a.dtype != kind and not (floats or inside):
            raise ModelError(f"{where}: array {i.name} is {a.dtype}; it must be {wanted}")
        a = np.ascontiguousarray(a.astype(kind, copy=False)).reshape(a.shape)
        return [a] if whole else [a[k : k + rows] for k in range(0, len(a), rows)]


def _array(value: Any) -> Array:
    if isinstance(value, Tensor):
        return value.numpy()
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    a = np.asarray(value)
    return a.astype(np.float32) if isinstance(value, list) and a.dtype == np.float64 else a


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(p for p in path.iterdir() if p.suffix in (".npz", ".npy"))
    if not path.is_file():
        raise ModelError(f"batches {path}: there is no such folder or file")
    if path.suffix not in (".npz", ".npy"):
        raise ModelError(f"batches {path}: it must be a folder, or end with .npz or .npy")
    return [path]


def _read(path: Path) -> Any:
    """An array, or arrays by name. Raises ModelError."""
    if not path.is_file():  # a pipe is never at its end
        raise ModelError(f"batches {path}: it is no regular file")
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found
        size = sum(i.file_size for i in found.zip.infolist())
        if size > max(_LARGEST, 100 * path.stat().st_size):
            raise ModelError(f"batches {path}: {size:,} bytes in a file of a hundredth")
        with found:
            return {name: found[name] for name in found.files}
    except _UNREADABLE as error:
        said = " ".join(str(error).split())[:160]
        raise ModelError(f"batches {path}: it holds no arrays that can be read: {said}") from None
