"""Outcomes of candidates, and the messages of those that failed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from tunegrad.trial import Status, Trial

from .records import Failure

__all__ = ["failures_of", "statuses_of"]

_MOST = 12
_NUMBER = re.compile(r"\d[\d.,e+-]*")


def statuses_of(trials: Sequence[Trial]) -> tuple[tuple[Status, int], ...]:
    """Number of candidates by outcome; nothing of what did not happen."""
    counts = Counter(t.measurement.status for t in trials)
    return tuple((s, counts[s]) for s in Status if counts[s])


def failures_of(trials: Sequence[Trial], names: Mapping[str, str]) -> tuple[Failure, ...]:
    """Failures by kind: alike are those of one status whose messages differ in numbers only. The
    most frequent first, a dozen at most.
    """
    failed = [t for t in trials if t.measurement.status is not Status.OK]
    alike: dict[tuple[Status, str], list[Trial]] = {}
    for t in failed:
        alike.setdefault((t.measurement.status, _NUMBER.sub("N", _first(t))), []).append(t)
    found = [
        Failure(status, _first(some[0]), len(some), names.get(some[0].kernel_key, ""),
            some[0].actions)
        for (status, _), some in alike.items()
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda f: -f.count)[:_MOST])


def _first(trial: Trial) -> str:
    """The first line of what was said."""
    lines = trial.measurement.error.strip().splitlines()
    return lines[0][:300] if lines else ""
