"""Files of commands: the store that each is about, and those that it writes, which are looked at
before anything takes time, and written whole.
"""

from __future__ import annotations

import os
from errno import EISDIR
from pathlib import Path

from tunegrad.errors import StoreError


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


def store_path(given: str | None, *, make_place: bool = False) -> Path:
    """The store that a command is about; ``make_place``: with the default one's directory."""
    from tunegrad.config import default_store

    if given is not None:
        return Path(given).expanduser()
    path = default_store()
    if make_place:
        make_default_place(path)
    return path


def make_default_place(store: Path) -> None:
    """Make the directory of the default store; one that the user named must exist."""
    try:
        store.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"store {store}: directory {store.parent} can not be made: {error.strerror}"
        ) from error
