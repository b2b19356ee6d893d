"""Files that are there as a whole or not at all."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

from tunegrad.errors import StoreError
from tunegrad.search import Recording

__all__ = ["check_own", "write_whole"]


def check_own(recording: Recording) -> None:
    """Raises StoreError for another tuner's recording: without kernel and actions, a file of ours
    can not hold it.
    """
    if recording.foreign:
        raise StoreError(
            f"{recording.kernel_name}: results of another tuner are read for search-bench, and "
            "not written"
        )


def write_whole(path: Path, content: bytes) -> None:
    """Put ``content`` into a file, gzipped if its name ends in ``.gz``, whole or not at all.

    Raises StoreError.
    """
    data = gzip.compress(content, 9, mtime=0) if path.suffix == ".gz" else content
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise StoreError(f"{path}: can not be written: {error.strerror}") from error
