"""Results of a sweep, and of a comparison of two: plain numbers and text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tunegrad.paired import Interval

Kind = Literal["regression", "machine", "improvement", "recovered"]
"""``machine``: the yardsticks moved with it, or other hardware measured; no regression."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A series that changed its level.

    ``series`` names a model, a kernel in a model (``resnet18: conv3x3 64->64``), or a yardstick;
    ``key`` is the kernel's or the graph's. It takes ``ratio`` times as long since the sweep
    ``since`` of ``since_s`` (seconds since the epoch), as ``nights`` nights say. ``changed`` are
    the fields that changed with it, give or take a night, as ``name: before -> since``. ``ratio``
    None: other hardware.
    """

    kind: Kind
    device: str
    series: str
    key: str
    ratio: float | None
    interval: Interval | None
    since: str
    since_s: float
    nights: int
    before_ms: float | None
    now_ms: float | None
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SeriesRow:
    """A series of this sweep: medians of this night, and what its history can show.

    ``noise`` is the scatter of one night, relative; ``sure_from`` the least ratio that is found
    within three nights; both None while they are being learned. ``default_ms``: the default
    schedules in the same turns. ``schedule`` is ``stored`` or ``default``. ``baseline_ms``: the
    median of up to 20 nights before this one, since the last level; None on the first.
    """

    series: str
    key: str
    device: str
    ms: float
    default_ms: float | None
    gain: float | None
    interval: Interval | None
    nights: int
    noise: float | None
    sure_from: float | None
    schedule: str
    baseline_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """A failure to measure: of a kernel of a model, or of a model (no kernel)."""

    device: str
    model: str
    kernel: str
    why: str


@dataclass(frozen=True, slots=True)
class SweepReport:
    """One sweep: what it measured, what changed, what failed.

    ``busy`` says how the machine was not quiet, before or after; empty where it was. ``uncounted``
    names the models that lacked processors while they were timed: their night is stored, and
    decides nothing. ``revision`` is the source's. ``retuned`` are the models that were tuned again.
    """

    sweep: str
    config: str
    store: str
    revision: str
    seconds: float
    rows: tuple[SeriesRow, ...]
    findings: tuple[Finding, ...]
    failed: tuple[Failed, ...] = ()
    busy: tuple[str, ...] = ()
    uncounted: tuple[str, ...] = ()
    retuned: tuple[str, ...] = ()
    interrupted: bool = False

    @property
    def regressions(self) -> tuple[Finding, ...]:
        """Findings that got slower, and are neither accepted nor the machine's."""
        return tuple(f for f in self.findings if f.kind == "regression")


@dataclass(frozen=True, slots=True)
class Accepted:
    """Levels that are accepted from now on, and why."""

    reason: str
    store: str
    levels: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class CompareRow:
    """A series in two runs. ``ratio`` is B's time over A's, freed of what both machines' yardsticks
    say; ``interval`` is where it lies, at 95 %, None below six samples.

    ``different`` is False where 1.0 is inside. ``nights`` are the runs of each side. ``counts`` is
    False where others took processors that a side needed, in all of its runs: then there is no
    interval, and the ratio says nothing.
    """

    series: str
    key: str
    a_ms: float
    b_ms: float
    ratio: float
    interval: Interval | None
    nights: tuple[int, int]
    counts: bool = True

    @property
    def different(self) -> bool:
        """True when the interval shows a difference."""
        return self.interval is not None and not self.interval[0] <= 1.0 <= self.interval[1]


@dataclass(frozen=True, slots=True)
class Moved:
    """Ratio B over A of the time of a model's yardstick.

    ``interval`` is where that lies, at 95 %, None below six samples.
    """

    model: str
    yardstick: str
    ratio: float
    interval: Interval | None


@dataclass(frozen=True, slots=True)
class CompareReport:
    """Two runs side by side; ``changed`` are the fields that differ between them.

    ``noise`` says whether the scatter between nights is in the intervals; ``tuned`` that whole
    models are compared, as tune sessions measured them, without yardsticks. ``uncounted`` are the
    sides and models of which a night does not count.
    """

    a: str
    b: str
    rows: tuple[CompareRow, ...]
    changed: tuple[str, ...]
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
    noise: bool = False
    tuned: bool = False
    yardsticks: tuple[Moved, ...] = ()
    uncounted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """A series that takes ``ratio`` times as long at a commit; at 95 % within ``interval``."""

    series: str
    ratio: float
    interval: Interval | None


@dataclass(frozen=True, slots=True)
class Alert:
    """A commit that made series slower than ``before``, the one before it.

    ``others`` lie between the two, and may have done it as well: they do not run, or the slowdown
    is spread over them.
    """

    commit: str
    before: str
    rows: tuple[Step, ...]
    others: tuple[str, ...] = ()
    subject: str = ""
    author: str = ""
    day: str = ""


@dataclass(frozen=True, slots=True)
class BetweenReport:
    """Two commits and those between them that made something slower.

    ``commits`` come after ``a``, up to ``b``; ``builds`` were built and timed in ``rounds``.
    ``rows`` compare the two ends. ``skipped`` are (commit, why it does not run).
    """

    a: str
    b: str
    repository: str
    commits: int
    builds: int
    rounds: int
    seconds: float
    rows: tuple[Step, ...]
    alerts: tuple[Alert, ...]
    skipped: tuple[tuple[str, str], ...] = ()
    interrupted: bool = False
