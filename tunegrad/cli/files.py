"""Files that a command writes: looked at before anything takes time, and written whole."""

from __future__ import annotations

import os
from errno import EISDIR
from pathlib import Path

__all__ = ["check_writable", "write_whole"]


def check_writable(place: Path) -> None:
    """Raise OSError where ``write_whole`` could not begin."""
    if place.is_dir():
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
    if not _in_place(place):
        part = _part(place)
        part.touch()
        part.unlink()


def write_whole(place: Path, data: bytes) -> None:
    """Write a file, or leave what was there: what is cut off by a full disk is no result.

    Raises OSError.
    """
    if _in_place(place):
        place.write_bytes(data)
        return
    part = _part(place)
    try:
        part.write_bytes(data)
        part.replace(place)
    finally:
        part.unlink(missing_ok=True)


def _in_place(place: Path) -> bool:
    """True for a path that is written in place: a device or a pipe, and a link, which stays one."""
    return place.is_symlink() or (place.exists() and not place.is_file())


def _part(place: Path) -> Path:
    return place.with_name(f".{place.name}.{os.getpid()}.part")
