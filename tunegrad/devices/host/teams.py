"""Teams of threads for callers that run at the same time: each on cores of its own.

two models of one thread, two cores     -->  both run
two models of two threads, two cores    -->  the second waits until the first has given them back

Two teams on one core would wait for each other at every barrier: the threads of a kernel have to
run at the same time.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

from tunegrad.devices.host.team import Team
from tunegrad.forks import in_child

__all__ = ["Cores", "Teams", "process_cores"]


class _Place:
    """In the queue: how many cores somebody waits for, and those that they were given."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.given: tuple[int, ...] = ()
        self.ready = threading.Event()


class Cores:
    """Lends cores, in the order in which they are asked for, the lowest that are free."""

    def __init__(self, cores: Sequence[int]) -> None:
        self.all = tuple(sorted(cores))
        self.forked()
        in_child(self)

    def forked(self) -> None:
        """In a child nobody has borrowed anything yet; see ``forks.in_child``."""
        self._lock = threading.Lock()
        self._free = list(self.all)
        self._queue: deque[_Place] = deque()

    @contextmanager
    def lent(self, count: int) -> Iterator[tuple[int, ...]]:
        """So many cores, all of them where there are no more; waits until they are free."""
        cores = self._take(min(count, len(self.all)))
        try:
            yield cores
        finally:
            self._give(cores)

    def _take(self, count: int) -> tuple[int, ...]:
        with self._lock:
            if not self._queue and count <= len(self._free):
                return self._first(count)
            place = _Place(count)
            self._queue.append(place)
        try:
            place.ready.wait()
        except BaseException:  # Ctrl-C: who leaves the queue keeps nothing
            with self._lock:
                if place in self._queue:
                    self._queue.remove(place)
            self._give(place.given)
            raise
        return place.given

    def _first(self, count: int) -> tuple[int, ...]:
        cores = tuple(self._free[:count])
        del self._free[:count]
        return cores

    def _give(self, cores: Sequence[int]) -> None:
        """Take cores back, and give those in front what they wait for."""
        with self._lock:
            self._free = sorted((*self._free, *cores))
            while self._queue and self._queue[0].count <= len(self._free):
                place = self._queue.popleft()
                place.given = self._first(place.count)
                place.ready.set()


@cache
def process_cores() -> Cores:
    """The cores that this process may use, as they were when this was first asked."""
    return Cores(sorted(os.sched_getaffinity(0)))


class Teams:
    """Teams of ``threads`` threads, one for each set of cores that was lent; kept until ``close``.

    ``first`` is the one on the lowest cores, made at once. ``pin_caller`` is for a process that has
    one caller: it is kept on the first core. Raises DeviceError as ``Team`` does.
    """

    def __init__(self, threads: int, pin_caller: bool = False) -> None:
        self.threads, self._cores = threads, process_cores()
        self._lock = threading.Lock()
        cores = self._cores.all[:threads]
        self.first = Team(threads, self._cpus(cores), pin_caller)
        self._teams = {cores: self.first}
        in_child(self)

    def forked(self) -> None:
        """See ``forks.in_child``; the teams themselves see that they are in another process."""
        self._lock = threading.Lock()

    @property
    def most(self) -> int:
        """Callers that run at once; more wait."""
        return max(1, len(self._cores.all) // self.threads)

    @contextmanager
    def lent(self) -> Iterator[Team]:
        """A team that nobody else uses, on cores that nobody else uses."""
        with self._cores.lent(self.threads) as cores:
            with self._lock:
                team = self._teams.get(cores)
                if team is None:
                    team = self._teams[cores] = Team(self.threads, self._cpus(cores))
            yield team

    def close(self) -> None:
        """Stop and join all helpers."""
        for team in self._teams.values():
            team.close()

    def _cpus(self, cores: Sequence[int]) -> tuple[int, ...]:
        """Where each thread is kept; nowhere, where there are more threads than cores."""
        return tuple(cores) if len(cores) == self.threads else (-1,) * self.threads
