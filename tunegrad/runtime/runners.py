"""Runners of one model for callers in several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

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
        """In a child nobody runs anything yet; see ``forks.in_child``."""
        self._changed = threading.Condition()
        self._idle = list(self._all)

    @property
    def memory_bytes(self) -> int:
        """As ``Runner.memory_bytes``, of all; what they share is counted once."""
        return self.first.memory_bytes + sum(r.own_bytes for r in self._all[1:])

    def run(self, arrays: Mapping[str, Array]) -> tuple[Array, ...]:
        """See ``Runner.run``."""
        with self._lent() as runner:
            return runner.run(arrays)

    @contextmanager
    def _lent(self) -> Iterator[Runner]:
        with self._changed:
            self._changed.wait_for(lambda: self._idle or len(self._all) < self._most)
            if not self._idle:
                self._all.append(self._make())
                self._idle.append(self._all[-1])
            runner = self._idle.pop()
        try:
            yield runner
        finally:
            with self._changed:
                self._idle.append(runner)
                self._changed.notify()
