"""Compiled objects on disk, shared by every process of one user.

A file per object, named by its key: a magic line, the SHA-256 of the key and the rest, the rest. A
write is a rename, so a reader sees a whole file or none; whatever does not check out, and what was
put under another key, is a miss and is removed. A file's time is its last use: past the size limit
the oldest go first. The cache is never needed: what the file system refuses is logged and
forgotten.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from itertools import count
from pathlib import Path

from tunegrad.forks import ForkSafeLock
from tunegrad.lazy import logger, sha256

__all__ = ["ObjectCache", "writes_left"]

_MAGIC = b"tunegrad object 2\n"
_OLDER_MAGIC = b"tunegrad object 1\n"
_HEAD = len(_MAGIC) + 32
_STALE_S = 3600.0
_OBJECT, _PART = re.compile(r"[0-9a-f]{16,}\.o"), re.compile(r"\.[0-9a-f]{16,}\.\d+\.\d+\.tmp")
"""Names of the files of keys, which are digests, and of what is written."""
_REST = 0.9
"""Fullness of the cache after the oldest were removed: the next write need not look."""


class ObjectCache:
    """Bytes by key, 16 hex digits or more. Methods never raise for what the disk does; threads may
    share it.

    ``limit_bytes`` bounds the files together, give or take what was written since the last look:
    a tenth of it in the mean, by all processes.
    """

    def __init__(self, directory: Path, limit_bytes: int = 1 << 30) -> None:
        self.directory = directory
        self.limit_bytes = limit_bytes
        self._numbers = count()
        self._lock = ForkSafeLock()
        # A place in the tenth between two looks, drawn: what many short processes write is looked
        # at as often as what one writes, and the first write of none has to list a large directory.
        drawn = int.from_bytes(os.urandom(4), "little") / (1 << 32)
        self._unseen = int(drawn * limit_bytes * (1 - _REST))
        self._usable: bool | None = None

    def get(self, key: str) -> bytes | None:
        """Return the body that was put under ``key``, or None: never put, evicted, damaged, or of
        an older tunegrad.
        """
        if not self._ready():
            return None
        path = f"{self.directory}/{key}.o"  # a Path takes as long as to open a file
        try:
            with open(path, "rb") as file:  # noqa: PTH123
                blob = file.read()
        except OSError:
            return None
        body = blob[_HEAD:]
        if blob[:_HEAD] != _head(key, body):
            if blob.startswith(_OLDER_MAGIC):
                logger(__name__).info(
                    "object cache: %s is of an older tunegrad; it is removed and compiled again",
                    path,
                )
            else:
                logger(__name__).warning(
                    "object cache: %s is damaged; it is removed and compiled again", path
                )
            with suppress(OSError):
                os.unlink(path)  # noqa: PTH108
            return None
        with suppress(OSError):
            os.utime(path)
        return body

    def put(self, key: str, body: bytes) -> None:
        """Keep ``body`` under ``key``, where ``writes_left`` is in use when its jobs are done."""
        left = _left.get()
        if left is None:
            self._write(key, body)
        else:
            left.append(partial(self._write, key, body))

    def _write(self, key: str, body: bytes) -> None:
        if not self._ready():
            return
        path = f"{self.directory}/{key}.o"  # Paths take as long as to write a file
        fresh = f"{self.directory}/.{key}.{os.getpid()}.{next(self._numbers)}.tmp"
        try:
            with open(fresh, "wb") as file:  # noqa: PTH123
                file.write(_head(key, body) + body)
            os.replace(fresh, path)  # noqa: PTH105
        except OSError as error:
            logger(__name__).info("object cache: %s can not be written: %s", path, error)
            with suppress(OSError):
                os.unlink(fresh)  # noqa: PTH108
            return
        with self._lock:
            self._unseen += _HEAD + len(body)
            look = self._unseen > self.limit_bytes * (1 - _REST)
            if look:
                self._unseen = 0
        if look:
            self._evict()

    def usage(self) -> tuple[int, int]:
        """The number of objects that are kept, and their bytes together."""
        sizes = [size for _, size, _ in self._listed()]
        return len(sizes), sum(sizes)

    def clear(self) -> int:
        """Remove all objects; the number of those that went."""
        removed = 0
        for _, _, path in self._listed():
            with suppress(OSError):
                path.unlink()
                removed += 1
        return removed

    def _ready(self) -> bool:
        """True if the directory is there and only this user can write to it: its files are run."""
        if self._usable is None:
            try:
                self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                found = self.directory.stat()
                mine = found.st_uid == os.geteuid() and not found.st_mode & (
                    stat.S_IWGRP | stat.S_IWOTH
                )
                if not mine:
                    logger(__name__).warning(
                        "object cache: %s can be written by others; it is not used", self.directory
                    )
                self._usable = mine
            except OSError as error:
                logger(__name__).info("object cache: %s can not be used: %s", self.directory, error)
                self._usable = False
        return self._usable

    def _listed(self) -> list[tuple[float, int, Path]]:
        """Each object's time of use, bytes and file; what a killed writer left is removed.

        A file of another name is none of these, and stays: the directory may be a link to one that
        holds others' objects.
        """
        files: list[tuple[float, int, Path]] = []
        try:
            with os.scandir(self.directory) as entries:
                for entry in entries:
                    with suppress(OSError):
                        facts = entry.stat(follow_symlinks=False)
                        if not stat.S_ISREG(facts.st_mode):
                            continue
                        if _OBJECT.fullmatch(entry.name):
                            files.append((facts.st_mtime, facts.st_size, Path(entry.path)))
                        elif (
                            _PART.fullmatch(entry.name) and time.time() - facts.st_mtime > _STALE_S
                        ):
                            Path(entry.path).unlink()
        except OSError as error:
            logger(__name__).info("object cache: %s can not be listed: %s", self.directory, error)
            return []
        return files

    def _evict(self) -> None:
        """Remove the least recently used files past the limit."""
        files = self._listed()
        total = sum(size for _, size, _ in files)
        if total <= self.limit_bytes:
            return
        for _, size, path in sorted(files):
            if total <= self.limit_bytes * _REST:
                break
            with suppress(OSError):
                path.unlink()
            total -= size


_left: ContextVar[list[Callable[[], None]] | None] = ContextVar("_left", default=None)


@contextmanager
def writes_left(jobs: list[Callable[[], None]]) -> Iterator[None]:
    """In here what this thread would write is added to ``jobs``: a caller waits for its results."""
    token = _left.set(jobs)
    try:
        yield
    finally:
        _left.reset(token)


def _head(key: str, body: bytes) -> bytes:
    """First bytes of a file of ``body`` under ``key``."""
    return _MAGIC + sha256(key.encode() + b"\n" + body).digest()
