"""The store: every trial that was ever measured, as rows of one SQLite file. It knows no search and no hardware."""

from tunegrad.db.lookup import Difference, Hit, Lookup, Miss, Near, Nearby
from tunegrad.db.memory_store import MemoryStore
from tunegrad.db.migrations import APPLICATION_ID, SCHEMA_VERSION
from tunegrad.db.opening import MEMORY, open_store
from tunegrad.db.protocol import Mode, Store
from tunegrad.db.records import Evidence, Problem, Session, Stats
from tunegrad.db.rows import key_of
from tunegrad.db.salvage import salvage
from tunegrad.db.sqlite_store import SqliteStore

__all__ = [
    "APPLICATION_ID",
    "MEMORY",
    "SCHEMA_VERSION",
    "Difference",
    "Evidence",
    "Hit",
    "Lookup",
    "MemoryStore",
    "Miss",
    "Mode",
    "Near",
    "Nearby",
    "Problem",
    "Session",
    "SqliteStore",
    "Stats",
    "Store",
    "key_of",
    "open_store",
    "salvage",
]
