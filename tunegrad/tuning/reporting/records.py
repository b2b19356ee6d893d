"""The records of a report. Times are in seconds; None stands for "not measured".

Every text may come from a store of another person: it is data, and the code that prints it escapes
it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import isfinite
from typing import Literal

from tunegrad.db import DecisionRow, LatencyRow, Properties, Session
from tunegrad.ir.fusion import layers_of
from tunegrad.paired import Interval
from tunegrad.trial import Status

from ..budget import Costs
from ..end_to_end import EndToEnd
from ..roofline import Roofline
from ..workload import Workload, shared_kernels

__all__ = [
    "Failure",
    "HistoryChart",
    "Judgement",
    "KernelEntry",
    "KernelFacts",
    "Latencies",
    "PeerTime",
    "ReportPage",
    "Series",
    "SessionFacts",
    "SessionLine",
    "SessionPage",
    "Source",
    "Trace",
    "facts_of",
    "session_facts",
]

_MOST_CHARACTERS = 180
"""Of the layers of a kernel; files of a store hold words of 200."""

_LIMITS = ("peak_gflops", "cache_gb_per_s", "memory_gb_per_s")


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """One kernel of a session's models. Times are of one launch, in seconds; None where the whole
    model did not run.
    """

    uses: int
    layers: str = ""
    default_s: float | None = None
    tuned_s: float | None = None
    gain: float | None = None
    interval: Interval | None = None


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """The recorded facts of a session. A limit that was not measured is None, and older sessions
    have no facts at all.

    peak_gflops, cache_gb_per_s, memory_gb_per_s     the machine's limits, as it measured them
    seconds.asking, seconds.timing, ...              its parts; they add up to all of it
    kernel.KEY.uses, .layers                         how often the models launch a kernel, and for
                                                     which of their layers
    kernel.KEY.default_s, .tuned_s                   one launch in the whole model, in turns
    kernel.KEY.gain, .low, .high                     by turns, and where it lies at 95 %
    """

    peak_gflops: float | None
    cache_gb_per_s: float | None
    memory_gb_per_s: float | None
    seconds: dict[str, float]
    kernels: dict[str, KernelFacts]


def session_facts(
    roofline: Roofline, costs: Costs, works: Sequence[Workload], wholes: Sequence[EndToEnd | None]
) -> Properties:
    """The facts of a session about these models, as the store keeps them."""
    limits = (
        roofline.peak_flops_per_s,
        roofline.cache_bytes_per_s,
        roofline.memory_bytes_per_s,
    )
    found: dict[str, float | str] = {
        name: value / 1e9 for name, value in zip(_LIMITS, limits, strict=True) if isfinite(value)
    }
    found |= {f"seconds.{part}": seconds for part, seconds in costs.seconds.items()}
    layers = {key: _short(said) for work in works for key, said in layers_of(work.plan).items()}
    for use in shared_kernels(works):
        found[f"kernel.{use.key}.uses"] = float(use.uses)
        found[f"kernel.{use.key}.layers"] = layers[use.key]
    for whole in wholes:
        for key, weighed in whole.weighed.items() if whole else ():
            found[f"kernel.{key}.default_s"] = weighed.default_s
            found[f"kernel.{key}.tuned_s"] = weighed.winner_s
            if weighed.gain is not None:
                found[f"kernel.{key}.gain"] = weighed.gain
            if weighed.interval is not None:
                found[f"kernel.{key}.low"], found[f"kernel.{key}.high"] = weighed.interval
    return tuple(sorted(found.items()))


def facts_of(session: Session) -> SessionFacts:
    """The facts in a session's row; whatever is there that is none of them is passed over."""
    state = dict(session.state)
    peak, cache, memory = (_number(state.get(name)) for name in _LIMITS)
    seconds = {
        name.removeprefix("seconds."): value
        for name, value in state.items()
        if name.startswith("seconds.") and isinstance(value, float)
    }
    kernels: dict[str, dict[str, float | str]] = defaultdict(dict)
    for key, what, value in _kernel_facts(state):
        kernels[key][what] = value
    return SessionFacts(
        peak, cache, memory, seconds, {key: _kernel(said) for key, said in kernels.items()}
    )


def _kernel_facts(state: dict[str, float | str]) -> Iterator[tuple[str, str, float | str]]:
    for name, value in state.items():
        head, _, rest = name.partition(".")
        key, _, what = rest.partition(".")
        if head == "kernel" and what:
            yield key, what, value


def _kernel(said: dict[str, float | str]) -> KernelFacts:
    low, high = _number(said.get("low")), _number(said.get("high"))
    return KernelFacts(
        int(_number(said.get("uses")) or 1),
        str(said.get("layers", "")),
        _number(said.get("default_s")),
        _number(said.get("tuned_s")),
        _number(said.get("gain")),
        None if low is None or high is None else (low, high),
    )


def _number(value: float | str | None) -> float | None:
    """A finite number above 0, or None."""
    return value if isinstance(value, float) and 0.0 < value < float("inf") else None


def _short(layers: Sequence[str]) -> str:
    """Layers in one line of bounded length."""
    text = "; ".join(layers)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 4]} ..."


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
