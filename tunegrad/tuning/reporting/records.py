"""The records of a report. Times are in seconds; None stands for "not measured".

Every text may come from a store of another person: it is data, and the code that prints it escapes
it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import isfinite
from typing import Literal

from tunegrad.db import DecisionRow, LatencyRow, Properties, Session
from tunegrad.ir.fusion import layers_of
from tunegrad.paired import Interval
from tunegrad.reports import Neighbour
from tunegrad.trial import Status

from ..budget import Costs
from ..end_to_end import EndToEnd
from ..roofline import Roofline
from ..workload import Workload, shared_kernels

_MOST_CHARACTERS = 180
"""Of the layers of a kernel; files of a store hold words of 200."""

_YEARS_S = 1e9

_LIMITS = ("peak_gflops", "cache_gb_per_s", "memory_gb_per_s")


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """One kernel of a session's models. Seconds of one launch; None where no model ran."""

    uses: int
    layers: str = ""
    default_s: float | None = None
    tuned_s: float | None = None
    gain: float | None = None
    interval: Interval | None = None
    flops_s: float | None = None
    bytes_s: float | None = None


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
    kernel.KEY.flops_s, .bytes_s                     its bounds, by those limits
    planned.KEY.uses, ...                            the same as far as it was known before the
                                                     search: of a session that did not end
    others_cpus_mean                                 CPUs that other processes used meanwhile
    """

    peak_gflops: float | None
    cache_gb_per_s: float | None
    memory_gb_per_s: float | None
    seconds: dict[str, float]
    kernels: dict[str, KernelFacts]
    others_cpus: float | None = None


_LAUNCHED, _PLANNED = "kernel", "planned"


def planned_facts(
    roofline: Roofline, works: Sequence[Workload], about: Literal["kernel", "planned"]
) -> Properties:
    """The facts that are known once the models' kernels are: limits, launches, layers, bounds;
    ``planned`` before the search, which may still decide otherwise.
    """
    limits = (roofline.peak_flops_per_s, roofline.cache_bytes_per_s, roofline.memory_bytes_per_s)
    found: dict[str, float | str] = {
        name: value / 1e9 for name, value in zip(_LIMITS, limits, strict=True) if isfinite(value)
    }
    layers = {key: _short(said) for work in works for key, said in layers_of(work.plan).items()}
    for use in shared_kernels(works):
        bounds, name = roofline.bounds(use.kernel), f"{about}.{use.key}"
        found |= {f"{name}.uses": float(use.uses), f"{name}.layers": layers[use.key]}
        found |= {f"{name}.flops_s": bounds.flops_s, f"{name}.bytes_s": bounds.bytes_s}
    return tuple(sorted(found.items()))


def session_facts(
    costs: Costs, others_cpus: float, wholes: Sequence[EndToEnd | None]
) -> Properties:
    """The facts that are known when a session ends, as the store keeps them."""
    found: dict[str, float | str] = {"others_cpus_mean": round(others_cpus, 2)}
    found |= {f"seconds.{part}": seconds for part, seconds in costs.seconds.items()}
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
        if name.startswith("seconds.") and isinstance(value, float) and abs(value) < _YEARS_S
    }
    kernels = _kernel_facts(state, _LAUNCHED) or _kernel_facts(state, _PLANNED)
    others = state.get("others_cpus_mean", state.get("others_cpus"))
    return SessionFacts(
        peak, cache, memory, seconds, {key: _kernel(said) for key, said in kernels.items()},
        others if isinstance(others, float) and isfinite(others) else None,
    )  # fmt: skip


def _kernel_facts(state: dict[str, float | str], about: str) -> dict[str, dict[str, float | str]]:
    found: dict[str, dict[str, float | str]] = defaultdict(dict)
    for name, value in state.items():
        head, _, rest = name.partition(".")
        key, _, what = rest.partition(".")
        if head == about and what:
            found[key][what] = value
    return found


def _kernel(said: dict[str, float | str]) -> KernelFacts:
    low, high = _number(said.get("low")), _number(said.get("high"))
    return KernelFacts(
        int(_number(said.get("uses")) or 1),
        str(said.get("layers", "")),
        _number(said.get("default_s")),
        _number(said.get("tuned_s")),
        _number(said.get("gain")),
        None if low is None or high is None else (low, high),
        _number(said.get("flops_s")),
        _number(said.get("bytes_s")),
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
    ``flops_s`` and ``bytes_s`` are its bounds by arithmetic and by traffic; ``alone_s`` is the
    winner as the search timed it. ``candidates`` are the session's trials of it by status, ``code``
    what a compiler made of the winner, as the store has it, ``text`` the kernel itself.
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
    text: str = ""
    flops_s: float | None = None
    bytes_s: float | None = None
    alone_s: float | None = None
    search: Search | None = None

    @property
    def bound_s(self) -> float | None:
        """The nearer of its two bounds."""
        known = [s for s in (self.flops_s, self.bytes_s) if s is not None]
        return max(known, default=None)


@dataclass(frozen=True, slots=True)
class Parameter:
    """Something that the schedules of a kernel differ in: its values, "" where a schedule has none,
    and the place among them of each candidate's.

    ``importance`` is the share of the spread of the times' logarithms that it explains alone.
    ``value`` is the winner's, None where that is no candidate; ``other_s`` and ``without_s`` are
    seconds of the fastest candidate with another value, and with none where the winner has one.
    """

    name: str
    importance: float
    levels: tuple[str, ...]
    at: tuple[int, ...]
    value: str | None = None
    other_s: float | None = None
    without_s: float | None = None


@dataclass(frozen=True, slots=True)
class Search:
    """All candidates of one kernel in the order of measuring.

    ``searched_s`` are seconds that the session had given to the kernel by then, ``seconds`` the
    candidates' own, None of those that failed. ``source`` is the place of each one's proposer among
    ``sources``. ``default_s`` and ``default`` are time and actions of what the search began with.
    """

    searched_s: tuple[float, ...]
    seconds: tuple[float | None, ...]
    sources: tuple[str, ...]
    source: tuple[int, ...]
    default_s: float
    default: str
    parameters: tuple[Parameter, ...]
    neighbours: tuple[Neighbour, ...]


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
class Machine:
    """The machine of a session, by its fingerprint; no fields where no row says one.

    ``busy`` says that other processes left too few CPUs over the session, ``raised`` why its peak
    is above what it measured.
    """

    fields: Mapping[str, str]
    busy: str = ""
    raised: str = ""


@dataclass(frozen=True, slots=True)
class Beside:
    """Another session of the same models: its kernels' times by key, and its conditions."""

    line: SessionLine
    seconds: Mapping[str, float | None]
    conditions: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SessionPage:
    """All of one session. ``progress`` is the sum of the models' kernels by the best times so far:
    (seconds since the session began, seconds of one run).

    Of a sweep ``findings`` are what it found, each in lines; None for other sessions. ``peers``
    stood beside it. ``decided`` are the names of what its decisions are about. ``beside`` are the
    sessions of the same models before it, the newest first.
    """

    line: SessionLine
    settings: Mapping[str, object]
    conditions: tuple[tuple[str, str], ...]
    facts: SessionFacts
    kernels: tuple[KernelEntry, ...]
    left: int
    progress: tuple[tuple[float, float], ...]
    sources: tuple[Source, ...]
    seconds: tuple[tuple[str, float], ...]
    statuses: tuple[tuple[Status, int], ...]
    failures: tuple[Failure, ...]
    decisions: tuple[DecisionRow, ...]
    machine: Machine
    findings: tuple[str, ...] | None = None
    peers: tuple[PeerTime, ...] = ()
    decided: tuple[str, ...] = ()
    beside: tuple[Beside, ...] = ()


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
    """A report: of one session, or of a store with each model and device's newest session."""

    store: str
    whole_store: bool
    pages: tuple[SessionPage, ...]
    sessions: tuple[SessionLine, ...]
    histories: tuple[HistoryChart, ...]
    problems: int
