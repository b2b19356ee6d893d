"""Checks of a store: its file, the links between its rows, and the content of every row."""

from __future__ import annotations

from .reading import read_contents, salvaged_contents, sound_contents
from .texts import UnreadText, unread_texts
from .verify import verify_store

__all__ = [
    "UnreadText",
    "read_contents",
    "salvaged_contents",
    "sound_contents",
    "unread_texts",
    "verify_store",
]
