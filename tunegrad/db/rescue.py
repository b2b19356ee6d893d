"""The rest of a damaged store: its readable rows, as a store in memory that is only read."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tunegrad.db.check import salvaged_contents
from tunegrad.db.memory_store import MemoryStore

__all__ = ["rescue"]


def rescue(path: Path, clock: Callable[[], float] = time.time) -> MemoryStore:
    """Every sound row of a damaged store, in memory and read-only; ``verify`` says what was lost.

    Ids are new. Raises StoreError when not even the schema can be read.
    """
    contents, problems = salvaged_contents(path)
    store = MemoryStore("write", label=str(path), clock=clock, problems=problems)
    store.fill(contents)
    store.freeze()
    return store
