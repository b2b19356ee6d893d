"""The display of a running search where stderr is no terminal: plain lines, few enough to keep in a
log.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from tunegrad.cli.progress.state import PHASES, STOPPING, MutableProgress
from tunegrad.cli.tables import duration, ms, peak_text
from tunegrad.events import (
    Event,
    KernelFinished,
    MachineBusy,
    PhaseStarted,
    SessionStarted,
    Stopping,
    Warned,
)

__all__ = ["LineObserver"]

_NOTABLE = 0.99
"""A kernel has a line when its best time is at most so much of the one in its line before."""


class LineObserver:
    """Writes a line for each phase, for a kernel that became faster, for a warning, and about every
    ``every_s`` seconds.

    Stamps are of the time since the command began, at ``began_s`` of ``clock``; they only grow.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        clock: Callable[[], float],
        every_s: float = 10.0,
        began_s: float | None = None,
    ) -> None:
        self._write = write
        self._progress = MutableProgress(clock, began_s)
        self._every_s = every_s
        self._next_s = every_s
        self._said_s: dict[str, float] = {}

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
            case _ if p.elapsed_s >= self._next_s and p.phase in ("defaults", "search"):
                self._next_s = p.elapsed_s + self._every_s
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
