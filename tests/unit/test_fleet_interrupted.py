"""A session on a fleet that is broken off: what was measured by then has its row, whatever it was
waiting for.
"""

import math
from types import SimpleNamespace

import pytest
from fleet_engines import Recorded, recording
from fleet_sessions import NAMES, InProcess, Session, fleet_of
from search_surface import MACHINE

from benchmarks.fleet_simulator import Simulated, SimulatedMachine
from benchmarks.recorded import RecordedSpace
from tunegrad.db import open_store
from tunegrad.errors import DeviceError
from tunegrad.opts import Schedule
from tunegrad.search import KernelSearch, Proposal, SearchTask, TrialLog
from tunegrad.trial import Policy

SOFTMAX = recording("softmax")
SIXTEEN = list({t.program_hash: t.actions for t in SOFTMAX.trials if t.measurement.ran}.values())[
    :16
]


class Answered(Recorded):
    """Keeps what it measured, by kernel and text."""

    def __init__(self, names, log):
        super().__init__(names)
        self.log = log

    def measure(self, kernel, texts, best_s, known):
        found = super().measure(kernel, texts, best_s, known)
        self.log += [
            (kernel.key, text, m.program_hash) for text, m in zip(texts, found, strict=True)
        ]
        return found


class Pressed(Simulated):
    """Ctrl-C at a time, while a call is waited for."""

    at_s = math.inf

    def done(self, tickets, timeout_s):
        if timeout_s and self.now_s >= self.at_s:
            self.at_s = math.inf
            raise KeyboardInterrupt
        return super().done(tickets, timeout_s)


def fleet(count, log, deadly="", **more):
    """Machines each of which is slower than the one before."""

    def machine(slow):
        def takes_s(call):
            if call.method != "measure":
                return 0.0
            return math.inf if deadly in call.arguments[1] else slow + 0.3 * len(call.arguments[1])

        return SimulatedMachine(Answered(NAMES, log), takes_s, **more)

    return Pressed({f"m{i}": machine(1.0 + 1.7 * i) for i in range(count)})


def without_row(log, store):
    """What was measured and neither has a row nor is the program of one."""
    rows = {key: store.trials(key) for key, _, _ in log}
    texts = {(key, t.actions) for key, found in rows.items() for t in found}
    programs = {
        (key, t.program_hash) for key, found in rows.items() for t in found if t.program_hash
    }
    return [
        (key, text)
        for key, text, program in log
        if (key, text) not in texts and (key, program) not in programs
    ]


class Listed:
    """Proposes what it was given, once."""

    done = False
    skipped = 0

    def __init__(self, proposals):
        self.proposals, self.told = proposals, []

    def ask(self, n):
        return self.proposals[:n]

    def tell(self, proposal, measurement):
        self.told.append(proposal.schedule.text)


def search_of(measurer, store):
    """A search of a recorded kernel that proposes sixteen schedules, and its searcher."""
    space = RecordedSpace(SOFTMAX)
    kernel = SimpleNamespace(key=SOFTMAX.kernel_key, name="softmax")
    task = SearchTask(kernel, "softmax", SOFTMAX.kernel_key, SOFTMAX.kernel_text, 1, 1000, 1000)
    searcher = Listed([Proposal(Schedule.parse(text), "listed") for text in SIXTEEN])
    search = KernelSearch(
        task, space, searcher, measurer, TrialLog(store, MACHINE, Policy(), "s", lambda: 0.0)
    )
    search.defaults_measured = True
    return search, searcher


def test_interrupted_after_a_lost_job_keeps_what_its_schedules_gave_alone():
    log, store = [], open_store(":memory:", "write")
    deadly = SIXTEEN[5]
    stations = fleet(3, log, deadly)
    measurer, _ = fleet_of(stations, 3, stations)
    search, searcher = search_of(measurer, store)
    begun = search.begin(16)
    stations.at_s = (
        3 * job_limit_s(measurer) + 20.0
    )  # the job was lost three times; its schedules run alone
    with pytest.raises(KeyboardInterrupt):
        search.finish(begun)
    assert store.trials(SOFTMAX.kernel_key) == []
    search.give_up(begun)
    rows = store.trials(SOFTMAX.kernel_key)
    assert {t.actions for t in rows} == set(SIXTEEN) - {deadly}
    assert searcher.told == []
    assert search.winner.trial in rows
    assert search.best_s == search.winner.seconds
    assert begun.found.arrived() == ()


def job_limit_s(measurer):
    job = measurer._submit(SimpleNamespace(key="k"), SIXTEEN[:8], 1.0, frozenset())
    measurer.drop(job)
    return job.call.limit_s


@pytest.mark.parametrize("at_s", [0.5, 9.1, 23.0, 31.0])
def test_interrupted_session_has_a_row_of_everything_that_was_measured(at_s):
    log = []
    stations = fleet(4, log)
    stations.at_s = at_s
    session = Session(fleet_of(stations, 4, stations)[0], 4, 600)
    with pytest.raises(KeyboardInterrupt):
        session.run()
    assert without_row(log, session.store) == []
    assert len(session.told) == len(session.rows)


def keys(session):
    return [s.task.key for s in session.model.searches]


def test_session_interrupted_while_results_are_told_keeps_those_that_were():
    log = []
    stations = fleet(4, log)

    def press(told):
        if told == 37:
            raise KeyboardInterrupt

    session = Session(fleet_of(stations, 4, stations)[0], 4, 600, observe=press)
    with pytest.raises(KeyboardInterrupt):
        session.run()
    assert len(session.told) > 37
    assert without_row(log, session.store) == []


def test_session_without_machines_left_has_a_row_of_everything_that_was_measured():
    log = []
    stations = fleet(4, log, dies_s=(30.0,))
    session = Session(fleet_of(stations, 4, stations)[0], 4, 600)
    with pytest.raises(DeviceError, match="no machine of the fleet is left"):
        session.run()
    assert len(log) > 30
    assert without_row(log, session.store) == []


def test_interrupted_session_is_resumed_without_measuring_anything_again():
    first, second = [], []
    stations = fleet(4, first)
    stations.at_s = 40.0
    cut = Session(fleet_of(stations, 4, stations)[0], 4, 300)
    with pytest.raises(KeyboardInterrupt):
        cut.run()
    rows = {(key, t.actions) for key in keys(cut) for t in cut.store.trials(key)}
    assert len(rows) > 50
    again = fleet(4, second)
    whole = Session(
        fleet_of(again, 4, again)[0], 4, 300, store=cut.store, session="t", resumed=frozenset({"s"})
    ).run()
    assert {(key, text) for key, text, _ in second} & rows == set()
    alone = Session(InProcess(), 4, 300).run()
    assert {
        k: min(t.measurement.seconds for t in whole.store.trials(k) if t.measurement.ran)
        for k in keys(whole)
    } == {
        k: min(t.measurement.seconds for t in alone.store.trials(k) if t.measurement.ran)
        for k in keys(alone)
    }
