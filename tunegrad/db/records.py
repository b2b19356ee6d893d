"""What the store keeps beside trials, and what it says about itself. Plain data, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass

from tunegrad.trial import Status, Trial

__all__ = ["IMPORTED", "STOPPED", "WITHDRAWN", "Evidence", "Problem", "Session", "Stats", "Withdrawal", "withdrawn_by"]

IMPORTED = "imported:"
"""How the origin of a trial, and the test of a promotion, begin when they came out of an imported file."""

STOPPED = "stopped: "
"""How the settings of a spend begin that is no time spent, but the budget within which a search is over already."""


WITHDRAWN = "withdrawn by session "
"""How the error of a trial begins that was withdrawn."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Why a challenger replaced an incumbent: the two-sample test and the samples it saw.

    ``test`` names the test, ``p_value`` is in [0, 1]. Samples are in seconds and interleaved; the incumbent's are
    empty for the first winner of a kernel. ``cold`` says whether caches were evicted before each sample.
    """

    test: str
    p_value: float
    incumbent_samples_s: tuple[float, ...]
    challenger_samples_s: tuple[float, ...]
    cold: bool

    @property
    def imported(self) -> bool:
        """Whether a file claims it, and nobody here measured it."""
        return self.test.startswith(IMPORTED)


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """A trial that shall never win again, as it was measured; which session said so, and what it saw."""

    trial: Trial
    reason: str
    session: str
    created_s: float

    def __str__(self) -> str:
        return withdrawn_by(self.session, self.reason)


def withdrawn_by(session: str, reason: str) -> str:
    """What a withdrawn trial says of itself."""
    return f"{WITHDRAWN}{session}: {reason}"


@dataclass(frozen=True, slots=True)
class Session:
    """One run of a command that measured. ``settings`` is JSON text; ``ended_s`` is None while it runs, or if killed.

    A session that only its trials' rows name (imported ones) has an empty command. Times are seconds since the epoch.
    """

    id: str
    started_s: float
    ended_s: float | None
    command: str
    seed: int
    settings: str
    version: str


@dataclass(frozen=True, slots=True)
class Problem:
    """A damaged row or file: found, reported and skipped. ``row`` is the row's id, None for a whole table or file."""

    table: str
    row: int | None
    text: str

    def __str__(self) -> str:
        return f"{self.table}: {self.text}" if self.row is None else f"{self.table} row {self.row}: {self.text}"


@dataclass(frozen=True, slots=True)
class Stats:
    """What a store holds. ``by_status`` lists every status; ``unknown_status`` counts rows with none of them."""

    trials: int
    by_status: tuple[tuple[Status, int], ...]
    unknown_status: int
    kernels: int
    fingerprints: int
    sessions: int
    promotions: int
    withdrawals: int
    spent_s: float
    size_bytes: int
    schema_version: int
