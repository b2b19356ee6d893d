"""Files that are there as a whole or not at all."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

from tunegrad.errors import StoreError

__all__ = ["write_whole"]


def write_whole(path: Path, content: bytes) -> None:
    """Put ``content`` into a file, gzipped if its name ends in ``.gz``, whole or not at all. Raises StoreError."""
    data = gzip.compress(content, 9, mtime=0) if path.suffix == ".gz" else content
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise StoreError(f"{path}: can not be written: {error.strerror}") from error
