"""Searches on recorded spaces, in this process or on a fleet, that end after so many trials were
told.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from types import SimpleNamespace

from fleet_engines import recording, replay
from search_surface import MACHINE, Clock

from benchmarks.recorded import RecordedSpace
from tunegrad.db import open_store
from tunegrad.devices import Limits
from tunegrad.events import CandidateMeasured
from tunegrad.search import (
    BudgetPolicy,
    KernelSearch,
    ModelSearch,
    SearchTask,
    TrialLog,
    make_searcher,
)
from tunegrad.trial import Policy
from tunegrad.tuning.fleet import Dispatcher, FleetMeasurer, in_flight, job_size

NAMES = ("softmax", "maxpool", "layernorm")
POLICY = Policy(timeout_s=2.0)


class InProcess:
    """Measures when it is read, one after the other."""

    def __init__(self, names=NAMES):
        self.replays = {r.kernel_key: r for r in (replay(name) for name in names)}

    def measure(self, kernel, schedules, best_s, known):
        seen = set(known)
        for schedule in schedules:
            yield self.replays[kernel.key].take(schedule.text, seen)


class Session:
    """One search over recorded kernels.

    ``told`` are (kernel, actions) in the order in which rows were committed.
    """

    def __init__(
        self,
        measurer,
        machines,
        trials,
        seed=0,
        observe: Callable[[int], None] = lambda _: None,
        store=None,
        session="s",
        resumed=frozenset(),
    ):
        self.clock, self.told, self.observe = Clock(), [], observe
        self.store = store or open_store(":memory:", "write")
        log = TrialLog(self.store, MACHINE, POLICY, session, lambda: 0.0, resumed)
        searches = []
        for name in NAMES:
            r = recording(name)
            kernel = SimpleNamespace(key=r.kernel_key, name=r.kernel_name)
            task = SearchTask(kernel, name, r.kernel_key, r.kernel_text, 1, 1000, 1000)  # type: ignore[arg-type]  # it has a key
            space = RecordedSpace(r)
            searcher = make_searcher("beam", space, Random(f"{seed} {name}"))
            searches.append(KernelSearch(task, space, searcher, measurer, log, self._observe))
        policy = BudgetPolicy(in_flight=in_flight(machines), machines=machines)
        self.model = ModelSearch(searches, trials, self.clock, self._observe, policy)

    def _observe(self, event):
        if isinstance(event, CandidateMeasured):
            self.clock.now_s += 1.0
            self.told.append((event.kernel, event.actions))
            self.observe(len(self.told))

    def run(self):
        self.model.run()
        return self

    @property
    def rows(self):
        keys = [s.task.key for s in self.model.searches]
        return [
            (t.actions, t.program_hash, t.origin, t.measurement, t.fingerprint)
            for k in keys
            for t in self.store.trials(k)
        ]


def fleet_of(stations, machines, clock=time.monotonic, warn=lambda _: None):
    """A measurer on stations of recorded engines, and its dispatcher."""
    dispatcher = Dispatcher(stations, MACHINE, clock, warn)
    return FleetMeasurer(dispatcher, job_size(machines), Limits(), POLICY), dispatcher
