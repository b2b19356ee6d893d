"""Keys of texts: of kernels, programs, regions, graphs and work."""

from __future__ import annotations

import hashlib

__all__ = ["key_of"]


def key_of(text: str) -> str:
    """32 hex digits of the SHA-256 of a canonical text; of any text, one of a damaged file
    included.
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
