"""Calls on machines that die, hang, dawdle and come back: every answer arrives, and none is from
the wrong machine.
"""

import math
from types import SimpleNamespace

import pytest
from search_surface import MACHINE

from benchmarks.fleet_simulator import Simulated, SimulatedMachine
from tunegrad.errors import DeviceError, InternalError, OutOfResources
from tunegrad.ir.fusion import LaunchPlan
from tunegrad.trial import Fingerprint
from tunegrad.tuning.fleet import (
    Call,
    Dispatcher,
    FleetBench,
    JobLost,
    StationRaised,
)
from tunegrad.tuning.fleet.host import Missing

OTHER = Fingerprint((("arch", "glass"), ("device", "cpu")))


class Echo:
    """Answers with what it was asked."""

    def __init__(self, fingerprint=MACHINE):
        self.fingerprint = fingerprint

    def measure(self, kernel, texts, best_s, known):
        return texts

    def compare(self, kernel, a, b, rounds, cold, renewals):
        return (float(renewals),), (float(renewals),)

    def models(self, method, arguments):
        return (method, *arguments)


def machine(takes_s=1.0, fingerprint=MACHINE, **more):
    return SimulatedMachine(
        Echo(fingerprint), lambda call: 0.0 if call.method == "hello" else takes_s, **more
    )


def fleet(*machines):
    stations = Simulated({f"m{i}": m for i, m in enumerate(machines)})
    said = []
    return stations, Dispatcher(stations, MACHINE, stations, said.append), said


def ask(number, key="k", limit_s=60.0):
    return Call("measure", (None, [number], 1.0, frozenset()), key, limit_s)


def answers(dispatcher, calls):
    jobs = [dispatcher.submit(call) for call in calls]
    return [dispatcher.answer(job) for job in jobs]


def measured(stations):
    return [name for name, call in stations.calls if call.method == "measure"]


def test_dispatch_answers_every_call_and_keeps_all_machines_busy():
    stations, dispatcher, said = fleet(*(machine() for _ in range(4)))
    assert answers(dispatcher, [ask(i) for i in range(40)]) == [[i] for i in range(40)]
    assert stations.now_s == 10.0
    assert sorted(measured(stations)) == sorted(["m0", "m1", "m2", "m3"] * 10)
    assert said == []


def test_dispatch_asks_a_machine_that_knows_the_kernel_where_it_can():
    stations, dispatcher, _ = fleet(machine(), machine())
    for turn in range(6):
        answers(dispatcher, [ask(turn, key=f"k{turn % 2}")])
    first = dict(zip(["k0", "k1"], measured(stations), strict=False))
    assert [name for name, call in stations.calls if call.key == "k0"] == [first["k0"]] * 3


@pytest.mark.parametrize("dies_s", [0.5, 1.0, 3.7, 9.2])
def test_dispatch_repeats_what_a_machine_took_with_it(dies_s):
    _, dispatcher, said = fleet(machine(), machine(), machine(dies_s=(dies_s,)), machine())
    assert answers(dispatcher, [ask(i) for i in range(40)]) == [[i] for i in range(40)]
    assert dispatcher.machines == 3
    assert said == ["machine m2 was lost: its machine died"]


def test_dispatch_takes_a_machine_back_that_was_gone():
    stations, dispatcher, _ = fleet(machine(), machine(dies_s=(2.5,), back_after_s=4.0))
    assert answers(dispatcher, [ask(i) for i in range(60)]) == [[i] for i in range(60)]
    assert dispatcher.machines == 2
    assert stations.machines["m1"].busy_s > 10.0


def test_dispatch_without_any_machine_left_ends_with_the_reason():
    _, dispatcher, _ = fleet(machine(dies_s=(1.5,)), machine(dies_s=(2.5,)))
    with pytest.raises(
        DeviceError, match="no machine of the fleet is left, and none came back within 60 s"
    ):
        answers(dispatcher, [ask(i) for i in range(40)])


def test_dispatch_cuts_off_a_machine_that_hangs():
    hung = SimulatedMachine(
        Echo(), lambda call: math.inf if call.arguments and call.arguments[1] == [3] else 1.0
    )
    _, dispatcher, said = fleet(hung, machine())
    assert answers(dispatcher, [ask(i, limit_s=7.0) for i in range(10)]) == [[i] for i in range(10)]
    assert said == ["machine m0 was lost: no answer within 7 s"]
    assert dispatcher.machines == 2


def test_dispatch_gives_up_a_call_that_costs_three_machines():
    def deadly(call):
        return math.inf if call.arguments and call.arguments[1] == ["deadly"] else 1.0

    _, dispatcher, said = fleet(*(SimulatedMachine(Echo(), deadly) for _ in range(4)))
    job = dispatcher.submit(ask("deadly", limit_s=5.0))
    others = [dispatcher.submit(ask(i, limit_s=5.0)) for i in range(20)]
    with pytest.raises(JobLost, match=r"(m\d: no answer within 5 s; ){2}m\d: no answer within 5 s"):
        dispatcher.answer(job)
    assert [dispatcher.answer(o) for o in others] == [[i] for i in range(20)]
    assert len(said) == 3
    answers(dispatcher, [ask("once more")])
    assert dispatcher.machines == 4


def test_dispatch_gives_up_a_machine_that_dies_again_and_again():
    sick = SimulatedMachine(Echo(), lambda call: math.inf if call.method == "hello" else 1.0)
    stations, dispatcher, said = fleet(machine(takes_s=100.0), sick)
    assert answers(dispatcher, [ask(i, limit_s=1e4) for i in range(10)]) == [[i] for i in range(10)]
    assert said[-1] == "machine m1 is left out from here on: it was lost 3 times in a row"
    assert stations.ended == ["m1"]


def test_dispatch_takes_no_answer_from_a_machine_of_another_kind():
    stations, dispatcher, said = fleet(machine(), machine(fingerprint=OTHER))
    assert answers(dispatcher, [ask(i) for i in range(10)]) == [[i] for i in range(10)]
    assert set(measured(stations)) == {"m0"}
    assert said == ["machine m1 is left out from here on: it is of another kind now: other arch"]
    assert stations.ended == ["m1"]


def test_dispatch_takes_no_answer_from_a_machine_that_changes_under_way():
    changing = machine()
    _, dispatcher, said = fleet(machine(), changing)
    jobs = [dispatcher.submit(ask(i)) for i in range(20)]
    assert dispatcher.answer(jobs[3]) == [3]
    changing.engine.fingerprint = OTHER
    before = changing.busy_s
    assert [dispatcher.answer(job) for job in jobs] == [[i] for i in range(20)]
    assert dispatcher.machines == 1
    assert changing.busy_s <= before + 2.0  # what it had been sent
    assert said == ["machine m1 is left out from here on: it is of another kind now: other arch"]


class Raising(Simulated):
    def take(self, ticket):
        _, call, _ = self._open[ticket]
        if call.method == "measure" and call.arguments[1] == ["bug"]:
            super().take(ticket)
            raise StationRaised(ValueError("a bug"))
        return super().take(ticket)


def test_dispatch_an_exception_of_every_station_is_a_bug_and_no_row():
    stations = Raising({f"m{i}": machine() for i in range(2)})
    dispatcher = Dispatcher(stations, MACHINE, stations)
    with pytest.raises(InternalError, match=r"measure of k: m\d: ValueError: a bug") as caught:
        answers(dispatcher, [ask("bug")])
    assert isinstance(caught.value.__cause__, ValueError)


def opened(stations):
    return sum(call.method == "hello" for _, call in stations.calls)


def test_dispatch_drops_what_nobody_wants():
    stations, dispatcher, _ = fleet(machine())
    jobs = [dispatcher.submit(ask(i)) for i in range(10)]
    for job in jobs[:9]:
        dispatcher.drop(job)
    assert dispatcher.answer(jobs[9]) == [9]
    assert len(measured(stations)) == 1
    with pytest.raises(InternalError, match="was dropped"):
        dispatcher.answer(jobs[0])


# ---- calls for one machine


def models(on, limit_s=60.0, tries=3):
    return Call("models", ("run",), limit_s=limit_s, on=on, tries=tries)


def ran(stations, method):
    return [name for name, call in stations.calls if call.method == method]


def test_dispatch_runs_a_call_on_its_machine_and_nothing_beside_it_there_while_others_go_on():
    def takes_s(call):
        return {"hello": 0.0, "models": 10.0}.get(call.method, 1.0)

    stations, dispatcher, said = fleet(*(SimulatedMachine(Echo(), takes_s) for _ in range(2)))
    before = [dispatcher.submit(ask(i)) for i in range(4)]
    job = dispatcher.submit(models("m1"))
    after = [dispatcher.submit(ask(i)) for i in range(12)]
    assert dispatcher.answer(job) == ("run",)
    assert 11.0 <= stations.now_s <= 13.0, "it waited for what the machine had, and no longer"
    assert [dispatcher.answer(j) for j in before + after] == [[i] for i in [*range(4), *range(12)]]
    assert ran(stations, "models") == ["m1"]
    assert measured(stations).count("m0") > measured(stations).count("m1")
    assert stations.now_s < 16.0
    assert said == []


def test_dispatch_a_call_for_a_machine_that_is_gone_is_lost_and_the_next_machine_is_named():
    stations, dispatcher, _ = fleet(machine(), machine())
    assert dispatcher.station() in stations.machines
    assert dispatcher.station("m1") == "m1"
    stations.machines["m1"].dead_until_s = math.inf
    job = dispatcher.submit(models("m1"))
    with pytest.raises(JobLost, match=r"m1: gone; m1 is gone"):
        dispatcher.answer(job)
    assert dispatcher.station("m1") == "m0"


def test_dispatch_a_call_for_a_machine_that_is_of_another_kind_now_is_lost_and_nobody_is_blamed():
    stations, dispatcher, said = fleet(machine(fingerprint=OTHER), machine())
    job = dispatcher.submit(models("m0"))
    with pytest.raises(JobLost, match=r"^m0 is gone$"):
        dispatcher.answer(job)
    assert job.losses == []
    assert dispatcher.station("m0") == "m1"
    assert said == ["machine m0 is left out from here on: it is of another kind now: other arch"]
    assert stations.ended == ["m0"]


@pytest.mark.parametrize("tries", [1, 2])
def test_dispatch_tries_a_call_as_often_as_it_says(tries):
    def takes_s(call):
        return math.inf if call.method == "models" else 0.5

    stations, dispatcher, said = fleet(SimulatedMachine(Echo(), takes_s), machine())
    job = dispatcher.submit(models("m0", limit_s=5.0, tries=tries))
    with pytest.raises(JobLost) as lost:
        dispatcher.answer(job)
    assert str(lost.value) == "; ".join(["m0: no answer within 5 s"] * tries)
    assert ran(stations, "models") == ["m0"] * tries
    assert said == ["machine m0 was lost: no answer within 5 s"] * tries


def test_dispatch_a_station_that_is_started_anew_by_request_is_not_blamed_and_its_calls_go_on():
    stations, dispatcher, said = fleet(machine())
    jobs = [dispatcher.submit(ask(i)) for i in range(5)]
    assert dispatcher.answer(jobs[0]) == [0]
    dispatcher.restart("m0")
    dispatcher.restart("nowhere")
    assert [dispatcher.answer(job) for job in jobs] == [[i] for i in range(5)]
    assert [job.losses for job in jobs] == [[]] * 5
    assert opened(stations) == 2
    assert said == []


class Lacking(Echo):
    """Never has what a call needs."""

    def models(self, method, arguments):
        return Missing(frozenset(["a part"])) if method == "run" else None


def test_fleet_that_can_not_keep_the_parts_of_a_model_says_so():
    _, dispatcher, said = fleet(SimulatedMachine(Lacking(), lambda _: 0.0))
    model = SimpleNamespace(
        name="m", graph=(), plan=LaunchPlan((), (), (), ()), inputs=(), actions={}
    )
    with pytest.raises(OutOfResources, match="m0: it can not keep 0 bytes of constants"):
        FleetBench(dispatcher).latencies(model, 3)
    assert said == []
