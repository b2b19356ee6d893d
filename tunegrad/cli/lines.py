"""The display of a running search where stderr is no terminal: plain lines, few enough to keep in a
log.
"""

from __future__ import annotations

from collections.abc import Callable

from tunegrad.cli.progress import STOPPING, MutableProgress
from tunegrad.cli.tables import count_text, duration, ms
from tunegrad.events import (
    CandidateMeasured,
    Event,
    KernelFinished,
    SessionStarted,
    Stopping,
    Warned,
)

__all__ = ["LineObserver"]


class LineObserver:
    """Writes a line when the session begins, when a kernel is left, for a warning, and every
    ``every_s`` seconds.
    """

    def __init__(
        self, write: Callable[[str], None], clock: Callable[[], float], every_s: float = 10.0
    ) -> None:
        self._write = write
        self._progress = MutableProgress(clock)
        self._every_s = every_s
        self._next_s = every_s

    def observe(self, event: Event) -> None:
        """Take one event; perhaps write a line."""
        self._progress.apply(event)
        match event:
            case SessionStarted():
                self._write(self._progress.session_line())
            case KernelFinished():
                self._stamp(
                    f"{event.kernel}: default {ms(1e3 * event.default_s)} ms, best "
                    f"{ms(1e3 * event.best_s)} ms, "
                    f"{event.pct_peak:.1f} % of peak, {count_text(event.candidates)} candidates"
                )
            case Warned():
                self._write(f"warning: {event.message}")
            case Stopping():
                self._write(STOPPING)
            case CandidateMeasured() if self._progress.elapsed_s >= self._next_s:
                self._next_s = self._progress.elapsed_s + self._every_s
                p = self._progress
                self._stamp(
                    f"{event.kernel}: {p.best_line()}; {p.candidates_line()}; {p.time_line()}"
                )
            case _:
                pass

    def close(self) -> None:
        """Nothing is held open."""

    def _stamp(self, text: str) -> None:
        self._write(f"[{duration(self._progress.elapsed_s)}] {text}")
