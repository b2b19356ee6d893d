# mypy: implicit-reexport
"""The store: every trial that was ever measured, as rows of one SQLite file.

It knows no search and no hardware.

Its modules are imported when one of its names is asked for: loading a model only reads, and needs
no exchange of files and no history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.lazy import lazy_names

if TYPE_CHECKING:
    # isort: off
    from .check import UnreadText, read_contents, unread_texts
    from .contents import Contents, Promotion
    from .exchange import (
        Claim, Exported, Finding, ImportReport, MergeReport, PruneReport, PruneRules, Refusal,
        SalvageReport, actions_fault, diff_stores, export_store, import_store, merge_stores,
        prune_store, salvage_store,
    )  # fmt: skip
    from .lookup import Difference, Hit, Lookup, Miss, Near, Nearby
    from .opening import MEMORY, check_store, open_store
    from .records import (
        IMPORTED, PART, STOPPED, Decision, Evidence, Latency, Problem, Properties, Question,
        Session, Stats, Withdrawal, imported,
    )  # fmt: skip
    from .rows import clean_text, key_of, machine_id
    from .schema import APPLICATION_ID, SCHEMA_VERSION
    from .store import Mode, Store
    from .views import (
        DecisionChange, DecisionRow, History, LatencyPair, LatencyRow, MeasurementRow, StoreDiff,
        Why, WinnerChange, WinnerFacts, decision_view, history, model_history, why,
    )  # fmt: skip
    # isort: on
else:
    __all__, __getattr__ = lazy_names(__name__)
