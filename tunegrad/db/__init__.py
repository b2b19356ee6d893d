"""The store: every trial that was ever measured, as rows of one SQLite file.

It knows no search and no hardware.


Its modules are imported when one of its names is asked for: who loads a model reads, and needs no
exchange of files and no history.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tunegrad.db.claims import Claim, Finding, Refusal, actions_fault
    from tunegrad.db.contents import Contents
    from tunegrad.db.diff import DecisionChange, LatencyPair, StoreDiff, WinnerChange, WinnerFacts
    from tunegrad.db.exchange import (
        Exported,
        ImportReport,
        MergeReport,
        PruneReport,
        SalvageReport,
        diff_stores,
        export_store,
        import_store,
        merge_stores,
        prune_store,
        salvage_store,
    )
    from tunegrad.db.history import (
        DecisionRow,
        History,
        LatencyRow,
        MeasurementRow,
        history,
        model_history,
    )
    from tunegrad.db.lookup import Difference, Hit, Lookup, Miss, Near, Nearby
    from tunegrad.db.memory_store import MemoryStore
    from tunegrad.db.migrations import APPLICATION_ID, SCHEMA_VERSION
    from tunegrad.db.opening import MEMORY, check_store, open_store
    from tunegrad.db.portability import Machine, Portability, PortabilityRow, portability
    from tunegrad.db.protocol import Mode, Store
    from tunegrad.db.prune import PruneRules
    from tunegrad.db.reading import read_contents
    from tunegrad.db.records import (
        IMPORTED,
        PART,
        STOPPED,
        Decision,
        Evidence,
        Latency,
        Problem,
        Properties,
        Question,
        Session,
        Stats,
        Withdrawal,
    )
    from tunegrad.db.rows import key_of
    from tunegrad.db.sqlite_store import SqliteStore
    from tunegrad.db.texts import UnreadText, unread_texts
    from tunegrad.db.why import Why, why

__all__ = [
    "APPLICATION_ID",
    "IMPORTED",
    "MEMORY",
    "PART",
    "SCHEMA_VERSION",
    "STOPPED",
    "Claim",
    "Contents",
    "Decision",
    "DecisionChange",
    "DecisionRow",
    "Difference",
    "Evidence",
    "Exported",
    "Finding",
    "History",
    "Hit",
    "ImportReport",
    "Latency",
    "LatencyPair",
    "LatencyRow",
    "Lookup",
    "Machine",
    "MeasurementRow",
    "MemoryStore",
    "MergeReport",
    "Miss",
    "Mode",
    "Near",
    "Nearby",
    "Portability",
    "PortabilityRow",
    "Problem",
    "Properties",
    "PruneReport",
    "PruneRules",
    "Question",
    "Refusal",
    "SalvageReport",
    "Session",
    "SqliteStore",
    "Stats",
    "Store",
    "StoreDiff",
    "UnreadText",
    "Why",
    "WinnerChange",
    "WinnerFacts",
    "Withdrawal",
    "actions_fault",
    "check_store",
    "diff_stores",
    "export_store",
    "history",
    "import_store",
    "key_of",
    "merge_stores",
    "model_history",
    "open_store",
    "portability",
    "prune_store",
    "read_contents",
    "salvage_store",
    "unread_texts",
    "why",
]

_HOMES = {
    "claims": (
        "Claim",
        "Finding",
        "Refusal",
        "actions_fault",
    ),
    "contents": ("Contents",),
    "diff": (
        "DecisionChange",
        "LatencyPair",
        "StoreDiff",
        "WinnerChange",
        "WinnerFacts",
    ),
    "exchange": (
        "Exported",
        "ImportReport",
        "MergeReport",
        "PruneReport",
        "SalvageReport",
        "diff_stores",
        "export_store",
        "import_store",
        "merge_stores",
        "prune_store",
        "salvage_store",
    ),
    "history": (
        "DecisionRow",
        "History",
        "LatencyRow",
        "MeasurementRow",
        "history",
        "model_history",
    ),
    "lookup": (
        "Difference",
        "Hit",
        "Lookup",
        "Miss",
        "Near",
        "Nearby",
    ),
    "memory_store": ("MemoryStore",),
    "migrations": (
        "APPLICATION_ID",
        "SCHEMA_VERSION",
    ),
    "opening": (
        "MEMORY",
        "check_store",
        "open_store",
    ),
    "portability": (
        "Machine",
        "Portability",
        "PortabilityRow",
        "portability",
    ),
    "protocol": (
        "Mode",
        "Store",
    ),
    "prune": ("PruneRules",),
    "reading": ("read_contents",),
    "records": (
        "IMPORTED",
        "PART",
        "STOPPED",
        "Decision",
        "Evidence",
        "Latency",
        "Problem",
        "Properties",
        "Question",
        "Session",
        "Stats",
        "Withdrawal",
    ),
    "rows": ("key_of",),
    "sqlite_store": ("SqliteStore",),
    "texts": (
        "UnreadText",
        "unread_texts",
    ),
    "why": (
        "Why",
        "why",
    ),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


class _Package(ModuleType):
    """``history``, ``portability`` and ``why`` are functions, also after their modules of the same
    names were imported.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name in _MODULES and isinstance(value, ModuleType):
            return
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
