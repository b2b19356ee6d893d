"""Where a history takes a new level, as regression sweeps see it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunegrad.db import LatencyRow
from tunegrad.regress.changes import scatter, watch

__all__ = ["changes_of"]


def changes_of(rows: Sequence[LatencyRow]) -> tuple[int, ...]:
    """The places of the rows from which on a series is on another level; the noise is its own.

    Looked at are times over those of the default schedules in the same turns, where all rows have
    them: what the machine did to both is no change.
    """
    beside = [r.default_ms for r in rows if r.default_ms]
    times = np.array([r.time_ms for r in rows])
    values = np.log(times / np.array(beside) if len(beside) == len(rows) else times)
    return tuple(change.start for change in watch(values, scatter(values)).changes)
