"""Digests that tell two generated programs, and two contents of memory, apart: the one definition
for workers, stored rows, and models that are loaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tunegrad.devices.lowered import Lowered

__all__ = ["contents_digest", "program_hash"]


def program_hash(lowered: Lowered) -> str:
    """32 hex digits of the BLAKE2 hash of the text and of all that a launch needs beside it.

    The machine and the compiler are not in it: rows of a store have them in their fingerprint,
    objects in their key.
    """
    g, scratch = lowered.geometry, lowered.scratch_bytes
    words: list[object] = [lowered.entry, sum(scratch), g.groups]
    if g.items > 1 or len(scratch) > 1:
        words += [g.items, *scratch]
    if g.shared_bytes:
        words.append(f"shared {g.shared_bytes}")
    text = f"{' '.join(map(str, words))} {lowered.io.packs}\n{lowered.text}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def contents_digest(contents: Iterable[NDArray[np.uint8]]) -> str:
    """32 hex digits of the BLAKE2 hash of bytes, array by array, each after its size."""
    whole = hashlib.blake2b(digest_size=16)
    for data in contents:
        whole.update(f"{data.nbytes} ".encode())
        whole.update(data.tobytes())
    return whole.hexdigest()
