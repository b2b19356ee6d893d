"""The display of a running search where stderr is no terminal: plain lines, few enough to keep in a
log; and the state of a search for both of its displays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import inf

from tunegrad.cli.tables import count_text, duration, ms, peak_text, plural
from tunegrad.events import (
    BudgetSpent,
    CandidateMeasured,
    Event,
    KernelFinished,
    KernelStanding,
    KernelStarted,
    MachineBusy,
    ModelEstimated,
    Phase,
    PhaseStarted,
    SessionFinished,
    SessionStarted,
    Stopping,
    Warned,
)

STOPPING = "stopping, keeping the best so far ... (once more ends at once, without the table)"

PHASES: dict[Phase, str] = {
    "limits": "workers start, and the machine's limits are measured",
    "plans": "what the kernels are: whole models compared",
    "defaults": "default schedules, and seeds of similar kernels",
    "search": "the search",
    "race": "winners are settled, in whole models",
    "whole model": "outputs compared, and the whole model timed",
}


class MutableProgress:
    """The running search.

    ``apply`` each event, then read the lines. Times come from ``clock``, in seconds; the command
    began at ``began_s`` of it.
    """

    def __init__(self, clock: Callable[[], float], began_s: float | None = None) -> None:
        self._clock = clock
        self._began_s = clock() if began_s is None else began_s
        self._session: SessionStarted | None = None
        self._kernel: KernelStarted | None = None
        self._expected_gain_s: float | None = None
        self._first_s: float | None = None
        self._counted_s = 0.0
        self.phase: Phase | None = None
        self.model: ModelEstimated | None = None
        self.counts: Counter[str] = Counter()
        self.stopping = self.finished = False

    def apply(self, event: Event) -> None:
        """Take one event into account."""
        match event:
            case PhaseStarted():
                self.phase = event.name
                self._kernel = None
            case SessionStarted():
                self._session = event
            case KernelStarted():
                self._kernel = event
            case CandidateMeasured():
                self._counted_s = self.elapsed_s
                if self._first_s is None:
                    self._first_s = self._counted_s
                self.counts[str(event.status)] += 1
            case BudgetSpent():
                self._expected_gain_s = event.expected_gain_s
            case ModelEstimated():
                self.model = event
            case Stopping():
                self.stopping = True
            case SessionFinished():
                self.finished = True
            case _:
                pass

    # ---- time

    @property
    def elapsed_s(self) -> float:
        """Seconds since the command began."""
        return max(0.0, self._clock() - self._began_s)

    @property
    def budget_s(self) -> float:
        """The whole budget, in seconds; 0 while it is not known."""
        return self._session.budget_s if self._session else 0.0

    @property
    def spent_s(self) -> float:
        """Seconds of the budget that are spent, those of earlier sessions too."""
        before_s = self._session.before_s if self._session else 0.0
        return before_s + self.elapsed_s

    @property
    def left_s(self) -> float:
        """Seconds of the budget that are left."""
        return max(0.0, self.budget_s - self.spent_s)

    # ---- lines

    def session_line(self) -> str:
        """Line about the session: the model, the place and the settings."""
        s = self._session
        if s is None:
            return "starting"
        known = f", {s.known_trials} trials known" if s.known_trials else ""
        return (
            f"{s.model} on {s.device}, {plural(s.threads, 'thread')}: "
            f"{plural(s.kernels, 'kernel')}, {s.searcher} search, seed {s.seed}, "
            f"budget {duration(s.budget_s)}{known}"
        )

    def candidates_line(self) -> str:
        """Line about the candidates: how many of which status, and how fast they come."""
        total = sum(self.counts.values())
        took_s = self._counted_s - (self._first_s or 0.0)
        rate = f", {(total - 1) / took_s:.1f} a second" if total > 1 and took_s > 0.0 else ""
        return f"{plural(total, 'candidate', count_text(self.counts))}{rate}"

    @property
    def measured(self) -> bool:
        """True where each kernel of the model was measured, and no time is the guess of a model."""
        return self.model is not None and all(k.measured for k in self.model.kernels)

    def model_line(self) -> str:
        """Line about the model: its expected time now, next to its default schedules."""
        m = self.model
        if m is None or m.default_s == inf:
            return "not known yet"
        if not self.measured:
            known = sum(k.measured for k in m.kernels)
            return f"about {ms(1e3 * m.best_s)} ms, {known} of {len(m.kernels)} kernels measured"
        now = f"{ms(1e3 * m.best_s)} ms expected, default {ms(1e3 * m.default_s)} ms"
        return f"{now}: {about(m.default_s, m.best_s)}"

    def expectation_line(self) -> str:
        """Line about the expected gain of the next minute; empty where there is no estimate."""
        if not self._expected_gain_s or self.phase not in ("defaults", "search"):
            return ""
        return f"the next minute is expected to save {ms(1e3 * self._expected_gain_s)} ms"

    def heaviest(self, count: int) -> list[KernelStanding]:
        """The kernels that weigh most, the heaviest first."""
        return list(self.model.kernels[:count]) if self.model else []

    def rest(self, count: int) -> str:
        """Line about the kernels that are left out of so many, and their time together."""
        left = self.model.kernels[count:] if self.model else ()
        took_s = sum(k.uses * k.best_s for k in left if k.best_s < inf)
        return f"{len(left)} more kernels, {ms(1e3 * took_s)} ms" if left else ""

    @property
    def current(self) -> str:
        """The key of the kernel that the search is at; empty where it is at none."""
        return self._kernel.key if self._kernel else ""


def about(before_s: float, after_s: float) -> str:
    """``~1.35x``: a ratio of times that took no turns, of unknown certainty; ``-`` without one."""
    return f"~{before_s / after_s:.2f}x" if 0.0 < after_s < inf and before_s < inf else "-"


_NOTABLE = 0.99
"""A kernel has a line when its best time is at most so much of the one in its line before."""

_EVERY_S = 10.0
"""Seconds between two lines on what is left, at least."""


class LineObserver:
    """Writes a line for each phase, for a kernel that became faster, for a warning, for the first
    estimate of the model and the first measured one, and about every ten seconds.

    Stamps are of the time since the command began, at ``began_s`` of ``clock``; they only grow.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        clock: Callable[[], float],
        began_s: float | None = None,
    ) -> None:
        self._write = write
        self._progress = MutableProgress(clock, began_s)
        self._next_s = _EVERY_S
        self._said_s: dict[str, float] = {}
        self._estimates: set[bool] = set()

    def observe(self, event: Event) -> None:
        """Take one event; perhaps write a line."""
        self._progress.apply(event)
        p = self._progress
        match event:
            case SessionStarted():
                self._write(p.session_line())
            case PhaseStarted():
                self._stamp(f"{event.name}: {PHASES[event.name]}")
            case KernelFinished():
                self._kernel(event)
            case Warned() | MachineBusy():
                self._write(f"warning: {event.message}")
            case Stopping():
                self._write(STOPPING)
            case ModelEstimated() if event.default_s < inf and p.measured not in self._estimates:
                self._estimates.add(p.measured)
                self._stamp(f"model {p.model_line()}")
            case _ if p.elapsed_s >= self._next_s and p.phase in ("defaults", "search"):
                self._next_s = p.elapsed_s + _EVERY_S
                parts = (
                    f"{duration(p.left_s)} left",
                    f"model {p.model_line()}",
                    p.candidates_line(),
                    p.expectation_line(),
                )
                self._stamp("; ".join(part for part in parts if part))
            case _:
                pass

    def close(self) -> None:
        """Nothing is held open."""

    def _kernel(self, event: KernelFinished) -> None:
        before_s = self._said_s.get(event.key, event.default_s)
        if event.best_s == inf or event.best_s > _NOTABLE * before_s:
            return
        self._said_s[event.key] = event.best_s
        figures = f"best {ms(1e3 * event.best_s)} ms, {peak_text(event.pct_peak)} % of peak"
        if event.default_s < inf:
            figures = f"default {ms(1e3 * event.default_s)} ms, {figures}"
        self._stamp(f"{event.kernel}: {figures}")

    def _stamp(self, text: str) -> None:
        self._write(f"[{duration(self._progress.elapsed_s)}] {text}")
