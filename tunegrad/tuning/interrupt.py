"""Ctrl-C during a search, and what else asks a process to end: what must be whole is finished
first, a candidate that runs is given up.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["Interrupt"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupt:
    """Holds SIGINT, SIGTERM and SIGHUP back while it is entered (in the main thread; elsewhere it
    does nothing). One that is ignored, as SIGHUP is under nohup, stays so.

    The first one sets ``requested``, calls ``told``, and raises KeyboardInterrupt only inside
    ``breakable``, where the search waits for a worker. A second one raises at once.
    """

    def __init__(self, told: Callable[[], None] = lambda: None) -> None:
        self.requested = False
        self._told = told
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
            yield
        finally:
            self._breakable = False

    def forgive(self) -> None:
        """Let waiting go on after a first Ctrl-C; the next one is the first again.

        ``requested`` stays.
        """
        self._pending = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            held = [s for s in _SIGNALS if signal.getsignal(s) is not signal.SIG_IGN]
            self._before = {s: signal.signal(s, self._handle) for s in held}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        while self._before:
            signal.signal(*self._before.popitem())

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
