"""Measured here, or claimed by a file: what a file claims is tried like any alternative, and
settles nothing.
"""

from __future__ import annotations

from tunegrad.db import Decision, Evidence, Question, Store
from tunegrad.opts import SPACE_VERSION
from tunegrad.trial import Fingerprint, Trial

__all__ = ["decided_here", "measured_here"]


def measured_here(store: Store, key: str, here: Fingerprint) -> list[tuple[Trial, Evidence]]:
    """The promotions of a kernel that rest on samples of this machine, oldest first."""
    return [(t, e) for t, e in store.promotions(key, here) if not e.imported]


def decided_here(store: Store, question: Question, key: str, here: Fingerprint) -> Decision | None:
    """The decision of whole models on this machine; None where there is none, or a file
    claims it.
    """
    found = store.decision(question, key, here, SPACE_VERSION)
    return None if found is None or found.imported else found
