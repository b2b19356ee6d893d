"""The display of a running search on a terminal: a few lines that change in place.

It is redrawn only from within ``observe``, so between candidates: a thread of its own would steal
time from the very measurement it reports.
"""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tunegrad.cli.progress import STOPPING, MutableProgress
from tunegrad.events import CandidateMeasured, Event, SessionFinished, Stopping, Warned

__all__ = ["LiveObserver"]


class LiveObserver:
    """Shows the kernel, the candidates by status, the best so far, per cent of peak, and the time
    left, on ``console``.

    Redraws at most every ``every_s`` seconds. ``close`` leaves the last picture standing and gives
    the terminal back.
    """

    def __init__(self, console: Console, clock: Callable[[], float], every_s: float = 0.25) -> None:
        self._console = console
        self._clock = clock
        self._every_s = every_s
        self._drawn_s = float("-inf")
        self._progress = MutableProgress(clock)
        self._live = Live(
            console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._live.start()

    def observe(self, event: Event) -> None:
        """Take one event; redraw where it is time to."""
        self._progress.apply(event)
        if isinstance(event, Warned):
            self._console.print(Text(f"warning: {event.message}", style="yellow"))
        elif isinstance(event, Stopping):
            self._console.print(Text(STOPPING, style="yellow"))
        now_s = self._clock()
        if isinstance(event, CandidateMeasured) and now_s - self._drawn_s < self._every_s:
            return
        self._drawn_s = now_s
        self._live.update(self._picture(), refresh=True)
        if isinstance(event, SessionFinished):
            self.close()

    def close(self) -> None:
        """Stop drawing. May be called twice."""
        self._live.stop()

    def _picture(self) -> Group:
        p = self._progress
        return Group(
            Text(p.session_line(), style="bold"),
            Text(p.kernel_line()),
            Text(p.candidates_line()),
            Text(p.best_line()),
            Text(p.time_line()),
        )
