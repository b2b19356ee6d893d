"""The display of a running search on a terminal: the phase, a clock, a bar of the budget, what the
model is expected to take, and its heaviest kernels.

It is redrawn by a thread of rich's, twice a second, so that the clock ticks while a worker is
waited for; a picture takes a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import RLock

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tunegrad.cli.output import printable
from tunegrad.cli.progress.plain import PHASES, STOPPING, MutableProgress, about
from tunegrad.cli.tables import duration, ms, peak_text
from tunegrad.events import Event, KernelStanding, MachineBusy, SessionFinished, Warned

_A_SECOND = 2.0
_AROUND = 9
"""Lines of a picture that are no kernels."""
_WIDE, _NARROW = 100, 60
_FIGURES = 22, 44, 50
"""Columns that the figures of a kernel take: in a narrow, a usual and a wide terminal."""


class LiveObserver:
    """Shows a search on ``console`` while it runs; ``began_s`` of ``clock`` is when the command
    began.

    ``close`` leaves the last picture standing, without the kernels, and gives the terminal back.
    """

    def __init__(
        self,
        console: Console,
        clock: Callable[[], float],
        began_s: float | None = None,
        a_second: float = _A_SECOND,
    ) -> None:
        self._console = console
        self._progress = MutableProgress(clock, began_s)
        self._lock = RLock()  # a signal's handler may observe while this thread does
        self._spinner = Spinner("line" if console.legacy_windows or _ascii(console) else "dots")
        self._closed = False
        self._live = Live(
            console=console,
            get_renderable=self._picture,
            auto_refresh=a_second > 0.0,
            refresh_per_second=a_second or 1.0,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        self._live.start(refresh=True)

    def observe(self, event: Event) -> None:
        """Take one event; the next picture shows it."""
        with self._lock:
            self._progress.apply(event)
        if isinstance(event, Warned | MachineBusy):
            self._console.print(Text(printable(f"warning: {event.message}"), style="yellow"))
        if isinstance(event, SessionFinished):
            self.close()

    def close(self) -> None:
        """Stop drawing. May be called twice."""
        with self._lock:
            self._closed = True
        with suppress(OSError):  # a terminal that is gone
            self._live.stop()

    # ---- the picture

    def _picture(self) -> RenderableType:
        with self._lock:
            parts = [self._title(), self._bar(), self._facts()]
            if self._progress.stopping and not self._progress.finished:
                parts.append(Text(STOPPING, style="yellow"))
            elif kernels := [] if self._closed else self._kernels():
                parts += kernels
            return Group(*parts)

    def _title(self) -> Text:
        title = printable(self._progress.session_line())
        return Text(title, style="bold", no_wrap=True, overflow="ellipsis")

    def _bar(self) -> RenderableType:
        """The phase, a clock, and how much of the budget is spent."""
        p = self._progress
        phase = "done" if p.finished else p.phase or "start"
        line = Table.grid(padding=(0, 1), expand=True)
        for _ in range(3):
            line.add_column(no_wrap=True)
        line.add_column(ratio=1)
        spent, budget = min(p.spent_s, p.budget_s), p.budget_s
        left = f"{duration(p.left_s)} left" if budget else ""
        at = f"{duration(p.spent_s)} of {duration(budget)}" if budget else duration(p.spent_s)
        if self._console.width < _NARROW:
            left = ""
        bar = ProgressBar(total=budget or 1.0, completed=spent if budget else 0.0)
        spinner = Text("*") if self._closed else self._spinner
        cells: list[RenderableType] = [spinner, Text(phase, style="cyan"), Text(at), bar]
        if left:
            line.add_column(no_wrap=True)
            cells.append(Text(left))
        line.add_row(*cells)
        return line

    def _facts(self) -> RenderableType:
        p = self._progress
        found = Table.grid(padding=(0, 1))
        found.add_column(style="dim", no_wrap=True)
        found.add_column(overflow="fold")
        if p.phase and not self._closed and self._console.height > 2 * _AROUND:
            found.add_row("now", PHASES[p.phase])
        found.add_row("model", Text(p.model_line(), style="bold" if p.model else ""))
        found.add_row("tried", p.candidates_line())
        if expected := p.expectation_line():
            found.add_row("ahead", expected)
        return found

    def _kernels(self) -> list[RenderableType]:
        """The heaviest kernels, as many as there is room for."""
        width, height = self._console.width, self._console.height
        count = max(0, height - _AROUND - 2)
        shown = self._progress.heaviest(count)
        if not shown:
            return []
        found = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        narrow, wide = width < _NARROW, width >= _WIDE
        room = width - (_FIGURES[0] if narrow else _FIGURES[1 + wide])
        found.add_column(
            "heaviest kernels", no_wrap=True, overflow="ellipsis", max_width=max(8, room)
        )
        names: tuple[str, ...] = ("best ms", "est. gain")
        if not narrow:
            names = (*(("uses",) if wide else ()), "default ms", *names, "% of peak")
        for name in names:
            found.add_column(name, justify="right", no_wrap=True)
        for kernel in shown:
            found.add_row(*self._row(kernel, narrow, wide))
        rest = self._progress.rest(count)
        return [Text(""), found, *([Text(rest, style="dim")] if rest else [])]

    def _row(self, k: KernelStanding, narrow: bool, wide: bool) -> list[Text]:
        gain = Text(
            about(k.default_s, k.best_s), style="green" if k.best_s < 0.99 * k.default_s else "dim"
        )
        name = Text(printable(k.name), style="bold" if k.key == self._progress.current else "")
        best = Text(ms(1e3 * k.best_s))
        if narrow:
            return [name, best, gain]
        figures = [Text(ms(1e3 * k.default_s)), best, gain, Text(peak_text(k.pct_peak))]
        return [name, Text(str(k.uses)), *figures] if wide else [name, *figures]


def _ascii(console: Console) -> bool:
    """True for a terminal that takes nothing but ASCII."""
    return not console.encoding.lower().startswith("utf")
