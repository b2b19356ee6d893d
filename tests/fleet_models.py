"""Machines that run whole models, in this process: real engines, and deaths that are played."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fleet_engines import narrow_target

from benchmarks.fleet_simulator import Simulated, SimulatedMachine
from tunegrad.compiling import HOOKS
from tunegrad.devices import Hooks, Limits
from tunegrad.devices.cpu.device import CpuDevice
from tunegrad.devices.host.facts import fingerprint
from tunegrad.ir.target import Target
from tunegrad.trial import Fingerprint, Policy
from tunegrad.tuning.fleet import Call, DeviceEngine, Dispatcher, FleetBench

TARGET: Target = narrow_target(1)
THERE: Fingerprint = fingerprint(TARGET)
"""Of the machines of these fleets: of no machine that the tests run on."""


class Machines(Simulated):
    """Machines that have a new engine whenever their station starts: what they were sent is lost.

    A method in ``deadly`` kills the machine half a second after it began to run it, and one in
    ``hung`` never ends; once for every mention. ``interrupted``: Ctrl-C at the next wait.
    """

    def __init__(self, count: int, hooks: Hooks, back_after_s: float) -> None:
        self.hooks, self.deadly, self.hung = hooks, list[str](), list[str]()
        self.interrupted = False
        super().__init__({f"m{i}": self.machine(back_after_s) for i in range(count)})

    def machine(self, back_after_s: float) -> SimulatedMachine:
        return SimulatedMachine(self.engine(), self.takes_s, back_after_s=back_after_s)

    def engine(self) -> DeviceEngine:
        return DeviceEngine(CpuDevice(TARGET), "contract", Policy(), Limits(), 0, self.hooks)

    def takes_s(self, call: Call) -> float:
        name = asked(call)
        if name in self.hung:
            self.hung.remove(name)
            return math.inf
        return 0.0 if call.method == "hello" else 1.0

    def open(self, name: str) -> bool:
        self.machines[name].engine.close()
        self.machines[name].engine = self.engine()
        return super().open(name)

    def send(self, name: str, call: Call) -> int:
        if asked(call) in self.deadly:
            self.deadly.remove(asked(call))
            heapq.heappush(self._deaths, (self.now_s + 0.5, name))
        return super().send(name, call)

    def done(self, tickets, timeout_s):
        if self.interrupted and timeout_s:
            self.interrupted = False
            raise KeyboardInterrupt
        return super().done(tickets, timeout_s)


def asked(call: Call) -> str:
    """What a machine was asked of models: the method of the bench where it runs some."""
    if call.method != "models":
        return call.method
    return call.arguments[1] if call.arguments[0] == "run" else call.arguments[0]


@dataclass
class Fleet:
    """A fleet, its bench, and what was said of its machines."""

    stations: Machines
    dispatcher: Dispatcher
    bench: FleetBench
    said: list[str] = field(default_factory=list)

    def asked(self) -> list[tuple[str, str]]:
        """Machines and what they were asked since the last time."""
        found = [(name, asked(call)) for name, call in self.stations.calls]
        self.stations.calls.clear()
        return [(name, what) for name, what in found if what != "hello"]


@contextmanager
def fleet(count: int = 1, hooks: Hooks = HOOKS, back_after_s: float = 0.0) -> Iterator[Fleet]:
    """Machines of another kind than this one."""
    stations = Machines(count, hooks, back_after_s)
    said: list[str] = []
    dispatcher = Dispatcher(stations, THERE, stations, said.append)  # type: ignore[arg-type]
    try:
        yield Fleet(stations, dispatcher, FleetBench(dispatcher), said)
    finally:
        for machine in stations.machines.values():
            machine.engine.close()
