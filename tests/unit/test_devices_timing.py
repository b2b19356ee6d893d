"""Samples in turns, on scripted samples and a scripted clock."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import pytest

from tunegrad.devices.timing import Pairs, inner_repeats, relative_interval, sample_pairs
from tunegrad.trial import Policy


class Script:
    """A sampler whose clock moves by the seconds it hands out."""

    def __init__(self, values: Sequence[float]) -> None:
        self.values, self.at, self.now, self.inner = values, 0, 0.0, [0]

    def sample(self, inner: int) -> float:
        self.inner.append(inner)
        taken = self.values[self.at % len(self.values)]
        self.at += 1
        self.now += taken * inner
        return taken

    def clock(self) -> float:
        return self.now


def _run(
    values: Sequence[float], policy: Policy, losing_s: float = math.inf
) -> tuple[tuple[float, ...], Script]:
    script = Script(values)
    pairs = sample_pairs(script.sample, None, policy, losing_s=losing_s, clock=script.clock)
    assert pairs.reference_s == (), "nothing is beside it"
    return pairs.samples_s, script


def test_steady_samples_stop_at_the_minimum():
    samples, _ = _run([1e-3], Policy(min_samples=3, budget_s=1.0))
    assert samples == (1e-3,) * 3


def test_noisy_samples_go_on_to_the_maximum():
    samples, _ = _run([1e-3, 2e-3], Policy(min_samples=3, max_samples=20, budget_s=10.0))
    assert len(samples) == 20


def test_budget_ends_a_noisy_candidate():
    samples, script = _run([1e-2, 2e-2], Policy(min_samples=3, max_samples=50, budget_s=0.1))
    assert 3 <= len(samples) < 50
    assert script.now < 0.3


@pytest.mark.parametrize("least", [2, 3])
def test_first_sample_that_waited_for_a_core_does_not_stand_alone(least):
    policy = Policy(min_samples=least, max_samples=6, budget_s=0.01)
    samples, _ = _run([12e-3, 5e-4, 5e-4, 5e-4, 5e-4], policy)
    assert statistics.median(samples) == 5e-4


def test_slow_candidate_gives_its_only_sample():
    samples, _ = _run([5.0], Policy(budget_s=0.1))
    assert samples == (5.0,)


def test_loser_stops_after_two_samples():
    samples, _ = _run([40e-3], Policy(budget_s=0.1), losing_s=1e-3)
    assert samples == (40e-3, 40e-3)


def test_slow_first_launch_does_not_lose():
    samples, _ = _run([280e-6] + [12e-6] * 20, Policy(min_samples=3, budget_s=1.0), losing_s=20e-6)
    assert samples == (12e-6,) * 3


def test_one_slow_first_sample_does_not_lose():
    samples, _ = _run(
        [2e-3, 0.9e-3, 0.9e-3, 0.9e-3, 0.9e-3], Policy(min_samples=3, budget_s=1.0), losing_s=1e-3
    )
    assert samples == (0.9e-3,) * 3


def test_short_kernels_repeat_inside_a_sample():
    _, script = _run([1e-6], Policy(budget_s=1.0))
    assert 40 <= script.inner[-1] <= 41


def test_cold_samples_are_single_launches():
    script = Script([1e-6])
    sample_pairs(
        script.sample, None, Policy(cache="cold", budget_s=1.0), clock=script.clock, alone=True
    )
    assert set(script.inner[1:]) == {1}


def _alone(values: Sequence[float], **bounds: float) -> tuple[tuple[float, ...], Script]:
    script, policy = (
        Script(values),
        Policy(cache="constants", min_samples=3, max_samples=10, budget_s=1.0),
    )
    return sample_pairs(
        script.sample, None, policy, clock=script.clock, alone=True, **bounds
    ).samples_s, script


def test_cold_samples_count_from_the_first_launch():
    samples, script = _alone([1e-3])
    assert samples == (1e-3,) * 3
    assert script.at == 3


@pytest.mark.parametrize(("once_s", "expected"), [(1.0, 1), (20e-6, 1), (10e-6, 4), (0.0, 4096)])
def test_inner_repeats(once_s, expected):
    assert inner_repeats(once_s, alone=False) == expected


def test_interval_of_equal_samples_is_zero():
    assert relative_interval([2.0] * 10) == 0.0


def test_interval_of_one_sample_is_infinite():
    assert relative_interval([1.0]) == math.inf


def test_interval_of_few_samples_is_their_range():
    assert relative_interval([1.0, 2.0, 3.0]) == 0.5


def test_interval_ignores_outliers_among_many():
    samples = [1.0] * 30 + [100.0]
    assert relative_interval(samples) == 0.0


def test_interval_of_the_minimum_is_the_gap_below():
    assert relative_interval([1.0, 1.5, 9.0], "min") == 0.5


class Machine:
    """A candidate and what is beside it, on cores that take ``slow[n]`` times as long in turn
    ``n``; then once more.

    ``log`` is who ran, in order.
    """

    def __init__(self, candidate_s: float, beside_s: float, slow: Sequence[float]) -> None:
        self.candidate_s, self.beside_s, self.slow = candidate_s, beside_s, slow
        self.turn, self.now, self.log, self.inner = 0, 0.0, "", dict[str, list[int]](b=[], c=[])

    def _run(self, who: str, seconds: float, inner: int) -> float:
        self.turn = len(self.log) // 2
        self.log += who
        self.inner[who].append(inner)
        taken = seconds * self.slow[self.turn % len(self.slow)]
        self.now += taken * inner
        return taken

    def beside(self, inner: int) -> float:
        return self._run("b", self.beside_s, inner)

    def candidate(self, inner: int) -> float:
        return self._run("c", self.candidate_s, inner)

    def pairs(
        self,
        standing_s: float,
        losing_s: float = math.inf,
        alone: bool = False,
        best_s: float = 0.0,
        once_s: float = 0.0,
    ) -> Pairs:
        policy = Policy(min_samples=3, max_samples=20, tolerance=0.02, budget_s=0.1)
        return sample_pairs(
            self.candidate,
            (self.beside, standing_s),
            policy,
            best_s,
            losing_s,
            lambda: self.now,
            alone,
            once_s,
        )


def test_every_sample_has_one_of_the_same_turn_beside_it():
    machine = Machine(1e-3, 2e-3, [1.0])
    pairs = machine.pairs(2e-3)
    assert pairs.samples_s == (1e-3,) * 3
    assert pairs.reference_s == (2e-3,) * 3


def test_turns_alternate_and_the_candidate_runs_last():
    machine = Machine(1e-3, 2e-3, [1.0])
    machine.pairs(2e-3)
    assert machine.log == "cb bc cb bc".replace(" ", ""), "the first turn calibrates"


@pytest.mark.parametrize("slow", [[1.5], [1.0, 1.8], [1.0, 1.0, 3.0]])
def test_a_slow_moment_does_not_change_what_turns_say(slow):
    assert Machine(1e-3, 2e-3, slow).pairs(4e-3).value_s == pytest.approx(2e-3)


def test_reference_that_is_disturbed_in_a_turn_makes_no_candidate_fast():
    machine = Machine(1e-3, 1e-3, [1.0])
    disturbed = iter([1e-3, 50e-3, 1e-3, 50e-3])
    machine.beside = lambda inner: next(disturbed, 1e-3)  # type: ignore[method-assign]
    assert machine.pairs(1e-3).value_s == pytest.approx(1e-3)


def test_what_seems_to_be_the_best_has_turns_until_one_of_the_reference_is_undisturbed():
    machine, disturbed = Machine(1e-3, 1e-3, [1.0]), iter([0.1, 0.03, 0.2] * 3)
    machine.beside = lambda inner: machine._run("b", next(disturbed, 1e-3), inner)  # type: ignore[method-assign]
    assert machine.pairs(1e-3, best_s=1e-3).value_s == pytest.approx(1e-3)
    again, disturbed = Machine(1e-3, 1e-3, [1.0]), iter([0.1, 0.03, 0.2] * 3)
    again.beside = lambda inner: again._run("b", next(disturbed, 1e-3), inner)  # type: ignore[method-assign]
    assert len(again.pairs(1e-3).samples_s) == 3, "what is not better than the best is left at that"


def test_disturbed_turns_that_agree_make_no_best():
    machine, disturbed = Machine(1e-3, 1e-3, [1.0]), iter([5e-3] * 4)
    machine.beside = lambda inner: machine._run("b", next(disturbed, 1e-3), inner)  # type: ignore[method-assign]
    assert machine.pairs(1e-3, best_s=1e-3).value_s == pytest.approx(1e-3)


def test_what_may_win_has_all_its_turns_though_the_first_took_the_budget():
    machine = Machine(1e-3, 1e-3, [200.0, 1.0])
    assert len(machine.pairs(1e-3).samples_s) >= 3


def test_a_slow_moment_makes_no_loser():
    pairs = Machine(1e-3, 1e-3, [1.8]).pairs(1e-3, losing_s=1.5e-3)
    assert len(pairs.samples_s) == 3


def test_loser_beside_something_stops_after_two_turns():
    machine = Machine(2e-3, 1e-3, [1.8])
    assert machine.pairs(1e-3, losing_s=1.5e-3).samples_s == pytest.approx((3.6e-3,) * 2)
    assert machine.log == "cbbc"


@pytest.mark.parametrize("alone", [False, True])
def test_what_takes_over_twice_a_loser_before_and_in_its_first_turn_has_no_second(alone):
    machine = Machine(3.1e-3, 1e-3, [1.8])
    pairs = machine.pairs(1e-3, losing_s=1.5e-3, alone=alone, once_s=3.1e-3)
    assert (machine.log, pairs.value_s) == ("bc", pytest.approx(3.1e-3))


@pytest.mark.parametrize(("slow", "once_s"), [([1.0], 2.9e-3), ([1.0], 0.0)])
def test_one_slow_run_alone_does_not_cost_the_second_turn(slow, once_s):
    machine = Machine(3.1e-3, 1e-3, slow)
    machine.pairs(1e-3, losing_s=1.5e-3, alone=True, once_s=once_s)
    assert machine.log == "cbbc", "the candidate runs last without another run"


def test_slow_run_before_a_fair_first_turn_does_not_cost_the_second_one():
    machine = Machine(2.9e-3, 1e-3, [1.0])
    machine.pairs(1e-3, losing_s=1.5e-3, alone=True, once_s=3.1e-3)
    assert machine.log == "bccbc"


def test_cold_turns_count_from_the_first():
    machine = Machine(1e-3, 1e-3, [1.0])
    assert len(machine.pairs(1e-3, alone=True).samples_s) == 3
    assert machine.log == "cbbccb" + "c"


def test_each_side_repeats_as_often_as_it_needs():
    machine = Machine(1e-6, 1e-3, [1.0])
    machine.pairs(1e-3)
    assert machine.inner["b"][-1] == 1
    assert 40 <= max(machine.inner["c"]) <= 41


def test_without_anything_beside_it_samples_are_the_values():
    assert (Pairs((1.0, 2.0)).value_s, Pairs((1.0, 2.0)).turns) == (1.0, (1.0, 2.0))
