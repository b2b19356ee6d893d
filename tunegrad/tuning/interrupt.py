"""Ctrl-C during a search: what must be whole is finished first, a candidate that runs is given
up.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["Interrupt"]


class Interrupt:
    """Holds SIGINT back while it is entered (in the main thread; elsewhere it does nothing).

    The first Ctrl-C sets ``requested``, and raises KeyboardInterrupt only inside ``breakable``,
    where the search waits for a worker. A second one raises at once.
    """

    def __init__(self) -> None:
        self.requested = False
        self._pending = False
        self._breakable = False
        self._before: Any = None
        self._installed = False

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
            self._before = signal.signal(signal.SIGINT, self._handle)
            self._installed = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, self._before)
            self._installed = False

    def _handle(self, _signal: int, _frame: FrameType | None) -> None:
        again = self._pending
        self.requested = self._pending = True
        if again or self._breakable:
            raise KeyboardInterrupt
