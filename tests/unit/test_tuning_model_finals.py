"""The last round of the finals, on models whose launches take what the test says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tunegrad.errors import CandidateCrashed, CandidateFailure, WrongResult
from tunegrad.trial import Fingerprint, Measurement, Policy, Status, Trial
from tunegrad.tuning import model_finals
from tunegrad.tuning.finals import Contestant
from tunegrad.tuning.model_finals import Proved, settle_in_model

HERE = Fingerprint((("device", "cpu"),))
PLAN = ("conv", "pool", "conv", "copy")
"""The launches of the model."""


def trial(key: str, actions: str, seconds: float = 1.0) -> Trial:
    measured = Measurement(Status.OK, (seconds,) * 3)
    return Trial(key, key, HERE, actions, f"{key} {actions}", 1, Policy(), measured, "s", "beam", 1.0)


def contestant(key: str, *actions: str, seconds: float = 1.0) -> Contestant:
    winner, *others = (trial(key, a, seconds) for a in actions)
    return Contestant(key, winner, tuple(others))


@dataclass
class Machine:
    """What a launch takes by kernel and actions, in the first round and, where it is another, in the second one."""

    times: Mapping[tuple[str, str], float]
    later: Mapping[tuple[str, str], float] = field(default_factory=dict)
    rounds: int = 0
    made: list[dict[str, str]] = field(default_factory=list)
    turns: list[tuple[int, int]] = field(default_factory=list)
    ran: list[list[dict[str, str]]] = field(default_factory=list)
    voided: list[str] = field(default_factory=list)
    renewed: int = 0

    @property
    def bench(self) -> Machine:
        return self

    def prepare(self, pairs: object) -> None:
        """Nothing compiles here."""

    def renew(self) -> None:
        self.renewed += 1

    def void(self, trial: Trial, failure: CandidateFailure) -> None:
        self.voided.append(f"{trial.actions}: {failure}")

    def of_trials(self, work: object, chosen: Mapping[str, Trial]) -> Any:
        actions = {key: t.actions for key, t in chosen.items()}
        if "broken" in actions.values():
            raise CandidateFailure("it does not compile")
        if actions not in self.made:
            self.made.append(actions)
        return SimpleNamespace(actions=actions)

    def latencies(self, model: Any, samples: int) -> list[float]:
        return [1e-3] * samples

    def profiled(self, models: Sequence[Any], rounds: int = 12) -> list[list[tuple[float, ...]]]:
        self.rounds += 1
        self.turns.append((len(models), rounds))
        self.ran.append([m.actions for m in models])
        times = self.times if self.rounds == 1 else {**self.times, **self.later}
        return [[self._turn(m.actions, times, 1.0 + 1e-4 * t) for t in range(rounds)] for m in models]

    @staticmethod
    def _turn(actions: Mapping[str, str], times: Mapping[tuple[str, str], float], drift: float) -> tuple[float, ...]:
        return tuple(times[key, actions.get(key, "")] * drift for key in PLAN)


TIMES = {
    ("conv", "a"): 2.0, ("conv", "b"): 1.5, ("conv", "c"): 1.0, ("pool", "a"): 1.0, ("pool", "b"): 1.0,
    ("conv", ""): 2.0, ("pool", ""): 1.0, ("copy", ""): 0.1, ("copy", "a"): 0.1, ("copy", "b"): 0.01,
}  # fmt: skip


@pytest.fixture
def final():
    def run(machine: Machine, *contestants: Contestant, deadline_s: float = inf) -> Proved:
        launches = [SimpleNamespace(kernel=SimpleNamespace(key=key)) for key in PLAN]
        uses = [SimpleNamespace(key=key, kernel=key, uses=PLAN.count(key)) for key in dict.fromkeys(PLAN)]
        work = SimpleNamespace(plan=SimpleNamespace(launches=launches, buffers=()), kernels=uses)
        return settle_in_model(cast(Any, work), contestants, cast(Any, machine), machine.void, deadline_s)

    return run


def test_the_fastest_in_the_model_is_proved_twice_on_samples_of_its_own(final):
    machine = Machine(TIMES, later={("conv", "c"): 1.1})
    found = final(machine, contestant("conv", "a", "b", "c"), contestant("pool", "a", "b"))
    assert {key: t.actions for key, (t, _) in found.items()} == {"conv": "c"}
    _, evidence = found["conv"]
    assert min(evidence.challenger_samples_s) == 1.1
    assert min(evidence.incumbent_samples_s) == 2.0
    assert evidence.p_value < 0.05
    assert not evidence.cold
    assert machine.ran[-1] == [{"conv": "a", "pool": "a"}, {"conv": "c", "pool": "a"}]


def test_who_is_faster_once_is_not_promoted(final):
    assert final(Machine(TIMES, later={("conv", "c"): 2.0}), contestant("conv", "a", "c")) == {}


def test_nobody_is_promoted_where_the_whole_becomes_slower(final):
    class Spoilt(Machine):
        """In the second round the schedule that won makes the kernel after it slow."""

        def profiled(self, models: Sequence[Any], rounds: int = 12) -> list[list[tuple[float, ...]]]:
            found = super().profiled(models, rounds)
            if self.rounds == 2:
                found[1] = [(c1, 9.0, c2, rest) for c1, _, c2, rest in found[1]]
            return found

    assert final(Spoilt(TIMES), contestant("conv", "a", "c"), contestant("pool", "a", "b")) == {}


def test_ties_need_one_round(final):
    machine = Machine(TIMES)
    assert final(machine, contestant("pool", "a", "b")) == {}
    assert machine.rounds == 1


def test_a_kernel_that_takes_next_to_nothing_is_left_as_it_is(final):
    small = contestant("copy", "a", "b", seconds=1e-3)
    assert final(Machine(TIMES), contestant("conv", "a", "b"), small).keys() == {"conv"}
    assert final(Machine(TIMES), small).keys() == {"copy"}, "alone it takes all there is"


def test_of_kernels_of_another_model_nothing_is_made(final):
    machine = Machine(TIMES)
    assert final(machine, contestant("elsewhere", "a", "b")) == {}
    assert machine.made == []


def test_there_are_fewer_models_where_time_is_short_and_none_where_there_is_none(final, monkeypatch):
    monkeypatch.setattr(model_finals, "monotonic", lambda: 0.0)
    three = contestant("conv", "a", "b", "c")
    whole, short, none = Machine(TIMES), Machine(TIMES), Machine(TIMES)
    assert final(whole, three, deadline_s=1.0)["conv"][0].actions == "c"
    assert final(short, three, deadline_s=0.17)["conv"][0].actions == "b"
    assert final(none, three, deadline_s=0.05) == {}
    assert (len(whole.made), none.made) == (3, [])


def test_a_schedule_that_does_not_compile_here_changes_nothing(final):
    assert final(Machine(TIMES), contestant("conv", "a", "broken")) == {}


@dataclass
class Noisy(Machine):
    """Every launch of every turn has its own disturbance: 3 %, and one in ten takes half as long again."""

    rng: Random = field(default_factory=lambda: Random(0))

    def profiled(self, models: Sequence[Any], rounds: int = 12) -> list[list[tuple[float, ...]]]:
        self.rounds += 1
        return [[tuple(self._noisy() for _ in PLAN) for _ in range(rounds)] for _ in models]

    def _noisy(self) -> float:
        return max(0.5, self.rng.gauss(1.0, 0.03)) * (1.5 if self.rng.random() < 0.1 else 1.0)


@pytest.mark.parametrize("others", [3, 20], ids=["no heats", "heats"])
def test_of_schedules_that_are_exactly_as_fast_one_in_twenty_is_promoted_at_most(final, others):
    rng = Random(0)
    names = [f"s{i}" for i in range(1 + others)]
    promoted = 0
    for _ in range(100):
        promoted += len(final(Noisy({}, rng=rng), contestant("conv", *names), contestant("pool", *names)))
    assert promoted <= 0.05 * 200


MANY = [f"s{i}" for i in range(21)]


def taking(key: str, **fast: float) -> dict[tuple[str, str], float]:
    """Every schedule of MANY takes 1, but for those that are given."""
    return {(key, name): fast.get(name, 1.0) for name in MANY}


def test_who_was_far_behind_in_the_search_wins_where_it_is_the_fastest_in_the_model(final):
    machine = Machine({**TIMES, **taking("conv", s19=0.7, s3=0.8)})
    found = final(machine, contestant("conv", *MANY))
    assert found["conv"][0].actions == "s19"
    assert machine.turns == [(9, 6), (9, 6), (5, 6), (9, 12), (2, 12)]


def test_the_heavier_a_kernel_is_the_more_of_its_schedules_are_tried(final):
    machine = Machine({**TIMES, **taking("conv"), **taking("pool", s8=0.5, s9=0.4)})
    light = contestant("pool", *MANY, seconds=1e-2)
    assert final(machine, contestant("conv", *MANY), light)["pool"][0].actions == "s8"
    assert {made["pool"] for made in machine.made} == set(MANY[:9])
    assert {made["conv"] for made in machine.made} == set(MANY)


def test_a_schedule_that_does_not_compile_here_is_left_out_of_the_heats_with_its_model(final):
    machine = Machine({**TIMES, **taking("conv", s7=0.5)})
    broken = contestant("conv", *MANY[:5], "broken", *MANY[5:])
    assert final(machine, broken)["conv"][0].actions == "s7"


def test_a_kernel_of_which_no_other_schedule_compiles_here_keeps_its_winner(final):
    machine = Machine({**TIMES, **taking("conv", s7=0.5), **taking("pool")})
    nobody = contestant("pool", "s0", *["broken"] * 4)
    found = final(machine, contestant("conv", *MANY), nobody)
    assert {key: t.actions for key, (t, _) in found.items()} == {"conv": "s7"}


def test_without_time_for_heats_the_fastest_of_the_search_meet(final, monkeypatch):
    monkeypatch.setattr(model_finals, "monotonic", lambda: 0.0)
    machine = Machine({**TIMES, **taking("conv", s2=0.8, s19=0.7)})
    assert final(machine, contestant("conv", *MANY), deadline_s=0.3)["conv"][0].actions == "s2"
    assert all(turns == 12 for _, turns in machine.turns)


@dataclass
class Disturbed(Machine):
    """Turns take up to three times as long in the first ``disturbed`` rounds, others of each model."""

    disturbed: int = 0

    def profiled(self, models: Sequence[Any], rounds: int = 12) -> list[list[tuple[float, ...]]]:
        turns = super().profiled(models, rounds)
        if self.rounds > self.disturbed:
            return turns
        slow = [1.0 + 2.0 * (0.618 * t % 1.0) for t in range(12)]
        noise = [slow if m % 2 else slow[::-1] for m in range(len(turns))]
        sides = zip(turns, noise, strict=True)
        return [[tuple(s * x for s in turn) for turn, x in zip(*side, strict=True)] for side in sides]


@pytest.mark.parametrize(("disturbed", "found", "rounds"), [(0, True, 2), (1, True, 4), (9, False, 3)])
def test_who_is_ahead_in_the_model_is_measured_there_again(final, disturbed, found, rounds):
    times = {**TIMES, ("conv", "a"): 1.0, ("conv", "b"): 0.93}
    machine = Disturbed(times, disturbed=disturbed)
    assert bool(final(machine, contestant("conv", "a", "b"))) == found
    assert machine.rounds == rounds


def test_without_time_for_more_the_first_look_decides(final, monkeypatch):
    left = iter([0.0, inf])
    monkeypatch.setattr(model_finals, "profiled_s", lambda _: next(left))
    times = {**TIMES, ("conv", "a"): 1.0, ("conv", "b"): 0.93}
    machine = Disturbed(times, disturbed=9)
    assert not final(machine, contestant("conv", "a", "b"), deadline_s=1e12)
    assert machine.rounds == 1


# ---- who ends a race


@dataclass
class Hostile(Machine):
    """Races in which one of ``bad`` runs end as it says; ``fits`` are races that end by themselves, once each."""

    bad: Mapping[str, CandidateFailure] = field(default_factory=dict)
    fits: int = 0

    def profiled(self, models: Sequence[Any], rounds: int = 12) -> list[list[tuple[float, ...]]]:
        for model in models:
            for actions in model.actions.values():
                if actions in self.bad:
                    raise self.bad[actions]
        if self.fits:
            self.fits -= 1
            raise CandidateCrashed("the machine's")
        return super().profiled(models, rounds)


@pytest.mark.parametrize("failure", [CandidateCrashed("SIGSEGV"), WrongResult("output 0[3]")], ids=["crash", "wrong"])
def test_who_ends_a_race_is_withdrawn_alone_and_the_race_goes_on(final, failure):
    times = {**TIMES, **taking("conv", s7=0.5, s9=0.4), **taking("pool", s3=0.5)}
    machine = Hostile(times, bad={"s9": failure, "s12": failure})
    found = final(machine, contestant("conv", *MANY), contestant("pool", *MANY[:9]))
    assert {key: t.actions for key, (t, _) in found.items()} == {"conv": "s7", "pool": "s3"}
    assert machine.voided == [f"s9: {failure}", f"s12: {failure}"]


def test_a_race_that_ends_by_itself_costs_nobody_anything(final):
    machine = Hostile({**TIMES, **taking("conv", s7=0.5)}, fits=1)
    assert final(machine, contestant("conv", *MANY))["conv"][0].actions == "s7"
    assert machine.voided == []


def test_winners_that_end_a_race_alone_leave_everything_as_it_is(final):
    machine = Hostile({**TIMES, **taking("conv", s7=0.5)}, bad={"s0": CandidateCrashed("SIGSEGV")})
    assert final(machine, contestant("conv", *MANY)) == {}
    assert machine.voided == []
