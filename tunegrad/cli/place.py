"""The place of a command's store."""

from __future__ import annotations

from pathlib import Path

from tunegrad.errors import StoreError

__all__ = ["make_default_place", "store_path"]


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
    """Make the directory of the default store, which no user has made; one that the user named must
    exist.
    """
    try:
        store.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"store {store}: directory {store.parent} can not be made: {error.strerror}"
        ) from error
