"""Typed events that a search emits while it runs, and the observers that listen.

A search knows nothing of terminals or files. It hands each event to every observer in order, in its
own process and between candidates, so a slow observer costs search time but never disturbs a
measurement:

    PhaseStarted (limits)  MachineBusy (perhaps)
    SessionStarted
      PhaseStarted (plans, defaults, search, race, whole model)
      KernelStarted  CandidateMeasured ... BudgetSpent  ModelEstimated ...  KernelFinished
      (kernels alternate)
      WinnerPromoted ...
    SessionFinished

Times are seconds. ``inf`` stands for "none yet" and is null in JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, Self

from tunegrad.errors import ConfigError
from tunegrad.reports import TuneReport, to_json
from tunegrad.trial import Status

Phase = Literal["limits", "plans", "defaults", "search", "race", "whole model"]
"""``limits``: workers start, and the machine's peaks are measured. ``plans``: what the model's
kernels are. ``defaults``: every kernel as its default schedule, and seeds of similar kernels.
``race``: winners are decided. ``whole model``: outputs are compared, and the model is timed.
"""


@dataclass(frozen=True, slots=True)
class PhaseStarted:
    """The session turns to this part of its work; the one before it is over."""

    name: Phase


@dataclass(frozen=True, slots=True)
class SessionStarted:
    """A search begins.

    ``peak_flops_per_s`` is the machine's measured FMA peak with these threads; 0 when unknown.
    ``before_s`` of the budget were spent by sessions that this one goes on from.
    """

    session: str
    model: str
    device: str
    threads: int
    searcher: str
    seed: int
    budget_s: float
    kernels: int
    store: str
    known_trials: int = 0
    peak_flops_per_s: float = 0.0
    before_s: float = 0.0


@dataclass(frozen=True, slots=True)
class KernelStarted:
    """The search turns to this kernel (perhaps again). ``flops`` and ``bytes`` are of one use."""

    name: str
    key: str
    uses: int
    flops: int
    bytes: int


@dataclass(frozen=True, slots=True)
class CandidateMeasured:
    """One candidate ended, and its row is committed.

    ``best_s`` is the kernel's best, this one included.
    """

    kernel: str
    actions: str
    status: Status
    seconds: float
    best_s: float
    pct_peak: float
    origin: str


@dataclass(frozen=True, slots=True)
class WinnerPromoted:
    """A challenger replaced the incumbent after the two-sample test.

    Seconds are medians of that test: of a model where its defaults stand again.
    """

    kernel: str
    key: str
    actions: str
    seconds: float
    previous_s: float
    origin: str


@dataclass(frozen=True, slots=True)
class BudgetSpent:
    """The state of the wall-clock budget, and the model seconds that the next minute may gain."""

    spent_s: float
    budget_s: float
    expected_gain_s: float | None = None

    @property
    def left_s(self) -> float:
        """Seconds of budget that are left; never negative."""
        return max(0.0, self.budget_s - self.spent_s)


@dataclass(frozen=True, slots=True)
class KernelStanding:
    """Times of one kernel of a model: seconds of one use by its default and by its best schedule so
    far, as it is measured alone; infinity where none ran. Until it is ``measured`` they are what a
    model of the machine expects.
    """

    name: str
    key: str
    uses: int
    default_s: float
    best_s: float
    pct_peak: float = 0.0
    measured: bool = True


@dataclass(frozen=True, slots=True)
class ModelEstimated:
    """Expected time of the model: sums over its kernels, as they are measured alone, in seconds;
    infinity while one of them was not.

    ``kernels`` are all of them, the heaviest first. The figures of the report are of whole models.
    """

    default_s: float
    best_s: float
    kernels: tuple[KernelStanding, ...]


@dataclass(frozen=True, slots=True)
class KernelFinished:
    """The search leaves this kernel (perhaps for now).

    ``candidates`` counts its trials of this session by status.
    """

    kernel: str
    key: str
    default_s: float
    best_s: float
    pct_peak: float
    actions: str
    candidates: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stopping:
    """The user asked the search to end: the best so far is kept and stored."""


@dataclass(frozen=True, slots=True)
class Warned:
    """Something the user should know that ended nothing."""

    message: str


@dataclass(frozen=True, slots=True)
class MachineBusy:
    """Other processes use too many CPUs: times are worse, and gains less sure."""

    others_cpus: float
    message: str


@dataclass(frozen=True, slots=True)
class SessionFinished:
    """The search is over; the report that ``tune`` returns, and those of the other models."""

    report: TuneReport
    others: tuple[TuneReport, ...] = ()


Event = (
    PhaseStarted
    | SessionStarted
    | KernelStarted
    | CandidateMeasured
    | WinnerPromoted
    | BudgetSpent
    | ModelEstimated
    | KernelFinished
    | Stopping
    | MachineBusy
    | Warned
    | SessionFinished
)


class Observer(Protocol):
    """Listens to a search.

    It must not raise for a reason of its own: what it raises ends the search.
    """

    def observe(self, event: Event) -> None:
        """Take one event. Called in the process and thread of the search, between candidates."""
        ...


def check_observers(observers: Iterable[object]) -> None:
    """Raise ConfigError for what is no Observer, as a function is."""
    for at, observer in enumerate(observers):
        if not callable(getattr(observer, "observe", None)):
            raise ConfigError(
                f"observers[{at}] = {observer!r:.80}: an observer has a method observe(event)"
            )


class JsonlObserver:
    """Writes each event as one line of JSON, flushed: ``{"event": "KernelStarted", "time_s": 1.5,
    ...fields}``.

    ``clock`` gives ``time_s``. The file is appended to, so that sessions over one log follow one
    another. Use it as a context manager, or call ``close``. Where it can not be written any more (a
    full disk), ``warn`` is told once, and the search goes on without it.
    """

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float],
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Open ``path`` for appending; ConfigError when that can not be done."""
        self._clock, self._path, self._warn = clock, path, warn
        self._lost = False
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            # Without blocking a pipe that no process reads is an error, and not waited for.
            descriptor = os.open(path, flags | os.O_NONBLOCK, 0o666)
            os.set_blocking(descriptor, True)
            self._file = os.fdopen(descriptor, "a", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"log {path}: can not be written: {error.strerror}") from error

    def observe(self, event: Event) -> None:
        """Append ``event``."""
        if self._lost:
            return
        record = {"event": type(event).__name__, "time_s": self._clock()}
        record.update(to_json(event))  # type: ignore[arg-type]  # an event is a record, so this is an object
        try:
            self._file.write(json.dumps(record, allow_nan=False) + "\n")
            self._file.flush()
        except OSError as error:
            self._lost = True
            self._warn(
                f"log {self._path}: can not be written any more: {error.strerror}; the search goes "
                "on without it"
            )

    def close(self) -> None:
        """Close the file; further events are an error."""
        try:
            self._file.close()
        except OSError:
            if not self._lost:
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
