"""Arrays in a file that is mapped, not read: pages come when they are touched, and processes that
map one file share them.

    8 bytes    how long the header is
    header     JSON: dtype, shape and place of each array, and a text of the writer's; blanks
    arrays     each at a multiple of 64 bytes; what is between two of them is an array, too
    digest     the last array, of 32 bytes: SHA-256 of all bytes before it

That is the format of safetensors, and any file of it can be read. Only files that were written here
have a digest.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "<i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "<u1", "BOOL": "?",
}  # fmt: skip
"""numpy's name of each dtype in such a file; bf16 are 16-bit patterns there."""

_NAMES = {np.dtype(name): kind for kind, name in _DTYPES.items() if kind != "BF16"}
_ALIGN = 64
_LONGEST_HEADER = 100 << 20
_DIGEST = "__sha256__"
_DIGEST_BYTES = 32


class MappedFileError(Exception):
    """A file that holds no such arrays; the message says why, without the file's name."""


class UnknownKindError(MappedFileError):
    """A file with an array of a dtype that numpy does not have."""


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def write_arrays(path: Path, arrays: Mapping[str, Array], about: Mapping[str, str]) -> None:
    """Write arrays, and a text of the writer's by name; a file of that name is replaced at the end,
    of a link the one that it leads to.

    Raises OSError, and leaves nothing behind then. What a process left behind that was killed in a
    write to this name is removed.
    """
    header: dict[str, object] = {"__metadata__": dict(about)}
    parts: list[bytes | memoryview] = []
    at = 0
    for name, array in arrays.items():
        flat = np.ascontiguousarray(array)
        header[name] = {
            "dtype": _NAMES[flat.dtype],
            "shape": list(array.shape),
            "data_offsets": [at, at + flat.nbytes],
        }
        rest = -flat.nbytes % _ALIGN
        at += flat.nbytes
        parts.append(flat.reshape(-1).view(np.uint8).data)
        if rest:
            header[f"__pad__{len(parts)}"] = {
                "dtype": "U8", "shape": [rest], "data_offsets": [at, at + rest]
            }  # fmt: skip
            at += rest
            parts.append(bytes(rest))
    header[_DIGEST] = {
        "dtype": "U8", "shape": [_DIGEST_BYTES], "data_offsets": [at, at + _DIGEST_BYTES]
    }  # fmt: skip
    text = msgspec.json.encode(header)
    text += b" " * (-(8 + len(text)) % _ALIGN)
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no regular file")
    fresh = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with _locked(fresh) as file:
        try:
            digest = hashlib.sha256()
            for part in (len(text).to_bytes(8, "little"), text, *parts):
                digest.update(part)
                file.write(part)
            file.write(digest.digest())
            file.flush()
            fresh.replace(path)  # while it is locked: until then its name is one that is removed
        except BaseException:
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        with contextlib.suppress(OSError), left.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink()


def _locked(path: Path) -> BinaryIO:
    """An empty file of this name, of which others see that its writer lives."""
    while True:
        file = path.open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            there = os.path.samestat(path.stat(), os.fstat(file.fileno()))
        except FileNotFoundError:  # another removed it before it was locked
            there = False
        except OSError:  # a file system without locks
            there = True
        if there:
            file.truncate(0)
            return file
        file.close()


def check_digest(path: Path) -> None:
    """Raise MappedFileError unless a file of ``write_arrays`` is as it was written.

    Every byte is read, at about 1.5 GB/s of one core.
    """
    size = path.stat().st_size
    if size <= _DIGEST_BYTES:
        raise MappedFileError("it is cut off")
    whole = np.memmap(path, np.uint8, "r")
    if hashlib.sha256(whole[:-_DIGEST_BYTES].data).digest() != whole[-_DIGEST_BYTES:].tobytes():
        raise MappedFileError("it is damaged: its bytes are not what was written")


def map_arrays(path: Path) -> tuple[dict[str, Array], dict[str, str], dict[str, str]]:
    """The arrays of a file, which can not be written to, and the texts of the writer.

    The third are the file's dtypes, by name: arrays of ``BF16`` are of ``uint16``. Raises OSError
    for a file that can not be read, MappedFileError for one of another format.
    """
    about_file = path.stat()
    if not stat.S_ISREG(about_file.st_mode):  # a pipe is never at its end
        raise MappedFileError("it is no regular file")
    size = about_file.st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _LONGEST_HEADER):
            raise MappedFileError("it is cut off, or no safetensors file")
        text = file.read(length)
    try:
        header = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        about = msgspec.json.decode(header.pop("__metadata__", b"{}"), type=dict[str, str])
        entries = {name: msgspec.json.decode(raw, type=_Entry) for name, raw in header.items()}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MappedFileError(f"its header is not a safetensors header: {error}") from None
    at = 0
    for begin, end, name in sorted((*e.data_offsets, name) for name, e in entries.items()):
        if begin < at:
            raise MappedFileError(f"{name} has bytes that another array has")
        at = end
    whole: Array = np.empty(0, np.uint8)
    if size > 8 + length:
        whole = np.memmap(path, np.uint8, "r", 8 + length)
    arrays = {
        name: _array(name, e, whole)
        for name, e in entries.items()
        if not name.startswith("__pad__") and name != _DIGEST
    }
    return arrays, about, {name: entries[name].dtype for name in arrays}


def _array(name: str, e: _Entry, whole: Array) -> Array:
    if e.dtype not in _DTYPES:
        raise UnknownKindError(f"{name} has dtype {e.dtype:.80}; valid: {', '.join(_DTYPES)}")
    dtype, (begin, end) = np.dtype(_DTYPES[e.dtype]), e.data_offsets
    count = 1
    for extent in e.shape:
        count *= extent
    if not 0 <= begin <= end <= whole.nbytes or min(e.shape, default=0) < 0:
        raise MappedFileError(f"{name} lies outside the file")
    if count * dtype.itemsize != end - begin:
        raise MappedFileError(
            f"{name} has {end - begin} bytes, its shape {e.shape!s:.200} takes others"
        )
    part = whole[begin:end]
    if begin % dtype.itemsize:  # numpy's views may begin anywhere, and compiled code may not
        part = part.copy()
    try:
        return np.asarray(part).view(dtype).reshape(e.shape)
    except ValueError as error:  # more dimensions, or larger ones, than an array can have
        raise MappedFileError(f"{name} has the shape {e.shape!s:.200}: {error}") from None
