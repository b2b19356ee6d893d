"""A store as one SQLite file: its place, the lock of its writer, its schema, its connections."""

from __future__ import annotations

from .connection import (
    DamagedStore,
    connect_memory,
    connect_reader,
    connect_salvager,
    connect_writer,
    damage_of,
)
from .database import Database, Run
from .location import MOUNTS, check_location
from .lock import WriterLock
from .schema import APPLICATION_ID, SCHEMA_VERSION

__all__ = [
    "APPLICATION_ID",
    "MOUNTS",
    "SCHEMA_VERSION",
    "DamagedStore",
    "Database",
    "Run",
    "WriterLock",
    "check_location",
    "connect_memory",
    "connect_reader",
    "connect_salvager",
    "connect_writer",
    "damage_of",
]
