"""Runners of one model for callers in several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

from tunegrad.forks import in_child

from .plan import Array, Runner

__all__ = ["Runners"]


class Runners:
    """As many runners of one plan as callers are at it at a time, ``most`` at most; more wait.

    Each has temporary memory of its own. ``make`` makes those beside the first.
    """

    def __init__(self, first: Runner, make: Callable[[], Runner], most: int) -> None:
        self.first = first
        self._make, self._most = make, most
        self._all = [self.first]
        self.forked()
        in_child(self)

    def forked(self) -> None:
        """In a child no model runs yet; see ``forks.in_child``."""
        self._changed = threading.Condition()
        self._idle, self._waiting = list(self._all), 0

    @property
    def memory_bytes(self) -> int:
        """As ``Runner.memory_bytes``, of all; what they share is counted once."""
        return self.first.memory_bytes + sum(r.own_bytes for r in self._all[1:])

    def run(self, arrays: Mapping[str, Array]) -> tuple[Array, ...]:
        """See ``Runner.run``."""
        # A list gives and takes one thing at a time, without a lock. A thread that gives one
        # back looks for waiting threads after that; one that waits has said so before it looks for
        # an idle one.
        try:
            runner = self._idle.pop()
        except IndexError:
            runner = self._waited_for()
        try:
            return runner.run(arrays)
        finally:
            self._idle.append(runner)
            if self._waiting:
                with self._changed:
                    self._changed.notify()

    def _waited_for(self) -> Runner:
        with self._changed:
            self._waiting += 1
            try:
                while True:
                    with suppress(IndexError):
                        return self._idle.pop()
                    if len(self._all) < self._most:
                        self._all.append(self._make())
                        return self._all[-1]
                    self._changed.wait()
            except BaseException:  # Ctrl-C, no memory: another may wait for what it was told of
                self._changed.notify()
                raise
            finally:
                self._waiting -= 1
