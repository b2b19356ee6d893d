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
from collections.abc import Sequence
from functools import cache

from tunegrad.devices.host.team import Team
from tunegrad.forks import in_child

__all__ = ["Cores", "Teams", "process_cores"]


class _Place:
    """A place in the queue: how many cores are waited for, and those that were given."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.given: tuple[int, ...] = ()
        self.ready = threading.Event()


class Cores:
    """Gives cores in the order of requests, the lowest free ones first."""

    def __init__(self, cores: Sequence[int]) -> None:
        self.all = tuple(sorted(cores))
        self.forked()
        in_child(self)

    def forked(self) -> None:
        """In a child no core is borrowed yet; see ``forks.in_child``."""
        self._lock = threading.Lock()
        self._free = list(self.all)
        self._queue: deque[_Place] = deque()

    def take(self, count: int) -> tuple[int, ...]:
        """So many cores, all of them where there are no more; waits until they are free. They are
        to be given back.
        """
        count = min(count, len(self.all))
        with self._lock:
            if not self._queue and count <= len(self._free):
                return self._first(count)
            place = _Place(count)
            self._queue.append(place)
        try:
            place.ready.wait()
        except BaseException:  # Ctrl-C: leaving the queue keeps nothing
            with self._lock:
                if place in self._queue:
                    self._queue.remove(place)
            self.give(place.given)
            raise
        return place.given

    def _first(self, count: int) -> tuple[int, ...]:
        cores = tuple(self._free[:count])
        del self._free[:count]
        return cores

    def give(self, cores: Sequence[int]) -> None:
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
    """Teams of ``threads`` threads, one for each set of cores in use; kept until ``close``.

    ``first`` is the one on the lowest cores, made at once. ``pin_caller`` is for a process that has
    one caller: it is kept on the first core. Raises DeviceError as ``Team`` does.
    """

    def __init__(self, threads: int, pin_caller: bool = False) -> None:
        self.threads, self._cores = threads, process_cores()
        cores = self._cores.all[:threads]
        self.first = Team(threads, self._cpus(cores), pin_caller)
        self._teams, self._places = {cores: self.first}, {self.first: cores}

    @property
    def most(self) -> int:
        """Callers that run at once; more wait."""
        return max(1, len(self._cores.all) // self.threads)

    def take(self) -> Team:
        """A team of the caller's own, on cores that no other team uses; to be given back."""
        cores = self._cores.take(self.threads)
        return self._teams.get(cores) or self._made(cores)

    def give(self, team: Team) -> None:
        """Take back what ``take`` gave."""
        self._cores.give(self._places[team])

    def _made(self, cores: tuple[int, ...]) -> Team:
        """A team on cores that have none yet; they are given back where the system refuses it."""
        try:
            team = Team(self.threads, self._cpus(cores))
        except BaseException:
            self._cores.give(cores)
            raise
        self._places[team] = cores  # no other caller has these cores
        self._teams[cores] = team
        return team

    def close(self) -> None:
        """Stop and join all helpers."""
        for team in self._teams.values():
            team.close()

    def _cpus(self, cores: Sequence[int]) -> tuple[int, ...]:
        """Processors that each thread is kept on; none, where there are more threads than cores."""
        return tuple(cores) if len(cores) == self.threads else (-1,) * self.threads
