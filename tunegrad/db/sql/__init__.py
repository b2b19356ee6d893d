"""The SQL of a store: questions, and the insertion of records with the rows that they name."""

from __future__ import annotations

from . import queries, writing

__all__ = ["queries", "writing"]
