"""The store: every trial that was ever measured, as rows of one SQLite file.

It knows no search and no hardware.

Its modules are imported when one of its names is asked for: loading a model only reads, and needs
no exchange of files and no history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.lazy import lazy_names

if TYPE_CHECKING:
    from .claims import Claim as Claim
    from .claims import Finding as Finding
    from .claims import Refusal as Refusal
    from .claims import actions_fault as actions_fault
    from .contents import Contents as Contents
    from .diff import DecisionChange as DecisionChange
    from .diff import LatencyPair as LatencyPair
    from .diff import StoreDiff as StoreDiff
    from .diff import WinnerChange as WinnerChange
    from .diff import WinnerFacts as WinnerFacts
    from .exchange import Exported as Exported
    from .exchange import ImportReport as ImportReport
    from .exchange import MergeReport as MergeReport
    from .exchange import PruneReport as PruneReport
    from .exchange import SalvageReport as SalvageReport
    from .exchange import diff_stores as diff_stores
    from .exchange import export_store as export_store
    from .exchange import import_store as import_store
    from .exchange import merge_stores as merge_stores
    from .exchange import prune_store as prune_store
    from .exchange import salvage_store as salvage_store
    from .history import DecisionRow as DecisionRow
    from .history import History as History
    from .history import LatencyRow as LatencyRow
    from .history import MeasurementRow as MeasurementRow
    from .history import history as history
    from .history import model_history as model_history
    from .lookup import Difference as Difference
    from .lookup import Hit as Hit
    from .lookup import Lookup as Lookup
    from .lookup import Miss as Miss
    from .lookup import Near as Near
    from .lookup import Nearby as Nearby
    from .memory_store import MemoryStore as MemoryStore
    from .migrations import APPLICATION_ID as APPLICATION_ID
    from .migrations import SCHEMA_VERSION as SCHEMA_VERSION
    from .opening import MEMORY as MEMORY
    from .opening import check_store as check_store
    from .opening import open_store as open_store
    from .portability import Machine as Machine
    from .portability import Portability as Portability
    from .portability import PortabilityRow as PortabilityRow
    from .portability import portability as portability
    from .protocol import Mode as Mode
    from .protocol import Store as Store
    from .prune import PruneRules as PruneRules
    from .reading import read_contents as read_contents
    from .records import IMPORTED as IMPORTED
    from .records import PART as PART
    from .records import STOPPED as STOPPED
    from .records import Decision as Decision
    from .records import Evidence as Evidence
    from .records import Latency as Latency
    from .records import Problem as Problem
    from .records import Properties as Properties
    from .records import Question as Question
    from .records import Session as Session
    from .records import Stats as Stats
    from .records import Withdrawal as Withdrawal
    from .records import imported as imported
    from .rows import key_of as key_of
    from .sqlite_store import SqliteStore as SqliteStore
    from .texts import UnreadText as UnreadText
    from .texts import unread_texts as unread_texts
    from .why import Why as Why
    from .why import why as why
else:
    __all__, __getattr__ = lazy_names(
        __name__,
        {
            "claims": "Claim Finding Refusal actions_fault",
            "contents": "Contents",
            "diff": "DecisionChange LatencyPair StoreDiff WinnerChange WinnerFacts",
            "exchange": (
                "Exported ImportReport MergeReport PruneReport SalvageReport diff_stores "
                "export_store import_store merge_stores prune_store salvage_store"
            ),
            "history": "DecisionRow History LatencyRow MeasurementRow history model_history",
            "lookup": "Difference Hit Lookup Miss Near Nearby",
            "memory_store": "MemoryStore",
            "migrations": "APPLICATION_ID SCHEMA_VERSION",
            "opening": "MEMORY check_store open_store",
            "portability": "Machine Portability PortabilityRow portability",
            "protocol": "Mode Store",
            "prune": "PruneRules",
            "reading": "read_contents",
            "records": (
                "IMPORTED PART STOPPED Decision Evidence Latency Problem Properties "
                "Question Session Stats Withdrawal imported"
            ),
            "rows": "key_of",
            "sqlite_store": "SqliteStore",
            "texts": "UnreadText unread_texts",
            "why": "Why why",
        },
    )
