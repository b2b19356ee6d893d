"""A store as one SQLite file: its place, the lock of its writer, its schema, its connections."""

from __future__ import annotations

from .connection import (
    DamagedStore,
    close_writer,
    connect_reader,
    connect_salvager,
    connect_writer,
    damage_of,
)
from .location import MOUNTS, check_location
from .lock import WriterLock
from .schema import APPLICATION_ID, SCHEMA_VERSION

__all__ = [
    "APPLICATION_ID",
    "MOUNTS",
    "SCHEMA_VERSION",
    "DamagedStore",
    "WriterLock",
    "check_location",
    "close_writer",
    "connect_reader",
    "connect_salvager",
    "connect_writer",
    "damage_of",
]
