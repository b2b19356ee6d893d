"""The records of a report. Times are in seconds; None stands for "not measured".

Every text may come from a store of another person: it is data, and the code that prints it escapes
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Literal

from tunegrad.db import DecisionRow, LatencyRow
from tunegrad.paired import Interval
from tunegrad.trial import Status

from .facts import SessionFacts

__all__ = [
    "Failure",
    "HistoryChart",
    "Judgement",
    "KernelEntry",
    "Latencies",
    "PeerTime",
    "ReportPage",
    "Series",
    "SessionLine",
    "SessionPage",
    "Source",
    "Trace",
]

Measured = Literal["model", "sweep", "race", "alone"]
"""Origin of a kernel's times: whole models at the end of the session, or in the turns of a sweep;
the race that its winner won; the kernel alone, as the search timed it.
"""


@dataclass(frozen=True, slots=True)
class KernelEntry:
    """A kernel of a session's models, before and after: one launch, with the default schedule (or
    what won before) and with the winner.

    ``gain`` is by pairs where ``interval`` is there, else of the two times.
    ``flops`` and ``unique_bytes`` are of one launch; None where the kernel's text can not be read.
    ``candidates`` are the session's trials of it by status, ``code`` what a compiler made of the
    winner, as the store has it.
    """

    name: str
    key: str
    uses: int
    layers: str
    before_s: float | None
    after_s: float | None
    gain: float | None
    interval: Interval | None
    measured: Measured
    actions: str
    origin: str
    flops: int | None
    unique_bytes: int | None
    candidates: Mapping[str, int] = field(default_factory=dict)
    code: Mapping[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Series:
    """The best so far of what one source proposed: (seconds since the session began, seconds of the
    kernel), at every improvement.
    """

    origin: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """The search of one kernel: a series per source; ``default_s`` is what it began with."""

    name: str
    key: str
    default_s: float
    series: tuple[Series, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """A source of schedules: how many it proposed, how many of them failed, how often one was the
    fastest of its kernel so far, and of how many kernels it proposed the winner.
    """

    origin: str
    candidates: int
    failed: int
    improvements: int
    winners: int


@dataclass(frozen=True, slots=True)
class Failure:
    """A kind of failure of candidates: the status, the first message, how many, and an example."""

    status: Status
    message: str
    count: int
    kernel: str
    actions: str


@dataclass(frozen=True, slots=True)
class Latencies:
    """A whole model, before and after, in turns; medians."""

    model: str
    default_s: float | None
    tuned_s: float
    gain: float | None
    interval: Interval | None


@dataclass(frozen=True, slots=True)
class PeerTime:
    """Another library on a model, between the turns of a sweep; its median."""

    model: str
    peer: str
    seconds: float


@dataclass(frozen=True, slots=True)
class SessionLine:
    """A session in one line. ``where`` is the device, and its threads where it has some."""

    id: str
    command: str
    models: tuple[str, ...]
    where: str
    started_s: float
    seconds: float | None
    searcher: str
    candidates: int
    latencies: tuple[Latencies, ...]


@dataclass(frozen=True, slots=True)
class SessionPage:
    """All of one session. ``progress`` is the sum of the models' kernels by the best times so far:
    (seconds since the session began, seconds of one run).

    Of a sweep ``findings`` are what it found, each in lines; None for other sessions. ``peers``
    stood beside it.
    """

    line: SessionLine
    settings: Mapping[str, object]
    conditions: tuple[tuple[str, str], ...]
    facts: SessionFacts
    kernels: tuple[KernelEntry, ...]
    left: int
    progress: tuple[tuple[float, float], ...]
    traces: tuple[Trace, ...]
    sources: tuple[Source, ...]
    seconds: tuple[tuple[str, float], ...]
    statuses: tuple[tuple[Status, int], ...]
    failures: tuple[Failure, ...]
    decisions: tuple[DecisionRow, ...]
    findings: tuple[str, ...] | None = None
    peers: tuple[PeerTime, ...] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judgement of regression sweeps on a store.

    ``begun`` are latencies with which a new level began, as (model or kernel in it, session,
    machine). ``places`` has the newest of the machines that differ in their software alone, for
    each of them: their latencies are one history. ``findings`` are by session.
    """

    begun: Set[tuple[str, str, str]] = frozenset()
    places: Mapping[str, str] = field(default_factory=dict)
    findings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HistoryChart:
    """Latencies of one model on one machine over time, whatever its software; ``machine`` is the
    newest one. ``changes`` are the places of ``rows`` at which a new level begins.
    """

    model: str
    machine: str
    rows: tuple[LatencyRow, ...]
    changes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ReportPage:
    """A report: of one session, or of a store with the newest session of each model and device that
    measured a candidate.
    """

    store: str
    whole_store: bool
    pages: tuple[SessionPage, ...]
    sessions: tuple[SessionLine, ...]
    histories: tuple[HistoryChart, ...]
    problems: int
