"""Measured here, or claimed by a file: what a file claims is tried like any alternative, and settles nothing."""

from __future__ import annotations

from tunegrad.db import IMPORTED, Evidence, Store
from tunegrad.trial import Fingerprint, Trial

__all__ = ["claimed", "measured_here"]


def claimed(trial: Trial) -> bool:
    """Whether a file says so."""
    return trial.origin.startswith(IMPORTED)


def measured_here(store: Store, key: str, here: Fingerprint) -> list[tuple[Trial, Evidence]]:
    """The promotions of a key that rest on samples of this machine, oldest first."""
    return [(t, e) for t, e in store.promotions(key, here) if not e.imported]
