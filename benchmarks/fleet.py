"""The use that a search makes of many machines, on recorded timings: ``python -m benchmarks.fleet
--machines 1000``.

Real: the budget over kernels, the searchers, the store, the dispatcher, and with ``--ray`` Ray's
transport and this machine's clock. Not real: the machines, which answer from recordings after
``--trial`` seconds for each schedule; and without ``--ray`` the clock, on which the driver's own
measured seconds pass, and ``--message`` for each call sent or answer taken. Prints one line of
JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.fleet_simulator import Simulated, SimulatedMachine
from benchmarks.recorded import RecordedSpace, Recording, ReplayMeasurer, read_recording
from tunegrad.db import key_of, open_store
from tunegrad.devices import Limits
from tunegrad.errors import InternalError
from tunegrad.events import CandidateMeasured, Event
from tunegrad.search import (
    BudgetPolicy,
    KernelSearch,
    Measured,
    ModelSearch,
    SearchTask,
    TrialLog,
    make_searcher,
)
from tunegrad.trial import Fingerprint, Policy
from tunegrad.tuning.budget import Costs
from tunegrad.tuning.fleet import (
    Answer,
    Call,
    Dispatcher,
    FleetMeasurer,
    Stations,
    in_flight,
    job_size,
)

__all__: list[str] = []

MACHINE = Fingerprint((("arch", "recorded"), ("device", "cpu")))
SPACES = Path(__file__).parents[1] / "tests" / "data" / "spaces"
_HOSTS = 2
"""Processes that play all machines with ``--ray``."""


@dataclass(frozen=True, slots=True)
class NamedKernel:
    """Stands for a kernel: the recording that answers for it, and which of its copies it is."""

    key: str
    name: str
    recording: str


class Recorded:
    """Answers from recordings, for every copy of a kernel."""

    fingerprint = MACHINE

    def __init__(self, recordings: dict[str, Recording]) -> None:
        self._replays = {key: ReplayMeasurer(r) for key, r in recordings.items()}

    def measure(
        self,
        kernel: NamedKernel,
        texts: list[str],
        _best_s: float,
        _known: frozenset[str],
    ) -> list[Measured | None]:
        """The recorded results."""
        return [self._replays[kernel.recording].take(text, set()) for text in texts]


class Host:
    """Many machines in one process: each answers its calls one after the other, after the time they
    take.
    """

    def __init__(self, recordings: dict[str, Recording], trial_s: float) -> None:
        self._engine, self._trial_s = Recorded(recordings), trial_s
        self._locks: dict[str, asyncio.Lock] = {}

    async def call(self, name: str, method: str, arguments: tuple[Any, ...]) -> Answer:
        """One call of one machine."""
        async with self._locks.setdefault(name, asyncio.Lock()):
            if method != "measure":
                return Answer(MACHINE, None)
            kernel, texts, best_s, known = arguments
            await asyncio.sleep(self._trial_s * len(texts))
            return Answer(MACHINE, self._engine.measure(kernel, texts, best_s, known))


class RayHosts:
    """``Stations`` of machines that are played by a few actors of Ray."""

    def __init__(
        self, ray: Any, machines: int, recordings: dict[str, Recording], trial_s: float
    ) -> None:
        self._ray, self.trials = ray, 0
        actor = ray.remote(Host).options(num_cpus=0, max_concurrency=2 * machines + 10)
        hosts = [actor.remote(recordings, trial_s) for _ in range(_HOSTS)]
        self._hosts = {f"m{i}": hosts[i % _HOSTS] for i in range(machines)}

    def names(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(self._hosts)

    def open(self, name: str) -> bool:
        """They are open."""
        return name in self._hosts

    def end(self, name: str) -> None:
        """No machine of a recording is given up."""
        raise InternalError(f"{name} was given up")

    def send(self, name: str, call: Call) -> Any:
        """Begin a call."""
        return self._hosts[name].call.remote(name, call.method, call.arguments)

    def done(self, tickets: tuple[Any, ...], timeout_s: float) -> list[Any]:
        """Calls that ended."""
        ready, _ = self._ray.wait(list(tickets), num_returns=1, timeout=timeout_s)
        return (
            list(self._ray.wait(list(tickets), num_returns=len(tickets), timeout=0)[0])
            if ready
            else []
        )

    def take(self, ticket: Any) -> Answer:
        """Answer of a call."""
        found: Answer = self._ray.get(ticket)
        return found


def main() -> None:
    """Run once, and print what came of it."""
    options = _options()
    recordings = {}
    for file in sorted(SPACES.glob("*.jsonl.gz")):
        r = read_recording(file).recording
        recordings[r.kernel_key] = r
    costs = Costs()
    if options.ray:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        ray = import_module("ray")
        ray.init(
            "local",
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=100 << 20,
            num_cpus=2,
        )
        report = _run(
            options, recordings, RayHosts(ray, options.machines, recordings, options.trial), costs
        )
        ray.shutdown()
    else:
        engine = Recorded(recordings)

        def takes_s(call: Call) -> float:
            return options.trial * len(call.arguments[1]) if call.method == "measure" else 0.0

        machines = {f"m{i}": SimulatedMachine(engine, takes_s) for i in range(options.machines)}  # type: ignore[arg-type]
        report = _run(options, recordings, Simulated(machines, 1.0, options.message), costs)
    print(json.dumps(report))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20.0, help="of search")
    parser.add_argument("--trial", type=float, default=1.0, help="seconds that a trial takes")
    parser.add_argument("--kernels", type=int, default=60)
    parser.add_argument("--searcher", default="beam")
    parser.add_argument(
        "--message",
        type=float,
        default=0.00025,
        help="seconds of the driver for a call, and an answer",
    )
    parser.add_argument(
        "--memory",
        action="store_true",
        help="keep rows in memory: what the store costs, by comparison",
    )
    parser.add_argument("--ray", action="store_true")
    return parser.parse_args()


def _run(
    options: argparse.Namespace, recordings: dict[str, Recording], stations: Any, costs: Costs
) -> dict[str, Any]:
    clock = stations if isinstance(stations, Simulated) else time.monotonic
    size, ahead = job_size(options.machines), in_flight(options.machines)
    transport: Stations = stations
    dispatcher = Dispatcher(transport, MACHINE, clock)
    while dispatcher.machines < options.machines:
        dispatcher.pump()
    policy = Policy(timeout_s=max(10.0, 3.0 * options.trial))
    measurer = FleetMeasurer(dispatcher, size, Limits(), policy, costs=costs)
    told: Counter[int] = Counter()
    began_s = clock()

    def observe(event: Event) -> None:
        if isinstance(event, CandidateMeasured):
            told[int(clock() - began_s)] += 1

    with tempfile.TemporaryDirectory() as place:
        store = open_store(":memory:" if options.memory else Path(place) / "fleet.db", "write")
        log = TrialLog(store, MACHINE, policy, "bench", time.time, frozenset(), costs.part)
        searches = []
        spaces = {key: RecordedSpace(r) for key, r in recordings.items()}
        for i in range(options.kernels):
            key, r = list(recordings.items())[i % len(recordings)]
            text = f"{r.kernel_text}\n# {i}"
            kernel = NamedKernel(key_of(text), f"{r.kernel_name} {i}", key)
            task = SearchTask(kernel, kernel.name, kernel.key, text, 1, 1000, 1000)  # type: ignore[arg-type]
            space = spaces[key]
            searcher = make_searcher(options.searcher, space, Random(str(i)))
            searches.append(KernelSearch(task, space, searcher, measurer, log, observe))
        budget = BudgetPolicy(in_flight=ahead, machines=options.machines)
        if isinstance(stations, Simulated):
            stations.wait_idle()
        began_s = clock()
        cpu_s = time.process_time()
        costs.seconds  # noqa: B018  # the watch is read, so that what came before is charged
        search = ModelSearch(searches, options.seconds, clock, observe, budget)
        search.run()
        took_s, cpu_s = clock() - began_s, time.process_time() - cpu_s
        rows = store.stats().trials
        store.close()
    # The first trials and the last ones are left out: there the fleet fills, and empties.
    first, last = 10, int(options.seconds)
    rate = sum(told[s] for s in range(first, last)) / max(1, last - first)
    return {
        "machines": options.machines, "ray": options.ray, "searcher": options.searcher,
        "kernels": options.kernels,
        "job": size, "in_flight": ahead, "trials": rows, "took_s": round(took_s, 1),
        "trials_per_s": round(rate, 1), "busy": round(rate * options.trial / options.machines, 3),
        "driver_cpu_s": round(cpu_s, 1), "driver_ms_a_trial": round(1e3 * cpu_s / max(1, rows), 3),
        "costs_s": {part: round(s, 1) for part, s in costs.seconds.items() if s >= 0.05},
    }  # fmt: skip


if __name__ == "__main__":
    main()
