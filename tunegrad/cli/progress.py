"""What both displays of a running search show: the events so far, folded into the few facts worth a
line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tunegrad.cli.tables import count_text, duration, ms
from tunegrad.events import (
    BudgetSpent,
    CandidateMeasured,
    Event,
    KernelStarted,
    SessionStarted,
)

__all__ = ["STOPPING", "MutableProgress"]

STOPPING = "stopping, keeping the best so far ... (once more ends at once, without the table)"


class MutableProgress:
    """The running search.

    ``apply`` each event, then read the lines. Times come from ``clock``, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begun_s = clock()
        self._session: SessionStarted | None = None
        self._kernel: KernelStarted | None = None
        self._last: CandidateMeasured | None = None
        self._expected_gain_s: float | None = None
        self._seen: set[str] = set()
        self.counts: Counter[str] = Counter()

    def apply(self, event: Event) -> None:
        """Take one event into account."""
        match event:
            case SessionStarted():
                self._session, self._begun_s = event, self._clock()
            case KernelStarted():
                self._kernel, self._last = event, None
                self._seen.add(event.key)
            case CandidateMeasured():
                self._last = event
                self.counts[str(event.status)] += 1
            case BudgetSpent():
                self._expected_gain_s = event.expected_gain_s
                self._begun_s = self._clock() - event.spent_s
            case _:
                pass

    @property
    def elapsed_s(self) -> float:
        """Seconds since the search began."""
        return self._clock() - self._begun_s

    def session_line(self) -> str:
        """What is being tuned, where, and how."""
        s = self._session
        if s is None:
            return "starting"
        threads = f"{s.threads} thread{'s' if s.threads != 1 else ''}"
        known = f", {s.known_trials} trials known" if s.known_trials else ""
        return (
            f"{s.model} on {s.device}, {threads}: {s.kernels} kernels, {s.searcher} search, "
            f"seed {s.seed}, "
            f"budget {duration(s.budget_s)}{known}"
        )

    def kernel_line(self) -> str:
        """Which kernel the search is at."""
        k = self._kernel
        if k is None:
            return ""
        return (
            f"{k.name}, {k.uses} uses, {k.flops / 1e9:.3f} GFLOP (kernels so far: "
            f"{len(self._seen)})"
        )

    def candidates_line(self) -> str:
        """How many candidates of which status, and how fast they come."""
        total = sum(self.counts.values())
        rate = total / self.elapsed_s if self.elapsed_s > 0 else 0.0
        return f"{count_text(self.counts)} candidates, {rate:.1f} a second"

    def best_line(self) -> str:
        """The kernel's best so far, and how near the machine's peak that is."""
        if self._last is None or self._last.best_s == float("inf"):
            return "best: none yet"
        return f"best {ms(1e3 * self._last.best_s)} ms, {self._last.pct_peak:.1f} % of peak"

    def time_line(self) -> str:
        """Time left, and what the next minute is expected to buy."""
        if self._session is None:
            return ""
        left = f"{duration(self._session.budget_s - self.elapsed_s)} left"
        if self._expected_gain_s is None:
            return left
        return f"{left}, the next minute is expected to gain {ms(1e3 * self._expected_gain_s)} ms"
