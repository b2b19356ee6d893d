"""Stations of a fleet in simulated time: what the driver does is real, what machines and the
network do is counted.

    driver's own seconds (measured)  --+
    seconds a message takes (given)  --+-->  one clock
    calls that end (events)          --+

Calls of a station run one after the other. Machines can be told to die, to hang and to come back at
a time.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from tunegrad.tuning.fleet import Answer, Call, Engine, StationLost, answered

__all__ = ["Simulated", "SimulatedMachine"]


@dataclass(slots=True)
class SimulatedMachine:
    """One machine. Mutable. ``takes_s`` gives the seconds of a call; infinity: it never answers."""

    engine: Engine
    takes_s: Callable[[Call], float]
    dies_s: tuple[float, ...] = ()
    back_after_s: float = float("inf")
    starts_s: float = 0.0
    busy_s: float = 0.0
    free_s: float = 0.0
    dead_until_s: float = 0.0
    running: deque[int] = field(default_factory=deque)


class Simulated:
    """``Stations`` of simulated machines, and the clock that goes with them.

    With ``driver_s`` the seconds between two calls of this object, in which the driver worked, pass
    on the clock as well, times that factor. ``message_s`` passes for each call that is sent and
    each answer that is taken.
    """

    def __init__(
        self,
        machines: Mapping[str, SimulatedMachine],
        driver_s: float = 0.0,
        message_s: float = 0.0,
    ) -> None:
        self.machines = dict(machines)
        self.now_s = 0.0
        self.worked_s = 0.0
        self.calls: list[tuple[str, Call]] = []
        self.ended: list[str] = []
        self._driver_s, self._message_s = driver_s, message_s
        self._count = 0
        self._ends: list[tuple[float, int]] = []
        self._open: dict[int, tuple[str, Call, float]] = {}
        self._lost: dict[int, str] = {}
        self._ended: set[int] = set()
        self._deaths = sorted(
            (at_s, name) for name, m in self.machines.items() for at_s in m.dies_s
        )
        self._left_s = time.perf_counter()

    def __call__(self) -> float:
        """The clock: seconds since the start."""
        return self.now_s

    def wait_idle(self) -> None:
        """Keep the driver's time until now from passing on the clock."""
        self._left_s = time.perf_counter()

    def names(self) -> tuple[str, ...]:
        """Machines that are alive."""
        return tuple(name for name, m in self.machines.items() if m.dead_until_s <= self.now_s)

    def open(self, name: str) -> bool:
        """Start a machine's station anew; False where the machine is gone."""
        machine = self.machines[name]
        if machine.dead_until_s > self.now_s:
            return False
        self._fail(name, "killed")
        machine.free_s = self.now_s + machine.starts_s
        return True

    def end(self, name: str) -> None:
        """Stop a machine's station."""
        self._fail(name, "ended")
        self.ended.append(name)

    def send(self, name: str, call: Call) -> int:
        """Begin a call after those that the machine has."""
        self._driver_worked()
        self.now_s += self._message_s
        machine = self.machines[name]
        self._count += 1
        self.calls.append((name, call))
        self._open[self._count] = (name, call, 0.0)
        if machine.dead_until_s > self.now_s:
            self._lost[self._count] = "gone"
            self._ended.add(self._count)
            return self._count
        takes_s = machine.takes_s(call)
        begins_s = max(self.now_s, machine.free_s)
        machine.free_s = begins_s + takes_s
        self._open[self._count] = (name, call, takes_s)
        machine.running.append(self._count)
        heapq.heappush(self._ends, (machine.free_s, self._count))
        self._left_s = time.perf_counter()
        return self._count

    def done(self, tickets: Collection[int], timeout_s: float) -> list[int]:  # noqa: ARG002  # it knows them
        """Calls that ended; time passes to the next event where none has."""
        self._driver_worked()
        self._happen()
        if not self._ended:
            next_s = min(
                [at_s for at_s, _ in (self._ends[:1] + self._deaths[:1])],
                default=self.now_s + timeout_s,
            )
            self.now_s = max(self.now_s, min(next_s, self.now_s + timeout_s))
            self._happen()
        found = [t for t in self._ended if t in self._open]
        self._ended.clear()
        self._left_s = time.perf_counter()
        return found

    def take(self, ticket: int) -> Answer:
        """The answer of a call that ended. Raises StationLost."""
        self._driver_worked()
        self.now_s += self._message_s
        name, call, _ = self._open.pop(ticket)
        try:
            if ticket in self._lost:
                raise StationLost(self._lost.pop(ticket))
            engine = self.machines[name].engine
            return Answer(engine.fingerprint, answered(engine, call.method, call.arguments))
        finally:
            self._left_s = time.perf_counter()

    def _driver_worked(self) -> None:
        spent_s = time.perf_counter() - self._left_s
        self._left_s = time.perf_counter()
        self.worked_s += spent_s
        self.now_s += self._driver_s * spent_s

    def _happen(self) -> None:
        """Let everything happen that was due by now."""
        while self._deaths and self._deaths[0][0] <= self.now_s:
            at_s, name = heapq.heappop(self._deaths)
            self.machines[name].dead_until_s = at_s + self.machines[name].back_after_s
            self._finish(at_s)
            self._fail(name, "its machine died")
        self._finish(self.now_s)

    def _finish(self, until_s: float) -> None:
        while self._ends and self._ends[0][0] <= until_s:
            _, ticket = heapq.heappop(self._ends)
            if ticket not in self._open or ticket in self._lost:
                continue
            name, _, takes_s = self._open[ticket]
            self.machines[name].busy_s += takes_s
            self.machines[name].running.remove(ticket)
            self._ended.add(ticket)

    def _fail(self, name: str, why: str) -> None:
        machine = self.machines[name]
        for ticket in machine.running:
            self._lost[ticket] = why
            self._ended.add(ticket)
        machine.running.clear()
