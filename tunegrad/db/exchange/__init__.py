"""Stores as files that are exchanged: exported, imported, merged, pruned, salvaged."""

from __future__ import annotations

from .claims import Claim, Finding, Refusal, actions_fault
from .export import export_lines
from .stores import (
    Exported,
    ImportReport,
    MergeReport,
    PruneReport,
    PruneRules,
    SalvageReport,
    diff_stores,
    export_store,
    import_store,
    merge_stores,
    prune_store,
    salvage_store,
)

__all__ = [
    "Claim", "Exported", "Finding", "ImportReport", "MergeReport", "PruneReport", "PruneRules",
    "Refusal", "SalvageReport", "actions_fault", "diff_stores", "export_lines", "export_store",
    "import_store", "merge_stores", "prune_store", "salvage_store",
]  # fmt: skip
