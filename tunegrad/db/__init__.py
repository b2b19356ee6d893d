"""The store: every trial that was ever measured, as rows of one SQLite file.

It knows no search and no hardware.

Its modules are imported when one of its names is asked for: loading a model only reads, and needs
no exchange of files and no history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.lazy import lazy_names

if TYPE_CHECKING:
    from .check import UnreadText as UnreadText
    from .check import read_contents as read_contents
    from .check import unread_texts as unread_texts
    from .contents import Contents as Contents
    from .contents import Promotion as Promotion
    from .exchange import Claim as Claim
    from .exchange import Exported as Exported
    from .exchange import Finding as Finding
    from .exchange import ImportReport as ImportReport
    from .exchange import MergeReport as MergeReport
    from .exchange import PruneReport as PruneReport
    from .exchange import PruneRules as PruneRules
    from .exchange import Refusal as Refusal
    from .exchange import SalvageReport as SalvageReport
    from .exchange import actions_fault as actions_fault
    from .exchange import diff_stores as diff_stores
    from .exchange import export_store as export_store
    from .exchange import import_store as import_store
    from .exchange import merge_stores as merge_stores
    from .exchange import prune_store as prune_store
    from .exchange import salvage_store as salvage_store
    from .lookup import Difference as Difference
    from .lookup import Hit as Hit
    from .lookup import Lookup as Lookup
    from .lookup import Miss as Miss
    from .lookup import Near as Near
    from .lookup import Nearby as Nearby
    from .opening import MEMORY as MEMORY
    from .opening import check_store as check_store
    from .opening import open_store as open_store
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
    from .rows import clean_text as clean_text
    from .rows import key_of as key_of
    from .rows import machine_id as machine_id
    from .schema import APPLICATION_ID as APPLICATION_ID
    from .schema import SCHEMA_VERSION as SCHEMA_VERSION
    from .store import Mode as Mode
    from .store import Store as Store
    from .views import DecisionChange as DecisionChange
    from .views import DecisionRow as DecisionRow
    from .views import History as History
    from .views import LatencyPair as LatencyPair
    from .views import LatencyRow as LatencyRow
    from .views import MeasurementRow as MeasurementRow
    from .views import StoreDiff as StoreDiff
    from .views import Why as Why
    from .views import WinnerChange as WinnerChange
    from .views import WinnerFacts as WinnerFacts
    from .views import decision_view as decision_view
    from .views import history as history
    from .views import model_history as model_history
    from .views import why as why
else:
    __all__, __getattr__ = lazy_names(
        __name__,
        {
            "check": "UnreadText read_contents unread_texts",
            "contents": "Contents Promotion",
            "exchange": (
                "Claim Exported Finding ImportReport MergeReport PruneReport PruneRules "
                "Refusal SalvageReport actions_fault diff_stores export_store import_store "
                "merge_stores prune_store salvage_store"
            ),
            "lookup": "Difference Hit Lookup Miss Near Nearby",
            "opening": "MEMORY check_store open_store",
            "records": (
                "Decision Evidence IMPORTED Latency PART Problem Properties Question "
                "STOPPED Session Stats Withdrawal imported"
            ),
            "rows": "clean_text key_of machine_id",
            "schema": "APPLICATION_ID SCHEMA_VERSION",
            "store": "Mode Store",
            "views": (
                "DecisionChange DecisionRow History LatencyPair LatencyRow MeasurementRow "
                "StoreDiff Why WinnerChange WinnerFacts decision_view history model_history "
                "why"
            ),
        },
    )
