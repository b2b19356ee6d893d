"""The pace of a session: the moment at which the sum of its best kernel times came near its final
value.

    rows of every kernel,  -->  sum of uses x best  -->  the first moment within
    by date                     time so far              5 % of its end

Told from rows alone, so it can be had again from the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from tunegrad.trial import Trial

__all__ = ["NEAR", "near_s"]

NEAR = 0.05
"""Part above the final value that still counts as near it."""


def near_s(
    kernels: Sequence[tuple[int, Sequence[Trial]]], session: str, began_s: float
) -> float | None:
    """Seconds after ``began_s`` (since the epoch) until the sum stayed within ``NEAR`` of its final
    value.

    ``kernels`` are (uses, rows). Rows of other sessions were there before. Kernels of which nothing
    ran are left out; None where none did.
    """
    ran = [
        (uses, rows) for uses, found in kernels if (rows := [t for t in found if t.measurement.ran])
    ]
    if not ran:
        return None
    best: list[float] = [inf] * len(ran)
    final_s = sum(uses * min(t.measurement.seconds for t in rows) for uses, rows in ran)
    dated = [
        (max(0.0, t.created_s - began_s) if t.session == session else 0.0, i, t.measurement.seconds)
        for i, (_, rows) in enumerate(ran)
        for t in rows
    ]
    for at_s, i, seconds in sorted(dated):
        best[i] = min(best[i], seconds)
        if sum(uses * s for (uses, _), s in zip(ran, best, strict=True)) <= (1.0 + NEAR) * final_s:
            return at_s
    return None
