"""Ctrl-C during a search, and what else asks a process to end: what must be whole is finished
first, a candidate that runs is given up.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from types import FrameType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_WAKE = signal.SIGURG
"""Sent to the main thread at a deadline; a program that does not handle it is not disturbed."""
_AFTER_S = 0.005


class OutOfTimeError(Exception):
    """A deadline passed while something was waited for: what was under way is given up."""


class Interrupt:
    """Holds SIGINT, SIGTERM and SIGHUP back while it is entered (in the main thread; elsewhere it
    does nothing). One that is ignored, as SIGHUP is under nohup, stays so.

    The first one sets ``requested``, calls ``told``, and raises KeyboardInterrupt only inside
    ``breakable``, where the search waits for a worker. A second one raises at once. Deadlines end
    the same waits: see ``until``. ``clock`` is monotonic, in seconds.
    """

    def __init__(
        self, told: Callable[[], None] = lambda: None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.requested = False
        self._told, self._clock = told, clock
        self._deadline_s = inf
        self._pending = False
        self._breakable = False
        self._before: dict[signal.Signals, Any] = {}

    @contextmanager
    def breakable(self) -> Iterator[None]:
        """Code in here may be left at any point: it changes nothing that is kept."""
        self._breakable = True
        try:
            if self._pending:
                raise KeyboardInterrupt
            if self._clock() >= self._deadline_s:
                raise OutOfTimeError
            yield
        except SystemError as error:  # by code in C that went on, as Ray's does
            if isinstance(error.__cause__, (KeyboardInterrupt, OutOfTimeError)):
                raise error.__cause__ from None
            raise
        finally:
            self._breakable = False

    @contextmanager
    def until(self, deadline_s: float) -> Iterator[None]:
        """Leave ``breakable`` waits in here by OutOfTimeError once that time has come; of deadlines
        inside one another the first one holds.

        A wait that goes on is left in the main thread alone; elsewhere the next one is not begun.
        """
        outer_s = self._deadline_s
        self._deadline_s = min(outer_s, deadline_s)
        alarm: threading.Timer | None = None
        if self._before and self._deadline_s < outer_s:
            left_s = max(0.0, self._deadline_s - self._clock())
            main = threading.main_thread().ident or 0
            alarm = threading.Timer(left_s + _AFTER_S, signal.pthread_kill, (main, _WAKE))
            alarm.daemon = True
            alarm.start()
        try:
            yield
        finally:
            if alarm is not None:
                alarm.cancel()
            self._deadline_s = outer_s

    def forgive(self) -> None:
        """Let waiting go on after a first Ctrl-C; the next one is the first again.

        ``requested`` stays.
        """
        self._pending = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            held = [s for s in _SIGNALS if signal.getsignal(s) is not signal.SIG_IGN]
            self._before = {s: signal.signal(s, self._handle) for s in held}
            self._before[_WAKE] = signal.signal(_WAKE, self._wake)
        return self

    def __exit__(self, *_: object) -> None:
        while self._before:
            signal.signal(*self._before.popitem())

    def _wake(self, _signal: int, _frame: FrameType | None) -> None:
        if self._breakable and self._clock() >= self._deadline_s:
            raise OutOfTimeError

    def _handle(self, _signal: int, _frame: FrameType | None) -> None:
        again = self._pending
        first = not self.requested
        self.requested = self._pending = True
        if first:
            # What is being written when a signal comes can not be written to.
            with suppress(RuntimeError):
                self._told()
        if again or self._breakable:
            raise KeyboardInterrupt
